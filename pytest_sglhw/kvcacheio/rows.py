"""Copy rows of bytes between two places in CPU memory, given by raw addresses.

The one place that turns addresses into tensors. Everything above it is index arithmetic.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor

#: The widest element that alignment and width allow moves a row fastest. Nothing is computed with these types: torch's
#: gather and scatter move whole elements, NaN patterns included.
_ELEMENTS = {16: torch.complex128, 8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}

#: Gathered rows wait here before they are scattered. Small enough to stay in a core's second-level cache.
_STAGING_BYTES = 256 * 1024

#: Runs of rows that follow each other on both sides are moved whole if they are at least so long on average.
_RUN_ROWS, _RUN_BYTES = 4, 4096

#: "The memory from this address on". One type for all lengths: ctypes takes 20 us to make a new array type.
_Memory = ctypes.c_char * (1 << 46)

_thread = threading.local()


class RowSet(NamedTuple):
    """Rows of a buffer: row ``r`` starts ``r * stride`` bytes after its first byte; none is higher than ``last``."""

    rows: Tensor
    last: int
    stride: int

    def reach(self, width: int) -> int:
        """Return how many bytes of the buffer rows of ``width`` bytes need."""
        return self.last * self.stride + width

    def view(self, address: int, width: int, element: int) -> Tensor:
        """Return the buffer from its first row to its last as ``[rows, width]``, in elements of ``element`` bytes."""
        length = self.reach(width) // element
        memory = torch.frombuffer(_Memory.from_address(address), dtype=_ELEMENTS[element], count=length)
        return memory.as_strided((self.last + 1, width // element), (self.stride // element, 1))


def copy_rows(src: RowSet, dst: RowSet, width: int, buffers: Sequence[tuple[int, int]]) -> None:
    """Copy ``width`` bytes of row ``i`` of ``src`` to row ``i`` of ``dst``, for each pair of buffers (their addresses).

    There is at least one row. Where a destination row occurs twice the last one stays. Where the two buffers of a pair
    overlap, all rows are read before any is written.
    """
    apart = []
    for pair in buffers:
        if pair[0] < pair[1] + dst.reach(width) and pair[1] < pair[0] + src.reach(width):
            _copy_scattered(src, dst, width, [pair], src.rows.numel())
        else:
            apart.append(pair)
    runs = _long_runs(src.rows, dst.rows, width) if src.stride == dst.stride == width else []
    if runs:
        _copy_runs(runs, apart)
    elif apart:
        _copy_scattered(src, dst, width, apart, max(1, _STAGING_BYTES // width))


def _copy_runs(runs: list[tuple[int, int, int]], buffers: Sequence[tuple[int, int]]) -> None:
    for src_address, dst_address in buffers:
        for src_offset, dst_offset, size in runs:
            ctypes.memmove(dst_address + dst_offset, src_address + src_offset, size)


def _copy_scattered(src: RowSet, dst: RowSet, width: int, buffers: Sequence[tuple[int, int]], chunk: int) -> None:
    """Gather and scatter ``chunk`` rows of all buffers, then the next: layers of a token may lie side by side."""
    if torch.get_num_threads() > 1:  # torch scatters in parallel: of a row that is written twice any one would stay
        src, dst = _without_overwritten(src, dst)
    element = _widest_element(width, src.stride, dst.stride, *itertools.chain(*buffers))
    views = [(src.view(pair[0], width, element), dst.view(pair[1], width, element)) for pair in buffers]
    staging = _staging(min(chunk, src.rows.numel()) * width).view(_ELEMENTS[element]).view(-1, width // element)
    for start in range(0, src.rows.numel(), chunk):
        src_rows, dst_rows = src.rows[start : start + chunk], dst.rows[start : start + chunk]
        gathered = staging[: src_rows.numel()]
        for src_view, dst_view in views:
            torch.index_select(src_view, 0, src_rows, out=gathered)
            dst_view.index_copy_(0, dst_rows, gathered)


def _without_overwritten(src: RowSet, dst: RowSet) -> tuple[RowSet, RowSet]:
    """Leave out the rows of both sides that a later row overwrites."""
    order = dst.rows.argsort(stable=True)
    is_last = torch.ones_like(order, dtype=torch.bool)
    is_last[:-1] = dst.rows[order].diff() != 0
    if is_last.all():
        return src, dst
    kept = order[is_last].sort().values  # in the order in which they were given
    return src._replace(rows=src.rows[kept]), dst._replace(rows=dst.rows[kept])


def _widest_element(*sizes: int) -> int:
    """Return the bytes of the widest element that divides all of ``sizes``."""
    return next(size for size in _ELEMENTS if not any(value % size for value in sizes))


def _staging(size: int) -> Tensor:
    """Return ``size`` bytes to gather rows in; small ones are reused: fresh memory costs a page fault per 4 KiB."""
    if size > _STAGING_BYTES:
        return torch.empty(size, dtype=torch.uint8, device="cpu")
    if not hasattr(_thread, "staging"):
        _thread.staging = torch.empty(_STAGING_BYTES, dtype=torch.uint8, device="cpu")
    return _thread.staging[:size]


def run_starts(src_rows: Tensor, dst_rows: Tensor) -> Tensor:
    """Return where runs begin in which source and destination both go row by row; the first, at 0, is left out."""
    breaks = (src_rows.diff() != 1) | (dst_rows.diff() != 1)
    return breaks.nonzero().flatten() + 1


def _long_runs(src_rows: Tensor, dst_rows: Tensor, width: int) -> list[tuple[int, int, int]]:
    """Return source offset, destination offset and size in bytes of each run; nothing if they are short."""
    count = src_rows.numel()
    if count < _RUN_ROWS or count * width < _RUN_BYTES:
        return []
    starts = run_starts(src_rows, dst_rows)
    mean = count / (starts.numel() + 1)
    if mean < _RUN_ROWS or mean * width < _RUN_BYTES:
        return []
    starts = torch.cat([starts.new_zeros(1), starts])
    sizes = starts.diff(append=starts.new_tensor([count]))
    return list(zip(*(of.mul(width).tolist() for of in (src_rows[starts], dst_rows[starts], sizes)), strict=True))


def extent(tensor: Tensor) -> int:
    """Return the bytes from the tensor's first element to the end of its last."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((last + 1) * tensor.element_size())
