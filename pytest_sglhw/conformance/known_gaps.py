"""Where released code differs from its contract, as the matrix found it by itself.

A cell with a row here is run like any other and must fail in the way that the row says; its outcome is ``xfailed``,
with the reason. If it passes the gap is closed, and that is a failure: remove the row. So is any other failure.
See ``docs/findings.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_sglhw.conformance.cells import Cell


@dataclass(frozen=True)
class Gap:
    """One difference: which cells it makes fail, how, and why."""

    provider: str
    kernel: str
    layout: str
    breaks: str
    """The law that breaks, or the class of the exception that comes instead of a result."""
    reason: str
    source: str
    """Where it is in the code of the provider."""
    smallest: str
    """The smallest input that shows it."""
    devices: tuple[str, ...] = ("cpu", "cuda")
    """The torch device types on which it was found or follows from the source."""


_SGLANG = "sglang 0.5.23, "
_POOL = f"{_SGLANG}srt/mem_cache/memory_pool.py, "
_KV4 = f"{_SGLANG}srt/layers/quantization/kvfp4_tensor.py, FP4MXBlock16KVQuantizeUtil.batched_quantize"

GAPS: tuple[Gap, ...] = (
    Gap(
        "sglang_triton",
        "move_kv_cache",
        "across_chunks",
        "reference",
        "more slots than one launch takes (256, or 128 for rows of 8 KiB and more) are moved chunk by chunk, so a "
        "later chunk reads slots that an earlier one has overwritten",
        f"{_POOL}MHATokenToKVPool._move_kv_cache_impl",
        "257 slots, each moved to its successor",
    ),
    Gap(
        "sglang_triton",
        "move_kv_cache",
        "wider_v",
        "reference",
        "the number of byte tiles is that of the first K buffer, so V rows that need more tiles lose their tail",
        f"{_POOL}MHATokenToKVPool._init_kv_copy_and_warmup",
        "one slot, K rows of 16 bytes, V rows of 160 bytes: bytes 128 to 159 of V stay behind",
    ),
    Gap(
        "sglang_triton",
        "move_nvfp4_native_scales",
        "overlapping",
        "reference",
        "the scales of all slots are moved in parallel with no order between reads and writes, although the payload of "
        "the same move (MHATokenToKVPool.move_kv_cache) may overlap: scales and payload part",
        f"{_SGLANG}srt/layers/quantization/nvfp4_kv_cache.py, _move_nvfp4_native_scales_kernel",
        "two slots, 0 to 1 and 1 to 2, one head",
        devices=("cpu",),
    ),
    Gap(
        "sglang_triton",
        "set_kv_buffer",
        "slot_0",
        "untouched",
        "padding rows are written to the reserved slot 0, which the kernel for GPUs skips: what slot 0 holds depends "
        "on the backend",
        f"{_POOL}_set_kv_buffer_impl",
        "one row whose slot is 0",
        devices=("cpu",),
    ),
    Gap(
        "sglang_triton",
        "set_kv_buffer_scaled",
        "scaled",
        "source",
        "the caller's K and V are divided by the scales in place before they are converted, so rows that are used "
        "or stored again afterwards are other rows",
        f"{_POOL}MHATokenToKVPool.set_kv_buffer",
        "one row, a scale of 2, a float8_e4m3fn pool",
    ),
    Gap(
        "sglang_triton",
        "set_mla_kv_buffer",
        "nope_only_slot_0",
        "untouched",
        "without a rope part the kernel takes no reserved index, so padding rows are written to slot 0, although the "
        "function says that writes to it are skipped",
        f"{_SGLANG}kernels/ops/kvcache/mla_buffer.py, set_mla_kv_buffer_kernel_norope",
        "one row whose slot is 0, no rope",
    ),
    Gap(
        "sglang_triton",
        "set_mla_kv_buffer",
        "empty",
        "RuntimeError",
        "where Triton is not used the rows are flattened to (n, -1), which torch refuses for no rows: an empty "
        "batch raises instead of storing nothing",
        f"{_SGLANG}kernels/ops/kvcache/mla_buffer.py, set_mla_kv_buffer_naive",
        "no rows",
        devices=("cpu",),
    ),
    Gap(
        "sglang_triton",
        "reshape_and_cache_flash",
        "swa_padding",
        "untouched",
        "with a second mapping (sliding window) a padding token's slot -1 is looked up before it is tested, so the "
        "kernel reads in front of the mapping and stores the padding row in whatever slot it finds there",
        f"{_SGLANG}kernels/ops/kvcache/cache_ops.py, reshape_and_cache_flash",
        "one token whose slot is -1, with a second mapping",
    ),
    Gap(
        "sglang_triton",
        "fp4_mx_block16_quantize",
        "ties",
        "reference",
        "values halfway between two E2M1 values are rounded away from zero; OCP MX and the hardware round to even",
        _KV4,
        "a block whose largest value is 6 that holds 0.25: code 1 (0.5) instead of code 0",
    ),
    Gap(
        "sglang_triton",
        "fp4_mx_block16_quantize",
        "negative_zero",
        "reference",
        "the sign is taken from `x < 0`, so -0.0 becomes +0.0, while a small negative value keeps its sign",
        _KV4,
        "a block that holds -0.0",
    ),
    Gap(
        "sglang_triton",
        "fp4_mx_block16_quantize",
        "above_six",
        "reference",
        "the exponent of the scale is rounded in the dtype of the input before it is rounded up, so a largest value "
        "just above 6 times a power of two gets the scale below it and saturates",
        _KV4,
        "bfloat16, a block of 16.0 with one 96.5: scale 16 instead of 32",
    ),
    Gap(
        "sglang_jit",
        "can_use_hicache_jit_kernel",
        "widths",
        "AssertionError",
        "the question whether a kernel can be used raises on a machine without a GPU, instead of answering no",
        f"{_SGLANG}kernels/ops/kvcache/hicache.py, use_hicache_tma_kernel",
        "element_size=128",
        devices=("cpu",),
    ),
)


def find(provider: str, cell: Cell, device_type: str) -> Gap | None:
    """The gap that this cell of a provider is known to have on this device."""
    for gap in GAPS:
        if (gap.provider, gap.kernel, gap.layout) == (
            provider,
            cell.kernel,
            cell.layout,
        ) and device_type in gap.devices:
            return gap
    return None


def judge(gap: Gap, error: BaseException | None) -> str | None:
    """Say what is wrong about the outcome of a cell that has a gap; ``None`` where it failed in the known way.

    :param error: what the cell ended in, if it failed.
    """
    if error is None:
        return (
            f"known gap closed: {gap.kernel} of {gap.provider} no longer fails with layout {gap.layout}. "
            "Remove its row from pytest_sglhw/conformance/known_gaps.py and docs/findings.md. "
            f"The row said: {gap.reason}."
        )
    seen = getattr(error, "law", type(error).__name__)
    return None if seen == gap.breaks else f"known gap {gap.breaks!r} expected, but {seen!r} broke"
