"""Copy rows of bytes between two places in CPU memory, given by raw addresses.

The one place that turns addresses into tensors. Everything above it is index arithmetic.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor

#: The widest element that alignment and width allow moves a row fastest. Nothing is computed with these types: torch's
#: gather and scatter move whole elements, NaN patterns included.
_ELEMENTS = {16: torch.complex128, 8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}

#: Gathered rows wait here before they are scattered. Small enough to stay in a core's second-level cache.
_STAGING_BYTES = 256 * 1024

#: "The memory from this address on". One type for all lengths: ctypes takes 20 us to make a new array type.
_Memory = ctypes.c_char * (1 << 46)


class RowSet(NamedTuple):
    """Rows of a buffer: row ``r`` starts ``r * stride`` bytes after the buffer's first byte."""

    rows: Tensor
    stride: int


class RowCopy:
    """Copy the rows of one row set to those of another, for any number of pairs of buffers.

    Row ``i`` of the source goes to row ``i`` of the destination. Where a destination occurs twice the last one stays.
    Where the two buffers overlap, all rows are read before any is written.
    """

    def __init__(self, src: RowSet, dst: RowSet, width: int) -> None:
        """Prepare to copy ``width`` bytes of each row; both sets have the same number of rows, at least one."""
        self._src, self._dst, self._width = src, dst, width
        self._src_count, self._dst_count = int(src.rows.max()) + 1, int(dst.rows.max()) + 1
        chunk = max(1, _STAGING_BYTES // width)
        stops = tuple(range(chunk, src.rows.numel(), chunk))
        self._chunks = list(zip(src.rows.tensor_split(stops), dst.rows.tensor_split(stops), strict=True))

    def __call__(self, src_address: int, dst_address: int) -> None:
        """Copy between the buffers that start at these addresses."""
        element = _widest_element(src_address, self._src.stride, dst_address, self._dst.stride, self._width)
        src = _view(src_address, self._src_count, self._src.stride, self._width, element)
        dst = _view(dst_address, self._dst_count, self._dst.stride, self._width, element)
        overlap = src_address < dst_address + extent(dst) and dst_address < src_address + extent(src)
        for src_rows, dst_rows in [(self._src.rows, self._dst.rows)] if overlap else self._chunks:
            dst.index_copy_(0, dst_rows, src.index_select(0, src_rows))


def _widest_element(*sizes: int) -> int:
    """Return the bytes of the widest element that divides all of ``sizes``."""
    return next(size for size in _ELEMENTS if not any(value % size for value in sizes))


def _view(address: int, count: int, stride: int, width: int, element: int) -> Tensor:
    """Return ``count`` rows of ``width`` bytes, ``stride`` bytes apart, as elements of ``element`` bytes."""
    length = ((count - 1) * stride + width) // element
    memory = torch.frombuffer(_Memory.from_address(address), dtype=_ELEMENTS[element], count=length)
    return memory.as_strided((count, width // element), (stride // element, 1))


def extent(tensor: Tensor) -> int:
    """Return the bytes from the tensor's first element to the end of its last."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((last + 1) * tensor.element_size())
