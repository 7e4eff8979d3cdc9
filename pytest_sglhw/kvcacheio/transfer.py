"""The one transfer that all ten kernel ops are: rows of K, then of V, layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import torch

from pytest_sglhw.kvcacheio.checks import check_reach, highest_slot, require, require_cpu, require_scalar_type
from pytest_sglhw.kvcacheio.rows import RowSet, copy_rows, extent

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_sglhw.kvcacheio.layouts import Layout


class Buffer(Protocol):
    """K or V on one side."""

    def addresses(self, layout: Layout) -> list[int]:
        """Return the address of row 0 of each layer that takes part."""

    def check(self, layout: Layout, slot: int, width: int, side: str) -> None:
        """Refuse a slot that this buffer does not hold, as far as it knows its own size."""


BufferKind: TypeAlias = Callable[[str, "Tensor"], Buffer]


class Pool(NamedTuple):
    """A buffer given as a tensor: its size is known."""

    name: str
    tensor: Tensor

    def addresses(self, layout: Layout) -> list[int]:
        """Return the tensor's address plus the offset of each layer."""
        return [self.tensor.data_ptr() + offset for offset in layout.offsets]

    def check(self, layout: Layout, slot: int, width: int, side: str) -> None:
        """Refuse a slot whose last byte lies beyond the tensor's last element."""
        end = layout.last_row(slot) * layout.stride + max(layout.offsets) + width
        check_reach(slot, end, extent(self.tensor), side, self.name)


class Table(NamedTuple):
    """A buffer given as a uint64 tensor of the addresses of its layers: what lies behind them can't be checked."""

    name: str
    tensor: Tensor
    num_layers: int

    def addresses(self, layout: Layout) -> list[int]:
        """Return the first ``num_layers`` addresses of the table."""
        addresses: list[int] = self.tensor.flatten()[: self.num_layers].tolist()
        require(0 not in addresses, f"{self.name} holds a null pointer")
        return [address + layout.offsets[0] for address in addresses]

    def check(self, layout: Layout, slot: int, width: int, side: str) -> None:
        """Accept any slot."""


class Side(NamedTuple):
    """One end of a transfer: K and V, or a single buffer, and how both are laid out."""

    name: str
    layout: Layout
    buffers: tuple[Buffer, ...]

    def addresses(self) -> list[int]:
        """Return the address of row 0 of each layer of each buffer."""
        return [address for buffer in self.buffers for address in buffer.addresses(self.layout)]


def source(layout: Layout, kind: BufferKind, **buffers: Tensor) -> Side:
    """Take the tensors of the end that is read, by the names of their arguments."""
    return Side("Source", layout, tuple(kind(name, tensor) for name, tensor in buffers.items()))


def destination(layout: Layout, kind: BufferKind, **buffers: Tensor) -> Side:
    """Take the tensors of the end that is written, by the names of their arguments."""
    return Side("Destination", layout, tuple(kind(name, tensor) for name, tensor in buffers.items()))


def transfer(src: Side, dst: Side, slots: tuple[Tensor, Tensor], item_size: int, heads: int = 1) -> None:
    """Copy the tokens at ``slots`` (of source and destination, in step) for every layer of every buffer.

    Everything is checked before the first byte is written.
    """
    if slots[0].numel() == 0 or not dst.layout.offsets:
        return
    width = item_size // heads
    src_rows, dst_rows = (_checked_rows(side, of, width) for side, of in zip((src, dst), slots, strict=True))
    copy_rows(src_rows, dst_rows, width, list(zip(src.addresses(), dst.addresses(), strict=True)))


def _checked_rows(side: Side, slots: Tensor, width: int) -> RowSet:
    highest = highest_slot(slots, side.name)
    for buffer in side.buffers:
        buffer.check(side.layout, highest, width, side.name)
    return RowSet(side.layout.rows(slots), side.layout.last_row(highest), side.layout.stride)


def packed_pool(name: str, tensor: Tensor) -> Pool:
    """Take a layer's tensor, whose tokens are addressed every ``item_size`` bytes."""
    require_cpu(tensor, name)
    require(tensor.is_contiguous(), f"{name} must be contiguous: its tokens are addressed every item_size bytes")
    return Pool(name, tensor)


def whole_pool(name: str, tensor: Tensor) -> Pool:
    """Take the tensor of all layers, whose strides the caller gives in bytes."""
    require_cpu(tensor, name)
    return Pool(name, tensor)


def table(num_layers: int) -> BufferKind:
    """Take tables of layer addresses; a longer one is used as far as needed."""

    def layer_table(name: str, tensor: Tensor) -> Table:
        require_cpu(tensor, name)
        require_scalar_type(tensor, torch.uint64)
        entries = tensor.numel()
        require(entries >= num_layers, f"{name} has {entries} layer addresses, fewer than num_layers {num_layers}")
        return Table(name, tensor, num_layers)

    return layer_table
