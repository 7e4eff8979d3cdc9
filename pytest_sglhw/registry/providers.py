"""The built-in kernel providers."""

from __future__ import annotations

_SGLANG = "pytest_sglhw.conformance.providers_sglang"

BUILTIN_PROVIDERS: dict[str, str] = {
    "torch": "pytest_sglhw.kvcacheio",
    "sgl_kernel": f"{_SGLANG}:sgl_kernel",
    "sglang_jit": f"{_SGLANG}:jit",
    "sglang_triton": f"{_SGLANG}:triton",
    "sgl_kernel_npu": f"{_SGLANG}:sgl_kernel_npu",
}
"""The built-in kernel providers: name -> what is imported when it is used."""
