"""Words that the built-in rows share: package names, groups of archs, and the two kinds of documented signal."""

from __future__ import annotations

from typing import Any

SGLANG = ("sglang", "amd-sglang")
KERNELS = ("sglang-kernel", "sgl-kernel")
XPU_KERNELS = ("sglang-kernel-xpu", "sgl-kernel-xpu")
FLASHINFER = ("flashinfer-python",)
SMOKE = "pytest_sglhw.environment.smoke:"

#: Where every release of SGLang says what it takes a machine for; importing it runs SGLang's own ``__init__``.
_SGLANG_MODULE = "sglang.srt.utils"
#: The probe of what SGLang does by itself, and the columns that a feature has which it does with somebody's kernels.
SGLANG_ALONE: dict[str, Any] = {"distributions": SGLANG, "module": _SGLANG_MODULE, "names": ("is_cuda", "is_hip")}
SGLANG_WITH: dict[str, Any] = {"distributions": SGLANG, "needs": (_SGLANG_MODULE,)}
#: What SGLang compiles when it is first used, and what it writes in CuTe DSL.
JIT: dict[str, Any] = {
    **SGLANG_WITH,
    "module": "tvm_ffi",
    "brought_by": ("apache-tvm-ffi",),
    "names": ("Module",),
    "check": SMOKE + "jit_toolchain",
}
CUTE_DSL: dict[str, Any] = {
    **SGLANG_WITH,
    "module": "cutlass.cute",
    "brought_by": ("nvidia-cutlass-dsl",),
    "names": ("jit", "kernel"),
}

# SGLang asks for the major version of the compute capability: 10 is SM100, 12 is SM120. CUDA 13 renamed 10.1 to 11.0.
SM100 = ("sm100", "sm101", "sm103")
SM120 = ("sm120", "sm121")
BLACKWELL = (*SM100, "sm110", *SM120)


def refusal(exception: str, match: str) -> dict[str, Any]:
    """Give the row of a documented error: its class and a pattern that holds for every release that matters."""
    return {"exception": exception, "match": match}


def warns(match: str) -> dict[str, Any]:
    """Give the row of a documented warning: SGLang goes on after it."""
    return {"exception": "UserWarning", "match": match, "warning": True}
