"""Marks, from their names to what becomes of a test. Here: the names, as plain literals.

An idle run registers them and needs nothing else of the gates or of the registry.
"""

from __future__ import annotations

from collections.abc import Iterable

PLATFORMS = ("cuda", "rocm", "xpu", "npu", "musa", "mps", "hpu", "cpu")

#: The built-in capabilities. A test holds this list against the registry's rows.
CAPABILITIES = (
    "kvcacheio", "kvcacheio_npu", "embedding_ranges", "device_ptr", "hisparse", "hicache_kernel",
    "hicache_direct", "hicache_unified", "jit_hicache", "kv4", "nvfp4_kv", "nvfp4_prefill", "mxfp8_kv", "dcp",
    "gguf", "awq", "fused_marlin_moe", "fp8", "fp8_blockwise_sm120", "flashinfer", "flashinfer_allreduce",
    "fa3", "fa4", "trtllm_mha", "trtllm_mla", "cutedsl_mla", "aiter", "quark_mxfp4", "quark_int4fp8_moe",
    "megamoe", "deepep", "elastic_ep", "pynccl", "cuda_ipc", "weight_cache", "dspark", "dflash", "mindspore",
    "mlx", "amx", "triton", "cuda_graph", "p2p",
)  # fmt: skip

#: What each platform mark accepts: platform names, or ``None`` for every platform but ``cpu``.
PLATFORM_MARKS: dict[str, tuple[str, ...] | None] = {
    **{f"{name}_only": (name,) for name in PLATFORMS},
    "gpu_only": None,
}

GENERAL = "sglhw"
KNOWN_GAP = "known_gap"
ISOLATED = "isolated_device"
#: What is met with the first test that our marks let run on an accelerator; no mark of that name.
DEVICE_TEST = "device test"
REQUIRES = "requires_"
ONLY = "_only"

_COMMON = "otherwise='skip', raises=None, match=None, reason=None"


def platform_marks(platforms: Iterable[str]) -> dict[str, tuple[str, ...] | None]:
    """Give what each platform mark of a run accepts: the built-in ones, and one for each platform that was added."""
    return {**PLATFORM_MARKS, **{name + ONLY: (name,) for name in platforms}}


def registered_lines() -> dict[str, str]:
    """Give the line for ini ``markers`` of every built-in mark, by name."""
    lines = dict(map(platform_line, PLATFORMS))
    lines["gpu_only"] = f"gpu_only({_COMMON}): needs any accelerator (pytest-sglhw)"
    lines.update(map(capability_line, CAPABILITIES))
    lines[GENERAL] = (
        f"{GENERAL}(*capabilities, platforms=(), archs=(), min_arch=None, min_devices=None, min_memory=None, "
        f"min_free_memory=None, {_COMMON}): needs all of it (pytest-sglhw)"
    )
    lines[KNOWN_GAP] = (
        f"{KNOWN_GAP}(issue, until=None, raises=None, reason=None): runs and must fail until the gap is closed; "
        "until is a date or an SGLang version (pytest-sglhw)"
    )
    lines[ISOLATED] = f"{ISOLATED}: runs in a spawned child process of its own (pytest-sglhw)"
    return lines


def marker_name(line: str) -> str:
    """Give the name that a line of ini ``markers`` registers."""
    return line.partition("(")[0].partition(":")[0].strip()


def platform_line(name: str) -> tuple[str, str]:
    """Give name and ``markers`` line of the mark that asks for a platform."""
    mark = name + ONLY
    return mark, f"{mark}({_COMMON}): needs platform {name} (pytest-sglhw)"


def capability_line(name: str) -> tuple[str, str]:
    """Give name and ``markers`` line of the mark that requires a capability."""
    mark = REQUIRES + name
    return mark, f"{mark}(*kernels, {_COMMON}): needs {name}, see 'sglhw capabilities' (pytest-sglhw)"
