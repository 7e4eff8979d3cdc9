"""The built-in capabilities are consistent rows of data."""

from __future__ import annotations

import builtins
import importlib
import inspect
import re
import subprocess
import sys

import pytest

from pytest_sglhw.registry.builtin import BUILTIN_CAPABILITIES
from pytest_sglhw.registry.capabilities import Capability, capability_from_row
from pytest_sglhw.registry.registry import Registry

PLATFORMS = {"cuda", "rocm", "xpu", "npu", "musa", "mps", "hpu", "cpu"}
CAPABILITIES = [capability_from_row(row, "built in") for row in BUILTIN_CAPABILITIES]
SIGNALS = [pytest.param(c, s, id=f"{c.name}-{n}") for c in CAPABILITIES for n, s in enumerate(c.signals)]

each_capability = pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda c: c.name)


def test_there_are_enough_and_each_name_once() -> None:
    """A registry takes all rows: no name is double and none is malformed."""
    registry = Registry()
    for row in BUILTIN_CAPABILITIES:
        registry.add_capability(row)
    assert len(registry.capabilities) == len(BUILTIN_CAPABILITIES) >= 24


def test_rows_are_plain_data_and_need_no_dataclass() -> None:
    """The names can be read in a process that has imported neither the dataclasses of the registry nor torch."""
    code = (
        "import sys\n"
        "from pytest_sglhw.registry.builtin import BUILTIN_CAPABILITIES\n"
        "assert BUILTIN_CAPABILITIES[0]['name'] == 'kvcacheio'\n"
        "print(sorted({'torch', 'pytest_sglhw.registry.capabilities'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@each_capability
def test_platforms_and_archs(capability: Capability) -> None:
    """Every platform exists, every "since" is a release, and archs narrow only platforms that the row names."""
    assert set(capability.platforms) <= PLATFORMS
    assert capability.platforms, "a capability that no platform has"
    assert all(re.fullmatch(r"(\d+\.\d+\.\d+)?", since) for since in capability.platforms.values())
    assert set(capability.archs) <= set(capability.platforms)
    assert all(
        re.fullmatch(r"sm\d{2,3}|gfx[0-9a-f]{3,4}", arch) for archs in capability.archs.values() for arch in archs
    )


@each_capability
def test_probe_asks_something(capability: Capability) -> None:
    """Every capability can be probed, and native operators are named with their namespace."""
    ladder = capability.probe
    assert ladder is not None
    assert ladder.distributions or ladder.module or ladder.ops or ladder.check
    assert all(re.fullmatch(r"\w+::\w+", op) for op in ladder.ops)
    assert ladder.module or not ladder.ops, "operators are registered by importing a module"


@each_capability
def test_check_is_a_function_without_arguments(capability: Capability) -> None:
    """The last rung of a ladder, where there is one, can be found and called by its name alone."""
    if capability.probe is None or capability.probe.check is None:
        return
    module, _, function = capability.probe.check.partition(":")
    assert not inspect.signature(getattr(importlib.import_module(module), function)).parameters


@pytest.mark.parametrize(("capability", "signal"), SIGNALS)
def test_signals_compile_and_say_enough(capability: Capability, signal: object) -> None:
    """A pattern compiles, does not match a crash on the way to the gate, and its class is one that Python has."""
    pattern = re.compile(signal.match)  # type: ignore[attr-defined]
    for stranger in ("", "Torch not compiled with CUDA enabled", "No module named 'sgl_kernel'", "0 active drivers"):
        assert not pattern.search(stranger)
    exception = getattr(builtins, signal.exception)  # type: ignore[attr-defined]
    assert issubclass(exception, Warning) == signal.warning  # type: ignore[attr-defined]


def test_kvcacheio_lists_its_thirteen_kernels() -> None:
    """The thirteen transfer kernels that every GPU build has can be required one by one."""
    ladder = next(c for c in CAPABILITIES if c.name == "kvcacheio").probe
    assert ladder is not None
    assert len(set(ladder.ops)) == 13
    assert "sgl_kernel::transfer_kv_direct" in ladder.ops
