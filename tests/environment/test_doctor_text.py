"""What ``sglhw doctor`` shows a person of its evidence."""

from __future__ import annotations

from pytest_sglhw.environment import doctor_text
from pytest_sglhw.environment.records import CapabilityState, Environment

LONG = "importing sgl_kernel raised ImportError: " + "x" * 400 + " libnvrtc.so.13: cannot open shared object file"


def shown(**capabilities: CapabilityState) -> list[str]:
    environment = Environment(platform="cuda", device_type="cuda", capabilities=capabilities)
    return [line.strip() for line in doctor_text._capabilities(environment)]


def test_evidence_that_capabilities_share_is_shown_once():
    """The second one names the first."""
    lines = shown(
        kv4=CapabilityState("broken", "kv4 is broken", ("seen by both", "seen by kv4")),
        hisparse=CapabilityState("broken", "hisparse is broken", ("seen by both",)),
    )
    assert lines == [
        "capabilities",
        "hisparse  broken       hisparse is broken",
        "seen by both",
        "kv4       broken       kv4 is broken",
        "seen by kv4",
        "and what hisparse shows",
    ]


def test_a_long_line_keeps_its_two_ends():
    """What failed stands at the start, the library that is missing at the end."""
    line = shown(kvcacheio=CapabilityState("broken", "broken", (LONG,)))[-1]
    assert len(line) == 245
    assert line.startswith("importing sgl_kernel raised ImportError: ")
    assert line.endswith("libnvrtc.so.13: cannot open shared object file")
