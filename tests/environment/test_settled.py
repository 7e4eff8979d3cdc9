"""What static facts settle is what a probe of the same machine finds, as far as it decides about tests."""

from __future__ import annotations

import pytest

from pytest_sglhw.environment.probe import Probe
from pytest_sglhw.environment.settled import settled
from pytest_sglhw.environment.static import StaticFacts, TorchBuild
from pytest_sglhw.registry.loading import built_in

REGISTRY = built_in()
ELSEWHERE = [name for name, row in REGISTRY.capabilities.items() if "cpu" not in row.platforms]
HERE = [name for name, row in REGISTRY.capabilities.items() if "cpu" in row.platforms]
NOTHING = {"nodes": {}, "drivers": {}, "hints": {}, "vendors": {}, "masks": {}, "packages": {}, "sglang": None}
CPU = TorchBuild("/torch/__init__.py", "2.11.0+cpu", {}, True, True)
CUDA = TorchBuild("/torch/__init__.py", "2.11.0+cu130", {"cuda": "13.0"})


@pytest.mark.parametrize("torch", [CPU, None], ids=["cpu", "none"])
def test_it_agrees_with_the_probe(torch):
    """Platform, reason and build, and of each capability state, reason and remedy."""
    static = StaticFacts(torch=torch, **NOTHING)
    found, probed = settled(static, REGISTRY, ELSEWHERE), Probe(REGISTRY, static).run(ELSEWHERE)

    assert len(ELSEWHERE) > 20
    for name in ("platform", "device_type", "devices", "reason", "build", "kernels", "withheld", "fake"):
        assert getattr(found, name) == getattr(probed, name)
    assert {name: (state.state, state.reason, state.remedy) for name, state in found.capabilities.items()} == {
        name: (state.state, state.reason, state.remedy) for name, state in probed.capabilities.items()
    }


def test_what_has_to_be_looked_at_is_left_to_the_probe():
    """A capability that a CPU may have, a torch for accelerators, and a package that adds one."""
    cpu = StaticFacts(torch=CPU, **NOTHING)

    assert settled(cpu, REGISTRY, ELSEWHERE[:1]) is not None
    assert settled(cpu, REGISTRY, [*ELSEWHERE[:1], *HERE[:1]]) is None
    assert settled(StaticFacts(torch=CUDA, **NOTHING), REGISTRY, ()) is None
    assert settled(StaticFacts(torch=CPU, **NOTHING | {"vendors": {"torch_npu": "/torch_npu"}}), REGISTRY, ()) is None
