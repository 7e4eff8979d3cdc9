"""Providers that a lane asks for by name have to be there."""

from __future__ import annotations

import pytest

from pytest_sglhw.conformance.providers import FoundProvider
from pytest_sglhw.conformance.sources import Provider, Source


def test_a_promised_provider_that_is_not_installed():
    """Named in a lane it is a complaint, else it is only listed."""
    found = FoundProvider(
        "sgl_kernel", "sgl_kernel.kvcacheio", problem="ModuleNotFoundError: No module named 'sgl_kernel'"
    )

    assert found.complaint(promised=False) is None
    assert found.complaint(promised=True) == (
        "was named for this lane and is not available: ModuleNotFoundError: No module named 'sgl_kernel'"
    )


def test_a_promised_provider_whose_package_does_not_load():
    """Each reason is said once."""
    kernels = Provider({"one": Source("m", "one"), "two": Source("m", "two")}, lambda: "it is broken", lambda: "cpu")

    assert FoundProvider("mine", "m", kernels).complaint(promised=False) is None
    assert FoundProvider("mine", "m", kernels).complaint(promised=True) == (
        "was named for this lane and is not available: it is broken"
    )


def test_a_promised_provider_that_has_something():
    """One kernel that can be had is enough: what is missing is listed with its reason."""
    kernels = Provider({"ok": Source("os.path", "join"), "no": Source("no_such", "x")}, lambda: None, lambda: "cpu")

    assert FoundProvider("mine", "m", kernels).complaint(promised=True) is None


@pytest.mark.parametrize("promised", [True, False])
def test_a_broken_provider(promised):
    """It is a complaint in any case."""
    found = FoundProvider("mine", "m", problem="RuntimeError: no", is_broken=True)

    assert found.complaint(promised) == "is broken: RuntimeError: no"


def test_a_lane_asks_by_name(conformance_here, pytester):
    """The same run is red in a lane that says nothing of it in its tables, and names the provider."""
    pytester.makefile(".toml", sglhw='[lanes.cpu]\nplatform = "cpu"\n')
    arguments = ("--kernels", "torch", "--kernels", "sgl_kernel_npu", "--kernel", "transfer_kv_direct",
                 "--profile", "quick", "--dtype", "uint8", "--page-size", "16")  # fmt: skip

    alone = conformance_here(*arguments)
    in_lane = conformance_here(*arguments, "--sglhw-lane=cpu")

    words = "provider 'sgl_kernel_npu' was named for this lane and is not available: sgl_kernel_npu is not installed"
    assert alone.returncode == 0
    assert in_lane.returncode == 1
    assert words in in_lane.stdout
