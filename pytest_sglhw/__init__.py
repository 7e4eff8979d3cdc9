"""A pytest plugin and hardware test matrix for code that runs SGLang's KV-cache kernels."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_sglhw.environment.predicates import (
        is_cpu,
        is_cuda,
        is_gpu,
        is_hpu,
        is_mps,
        is_musa,
        is_npu,
        is_rocm,
        is_xpu,
    )
    from pytest_sglhw.environment.probe import probe_environment
    from pytest_sglhw.environment.records import Environment
    from pytest_sglhw.errors import PytestSglhwWarning
    from pytest_sglhw.gates.module_gate import import_or_skip

_PREDICATES = "pytest_sglhw.environment.predicates"

#: Public name -> ``module:attribute``. Loading the plugin imports this package: a name costs nothing until it is used.
_PUBLIC = {
    "Environment": "pytest_sglhw.environment.records:Environment",
    "PytestSglhwWarning": "pytest_sglhw.errors:PytestSglhwWarning",
    "import_or_skip": "pytest_sglhw.gates.module_gate:import_or_skip",
    "probe_environment": "pytest_sglhw.environment.probe:probe_environment",
    "is_cpu": f"{_PREDICATES}:is_cpu",
    "is_cuda": f"{_PREDICATES}:is_cuda",
    "is_gpu": f"{_PREDICATES}:is_gpu",
    "is_hpu": f"{_PREDICATES}:is_hpu",
    "is_mps": f"{_PREDICATES}:is_mps",
    "is_musa": f"{_PREDICATES}:is_musa",
    "is_npu": f"{_PREDICATES}:is_npu",
    "is_rocm": f"{_PREDICATES}:is_rocm",
    "is_xpu": f"{_PREDICATES}:is_xpu",
}

#: Every mark is here under its own name, ``requires_<capability>`` for the capabilities that others add as well. A name
#: that is no mark after all is refused when its file is collected, with the valid ones.
_MARKS = frozenset({
    "cuda_only", "rocm_only", "xpu_only", "npu_only", "musa_only", "mps_only", "hpu_only", "cpu_only", "gpu_only",
    "sglhw", "known_gap", "isolated_device",
})  # fmt: skip

__all__ = [  # noqa: RUF022 (classes and functions first, then the predicates)
    "Environment",
    "PytestSglhwWarning",
    "import_or_skip",
    "probe_environment",
    "is_cpu",
    "is_cuda",
    "is_gpu",
    "is_hpu",
    "is_mps",
    "is_musa",
    "is_npu",
    "is_rocm",
    "is_xpu",
]


def __getattr__(name: str) -> Any:
    if name in _MARKS or name.startswith("requires_"):
        import pytest

        mark = getattr(pytest.mark, name)
        if name == "sglhw":  # imported into a test module, it stands before the predicates of skipif("sglhw.is_cuda")
            vars(mark).update(import_module(_PREDICATES).PREDICATES)
        return mark
    target = _PUBLIC.get(name)
    if target is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = target.partition(":")
    value = globals()[name] = getattr(import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
