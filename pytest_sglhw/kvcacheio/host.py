"""The ops that upstream has for host memory.

Source: ``sgl_kernel/kvcacheio.py`` of the wheel ``sglang-kernel`` 0.4.10, ``sgl-kernel/csrc/cpu/kvcache.cpp``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_sglhw.kvcacheio.checks import highest_slot, require, require_cpu, scalar_type
from pytest_sglhw.kvcacheio.rows import RowSet, copy_rows

if TYPE_CHECKING:
    from torch import Tensor


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Copy rows within each of several buffers: all rows are read, then all are written, so they may overlap.

    Args:
        data_ptrs: ``[n]`` uint64, address of each buffer.
        strides: ``[n]`` int64, bytes of a row of each buffer: the distance of two rows and what is copied.
        tgt_loc: int64 or int32, rows to write; of a row named twice the last one stays.
        src_loc: same dtype and length, rows to read. Nothing tells how long a buffer is: see that the rows exist.

    Raises:
        RuntimeError: a tensor is not on the CPU or not contiguous, or dtypes or counts do not match.
        IndexError: a row is negative.
    """
    for name, tensor in {"data_ptrs": data_ptrs, "strides": strides, "tgt_loc": tgt_loc, "src_loc": src_loc}.items():
        require_cpu(tensor, name)
        require(tensor.is_contiguous(), f"{name} must be contiguous")
    _check_equal("data_ptrs.scalar_type(), at::kUInt64", scalar_type(data_ptrs.dtype), "UInt64")
    _check_equal("strides.scalar_type(), at::kLong", scalar_type(strides.dtype), "Long")
    _check_equal("tgt_loc.scalar_type(), src_loc.scalar_type()", scalar_type(tgt_loc.dtype), scalar_type(src_loc.dtype))
    _check_equal("strides.numel(), num_bufs", strides.numel(), data_ptrs.numel())
    _check_equal("src_loc.numel(), num_locs", src_loc.numel(), tgt_loc.numel())
    if data_ptrs.numel() == 0 or tgt_loc.numel() == 0:
        return
    if tgt_loc.dtype not in (torch.int64, torch.int32):
        raise NotImplementedError(f"\"copy_all_layer_kv_cache_cpu\" not implemented for '{scalar_type(tgt_loc.dtype)}'")
    _copy_rows(
        data_ptrs.flatten().tolist(), strides.flatten().tolist(), tgt_loc.flatten().long(), src_loc.flatten().long()
    )


def get_device_accessible_ptr(tensor: Tensor, device_index: int) -> int:
    """Return the address that the kernels of this package use for a tensor: that of its first element.

    Args:
        tensor: a CPU tensor.
        device_index: upstream's target device, 0 or more; no effect.

    Raises:
        RuntimeError: the index is negative, or the tensor is not on the CPU.
    """
    require(device_index >= 0, "Target device index must be non-negative")
    require(tensor.device.type == "cpu", "Only CPU and target-device tensors are supported")
    return int(tensor.data_ptr())


def transfer_embedding_ranges_direct(
    src: Tensor, dst: Tensor, src_starts: list[int], dst_starts: list[int], lengths: list[int]
) -> None:
    """Copy ranges of rows between two embedding tensors; all ranges are checked before the first is copied.

    Args:
        src: ``[rows, dim]``, contiguous. Upstream wants this or ``dst`` on CUDA; here both are on the CPU.
        dst: ``[rows, dim]`` of the same dim and dtype, contiguous.
        src_starts: first row to read of each range.
        dst_starts: first row to write of each range.
        lengths: rows of each range; the starts of a range of none are not looked at.

    Raises:
        RuntimeError: the tensors don't match, or a range does not lie within them.
    """
    require(src.dim() == 2, "Source embedding tensor must be 2D")
    require(dst.dim() == 2, "Destination embedding tensor must be 2D")
    require(src.dtype == dst.dtype, "Source and destination dtypes must match")
    require(src.size(1) == dst.size(1), "Source and destination embedding dims must match")
    require(src.is_contiguous() and dst.is_contiguous(), "Embedding tensors must be contiguous")
    require(src.device.type == dst.device.type == "cpu", "Both embedding tensors must be on the CPU")
    require(len(src_starts) == len(dst_starts), "src_starts and dst_starts must have the same length")
    require(len(src_starts) == len(lengths), "src_starts and lengths must have the same length")
    ranges = list(zip(src_starts, dst_starts, lengths, strict=True))
    for src_start, dst_start, length in ranges:
        _check_range(src_start, dst_start, length, src.size(0), dst.size(0))
    for src_start, dst_start, length in ranges:
        if length:
            dst[dst_start : dst_start + length].copy_(src[src_start : src_start + length])


def _check_range(src_start: int, dst_start: int, length: int, src_rows: int, dst_rows: int) -> None:
    require(length >= 0, "Range length must be non-negative")
    if length:
        require(src_start >= 0, "Source range start must be non-negative")
        require(dst_start >= 0, "Destination range start must be non-negative")
        require(src_start + length <= src_rows, "Source range is out of bounds")
        require(dst_start + length <= dst_rows, "Destination range is out of bounds")


def _copy_rows(addresses: list[int], strides: list[int], tgt_loc: Tensor, src_loc: Tensor) -> None:
    require(0 not in addresses, "data_ptrs holds a null pointer")
    require(min(strides) >= 0, f"strides must not be negative, got {min(strides)}")
    last_tgt, last_src = highest_slot(tgt_loc, "Destination"), highest_slot(src_loc, "Source")
    for address, stride in zip(addresses, strides, strict=True):
        if stride:
            src, tgt = RowSet(src_loc, last_src, stride), RowSet(tgt_loc, last_tgt, stride)
            copy_rows(src, tgt, stride, [(address, address)])


def _check_equal(expression: str, left: object, right: object) -> None:
    require(left == right, f"CHECK_EQ({expression}) failed. {left} vs {right}")
