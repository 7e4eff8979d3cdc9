"""What the terminal says at the end, and what reports carry."""

from __future__ import annotations

import pytest

SOURCE = """
import pytest
@pytest.mark.parametrize("n", range(3))
@pytest.mark.cuda_only
def test_a(n): pass
@pytest.mark.sglhw(min_devices=4)
def test_b(): pass
def test_c(): pass
"""
BROKEN = """
    from pytest_sglhw.record import replace
    import pytest
    from pytest_sglhw.environment.detection import detection_of
    from pytest_sglhw.environment.records import CapabilityState

    @pytest.hookimpl(trylast=True)
    def pytest_configure(config):
        detection = detection_of(config)
        state = CapabilityState("broken", "ImportError: libcuda.so.1: cannot open", remedy="a driver")
        detection._environment = replace(detection.environment(), capabilities={"kvcacheio": state})
"""


def section(result, title):
    """Give the lines below a section's title."""
    at = next(i for i, line in enumerate(result.outlines) if title in line)
    return [line for line in result.outlines[at + 1 :] if line]


def test_skips_are_folded_by_reason_code(run):
    """Code, count, one example, and what would make it run."""
    lines = section(run(SOURCE, fake="rocm*2"), "skipped for hardware (sglhw)")
    assert lines[:4] == [
        "    1  devices: sglhw(min_devices=4): 4 devices needed, 2 found",
        "       e.g. test_it.py::test_b; would run with: a machine with 4 devices",
        "    3  platform: cuda_only: the platform here is rocm, not cuda (--sglhw-fake rocm*2)",
        "       e.g. test_it.py::test_a[0]; would run with: a machine with cuda",
    ]


def test_quiet_runs_say_less(run):
    """``-q`` leaves the folded skips out."""
    assert "skipped for hardware" not in run(SOURCE, "-q", fake="rocm").stdout.str()


@pytest.mark.parametrize("arguments", [(), ("-q",)])
def test_broken_hardware_is_loud(run, arguments):
    """A package that is installed and fails is a warning and a section of its own, also under ``-q``."""
    source = "import pytest\n@pytest.mark.requires_kvcacheio\ndef test_a(): pass"
    result = run(source, *arguments, fake="cuda", conftest=BROKEN)
    reason = "requires_kvcacheio: kvcacheio is broken: ImportError: libcuda.so.1: cannot open"
    assert result.parseoutcomes() == {"skipped": 1, "warnings": 1}
    result.stdout.fnmatch_lines([f"*PytestSglhwWarning: {reason}"])
    lines = section(result, "hardware that should work here and does not, or did not answer (sglhw)")
    assert lines[:2] == [
        f"    1  broken:kvcacheio: {reason}",
        "       e.g. test_it.py::test_a; would run with: a driver",
    ]


def test_broken_hardware_fails_in_a_lane(run):
    """The same in a lane is an error of the test."""
    conftest = BROKEN + (
        "    from pytest_sglhw.gates.policy import LANE_POLICY, LanePolicy\n"
        "        config.stash[LANE_POLICY] = LanePolicy('x')\n".replace("    from", "        from", 1)
    )
    result = run("import pytest\n@pytest.mark.requires_kvcacheio\ndef test_a(): pass", fake="cuda", conftest=conftest)
    assert result.parseoutcomes() == {"errors": 1}
    assert "requires_kvcacheio: kvcacheio is broken: ImportError: libcuda.so.1: cannot open" in result.outlines


def test_reports_carry_the_facts(run):
    """A plain dict on the reports of marked tests, here and from workers; nothing on others."""
    conftest = """
        def pytest_runtest_logreport(report):
            facts = getattr(report, "sglhw", None)
            if facts is not None:
                print("FACTS", report.nodeid, report.when, sorted(facts.items()))
    """
    source = """
        import pytest
        @pytest.mark.cuda_only
        def test_a(): pass
        @pytest.mark.rocm_only
        def test_b(): pass
        @pytest.mark.cuda_only(otherwise="raise", raises=KeyError)
        def test_c(): {}["x"]
        def test_d(): pass
    """
    for workers in ((), ("-n1",)):
        found = [
            line for line in run(source, "-s", *workers, fake="rocm", conftest=conftest).outlines if "FACTS" in line
        ]
        text = "\n".join(found)
        assert (
            "test_a setup [('mark', 'cuda_only'), ('marks', ['cuda_only']), ('platform', 'rocm'), ('reason', " in text
        )
        assert "('reason_code', 'platform'), ('remedy', 'a machine with cuda'), ('requirement', 'cuda_only')" in text
        assert "test_b setup [('marks', ['rocm_only']), ('platform', 'rocm'), ('requirement', 'rocm_only')" in text
        assert """test_c call""" in text
        assert "('outcome', 'raised')" in text
        assert "test_d" not in text
