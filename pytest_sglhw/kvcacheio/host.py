"""The op that upstream itself has for CPU memory.

Source: ``sgl-kernel/csrc/cpu/kvcache.cpp``, as in the wheel ``sglang-kernel`` 0.4.10 for CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_sglhw.kvcacheio.checks import check_slots, require, require_cpu, scalar_type
from pytest_sglhw.kvcacheio.rows import RowCopy, RowSet

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


def _copy_rows(addresses: list[int], strides: list[int], tgt_loc: Tensor, src_loc: Tensor) -> None:
    require(0 not in addresses, "data_ptrs holds a null pointer")
    require(min(strides) >= 0, f"strides must not be negative, got {min(strides)}")
    check_slots(tgt_loc, "Destination")
    check_slots(src_loc, "Source")
    for address, stride in zip(addresses, strides, strict=True):
        if stride:
            RowCopy(RowSet(src_loc, stride), RowSet(tgt_loc, stride), stride)(address, address)


def _check_equal(expression: str, left: object, right: object) -> None:
    require(left == right, f"CHECK_EQ({expression}) failed. {left} vs {right}")
