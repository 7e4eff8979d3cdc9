"""The three ops that upstream runs as copies between tensors, for CPU tensors: strides and dtypes are honoured.

Source: as for ``kernels``. All raise ``RuntimeError`` for what upstream refuses and ``IndexError`` for a slot or layer
out of range; docs/kernels.md has the texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_sglhw.kvcacheio.checks import check_paging, require, require_cpu
from pytest_sglhw.kvcacheio.rows import RowSet, copy_rows, extent, run_starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def transfer_kv_direct(
    src_layers: list[Tensor], dst_layers: list[Tensor], src_indices: Tensor, dst_indices: Tensor, page_size: int
) -> None:
    """Copy tokens between layers, in the order of the indices: a later token overwrites an earlier one.

    Args:
        src_layers: one tensor ``[T, ...]`` for each layer and buffer, of any strides.
        dst_layers: as many; a token's shape may be one to which the source's broadcasts, the dtype another (values are
            then converted as ``Tensor.copy_`` does).
        src_indices: int64, slots to read.
        dst_indices: int64, slots to write. They need not be whole or aligned pages.
        page_size: must divide the number of indices; no effect otherwise.
    """
    require(len(src_layers) == len(dst_layers), "Source and destination layers must have the same number of layers")
    src_slots, dst_slots = check_paging(src_indices, dst_indices, page_size)
    src, dst = Slots("Source", (src_slots,)), Slots("Destination", (dst_slots,))
    pairs = list(zip(src_layers, dst_layers, strict=True))
    _copy_tokens(pairs, src, dst, run_starts(src_slots, dst_slots).tolist(), _share_memory(src_layers, dst_layers))


def transfer_kv_per_layer_direct_pf_lf(
    src_ptrs: list[Tensor],
    dst_ptrs: list[Tensor],
    src_indices: Tensor,
    dst_indices: Tensor,
    layer_id: int,
    page_size: int,
) -> None:
    """Copy whole pages from page_first_direct pools to layers.

    Args:
        src_ptrs: pools ``[pages, L, P, ...]``: ``[kv]`` or ``[k, v]``, of any strides.
        dst_ptrs: layers ``[T, ...]``: ``[kv, ...]`` or ``[k, ..., v, ...]``; layer number ``j`` is ``layer_id + j``.
        src_indices: int64. Of each ``page_size`` indices the first counts, divided by ``page_size``: the page to read.
        dst_indices: int64. Of each ``page_size`` indices the first counts: the slot where the page's tokens start.
        layer_id: first layer to read.
        page_size: P, tokens of a page.
    """
    src_slots, dst_slots = check_paging(src_indices, dst_indices, page_size)
    pairs = _paired_layers("src_ptrs", src_ptrs, "dst_ptrs", dst_ptrs, layer_id)
    pages, starts = _pages("Source", src_slots, page_size), _starts("Destination", dst_slots, page_size)
    steps = range(page_size, src_slots.numel(), page_size)
    _copy_tokens(pairs, pages, starts, steps, _share_memory(src_ptrs, dst_ptrs))


def transfer_kv_all_layer_direct_lf_pf(
    src_ptrs: list[Tensor], dst_ptrs: list[Tensor], src_indices: Tensor, dst_indices: Tensor, page_size: int
) -> None:
    """Copy whole pages from layers to page_first_direct pools.

    Args:
        src_ptrs: layers ``[T, ...]``: ``[kv, ...]`` or ``[k, ..., v, ...]``, of any strides; layers from 0 on.
        dst_ptrs: pools ``[pages, L, P, ...]``: ``[kv]`` or ``[k, v]``.
        src_indices: int64. Of each ``page_size`` indices the first counts: the slot where the page's tokens start.
        dst_indices: int64. Of each ``page_size`` indices the first counts, divided by ``page_size``: the page to write.
        page_size: P, tokens of a page.
    """
    src_slots, dst_slots = check_paging(src_indices, dst_indices, page_size)
    pairs = [(layer, pool) for pool, layer in _paired_layers("dst_ptrs", dst_ptrs, "src_ptrs", src_ptrs, 0)]
    starts, pages = _starts("Source", src_slots, page_size), _pages("Destination", dst_slots, page_size)
    steps = range(page_size, src_slots.numel(), page_size)
    _copy_tokens(pairs, starts, pages, steps, _share_memory(src_ptrs, dst_ptrs))


class Grid(NamedTuple):
    """How positions become rows: rows per step in each dimension, the last row of the tensor, bytes per row."""

    steps: tuple[int, ...]
    last: int
    stride: int


class Slots(NamedTuple):
    """Tokens of one side: an index into the first dimension of its tensors, or one into the first two (page, token)."""

    side: str
    positions: tuple[Tensor, ...]

    def check(self, tensors: Sequence[Tensor]) -> None:
        """Refuse slots that a tensor does not have, where ``at::slice`` would clamp, wrap or broadcast."""
        depth = len(self.positions)
        for tensor in tensors:
            require_cpu(tensor, f"{self.side} layer")
            require(tensor.dim() >= depth, f"{self.side} layer of shape {list(tensor.shape)} has no tokens")
        for dimension, positions in enumerate(self.positions):
            size = min(tensor.shape[dimension] for tensor in tensors)
            low, high = int(positions.min()), int(positions.max())
            if low < 0 or high >= size:
                wrong = low if low < 0 else high
                raise IndexError(f"{self.side} index {wrong} is out of range for a dimension of size {size}")

    def split(self, stops: Sequence[int]) -> list[Slots]:
        """Return consecutive blocks of the tokens, a new one from each stop on."""
        blocks = zip(*(positions.tensor_split(tuple(stops)) for positions in self.positions), strict=True)
        return [Slots(self.side, block) for block in blocks]

    def grid(self, tensor: Tensor) -> Grid | None:
        """Return where the tensor's tokens lie as rows of bytes, or None where its strides don't allow it."""
        depth = len(self.positions)
        pitch = tensor.stride(depth - 1)
        token = tensor[(0,) * depth]
        if not token.is_contiguous() or pitch < max(token.numel(), 1) or tensor.stride(0) % pitch:
            return None
        steps = (tensor.stride(0) // pitch, 1)[-depth:]
        last = sum((size - 1) * step for size, step in zip(tensor.shape, steps, strict=False))
        return Grid(steps, last, pitch * tensor.element_size())

    def rows(self, grid: Grid) -> RowSet:
        """Return the tokens as rows of bytes."""
        rows = sum(positions * step for positions, step in zip(self.positions, grid.steps, strict=True))
        return RowSet(rows, grid.last, grid.stride)


def _starts(side: str, slots: Tensor, page_size: int) -> Slots:
    """Return the tokens of pages that start at the first slot of each ``page_size``."""
    return Slots(side, ((slots[::page_size, None] + torch.arange(page_size, device=slots.device)).flatten(),))


def _pages(side: str, slots: Tensor, page_size: int) -> Slots:
    """Return the tokens of the pages in which the first slot of each ``page_size`` lies."""
    page = slots[::page_size].div(page_size, rounding_mode="floor").repeat_interleave(page_size)
    return Slots(side, (page, torch.arange(page_size, device=slots.device).repeat(slots.numel() // page_size)))


def _paired_layers(
    pools_name: str, pools: list[Tensor], layers_name: str, layers: list[Tensor], first: int
) -> list[tuple[Tensor, Tensor]]:
    """Pair each layer's part ``[pages, P, ...]`` of the pools with the layer's own tensor."""
    require(len(pools) in (1, 2), f"{pools_name} must be [kv] or [k, v], got {len(pools)} tensors")
    require(
        len(layers) % len(pools) == 0, f"{layers_name} must have as many layers of K as of V, got {len(layers)} tensors"
    )
    for pool in pools:
        require(pool.dim() >= 3, f"{pools_name} must be [pages, layers, tokens, ...], got shape {list(pool.shape)}")
    count = len(layers) // len(pools)
    held = min(pool.shape[1] for pool in pools)
    if not 0 <= first <= held - count:
        raise IndexError(f"layers {first} to {first + count - 1} are out of range: {pools_name} holds {held} layers")
    return [(pools[j // count].select(1, first + j % count), layer) for j, layer in enumerate(layers)]


def _copy_tokens(
    pairs: list[tuple[Tensor, Tensor]], src: Slots, dst: Slots, steps: Sequence[int], shared: bool
) -> None:
    """Copy tokens for each pair of tensors: all at once, or if they share memory step by step as upstream does."""
    if src.positions[0].numel() == 0 or not pairs:
        return
    src.check([pair[0] for pair in pairs])
    dst.check([pair[1] for pair in pairs])
    for src_tensor, dst_tensor in pairs:
        _check_token_shapes(src_tensor.shape[len(src.positions) :], dst_tensor.shape[len(dst.positions) :])
    if not shared:
        _copy(pairs, src, dst)
        return
    for src_step, dst_step in zip(src.split(steps), dst.split(steps), strict=True):
        for pair in pairs:
            _copy([pair], src_step, dst_step)


def _check_token_shapes(src: Sequence[int], dst: Sequence[int]) -> None:
    fits = len(src) == len(dst) and all(size in (1, wanted) for size, wanted in zip(src, dst, strict=True))
    require(fits, f"a source token of shape {list(src)} does not fit a destination token of shape {list(dst)}")


def _copy(pairs: list[tuple[Tensor, Tensor]], src_slots: Slots, dst_slots: Slots) -> None:
    """Copy rows of bytes where dtypes, shapes and strides allow it, for all tensors alike at once."""
    alike: dict[tuple[Grid, Grid, int], list[tuple[int, int]]] = {}
    for src, dst in pairs:
        token, dst_token = src.shape[len(src_slots.positions) :], dst.shape[len(dst_slots.positions) :]
        src_grid, dst_grid = src_slots.grid(src), dst_slots.grid(dst)
        if src_grid and dst_grid and src.dtype == dst.dtype and token == dst_token:
            width = token.numel() * src.element_size()
            alike.setdefault((src_grid, dst_grid, width), []).append((src.data_ptr(), dst.data_ptr()))
        else:
            _assign(src, dst, src_slots, dst_slots)
    for (src_grid, dst_grid, width), buffers in alike.items():
        if width:
            copy_rows(src_slots.rows(src_grid), dst_slots.rows(dst_grid), width, buffers)


def _assign(src: Tensor, dst: Tensor, src_slots: Slots, dst_slots: Slots) -> None:
    """Copy as ``Tensor.copy_`` does: values are converted and broadcast, strides are followed."""
    last = _last_of_each(dst_slots)
    tokens = src[tuple(positions[last] for positions in src_slots.positions)]
    dst[tuple(positions[last] for positions in dst_slots.positions)] = tokens.to(dst.dtype)


def _last_of_each(slots: Slots) -> Tensor:
    """Return where each distinct slot occurs last: a tensor assignment leaves the winner of duplicates open."""
    keys = slots.positions[0]
    for positions in slots.positions[1:]:
        keys = keys * (positions.max() + 1) + positions
    order = keys.argsort(stable=True)
    changes = keys[order].diff() != 0
    return order[torch.cat([changes, changes.new_ones(1)])]


def _share_memory(sources: Sequence[Tensor], destinations: Sequence[Tensor]) -> bool:
    """Say whether the memory that a source spans meets that of a destination."""
    src, dst = (
        torch.tensor([_span(tensor) for tensor in side], device="cpu").reshape(-1, 2)
        for side in (sources, destinations)
    )
    return bool(((src[:, None, 0] < dst[None, :, 1]) & (dst[None, :, 0] < src[:, None, 1])).any())


def _span(tensor: Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.data_ptr() + extent(tensor)
