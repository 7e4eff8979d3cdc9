"""The three ops that upstream runs as copies between tensors, for CPU tensors: strides and dtypes are honoured.

Source: as for ``kernels``. All raise ``RuntimeError`` for what upstream refuses and ``IndexError`` for a slot or layer
out of range; docs/kernels.md has the texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_sglhw.kvcacheio.checks import check_paging, require, require_cpu
from pytest_sglhw.kvcacheio.rows import RowCopy, RowSet

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
    pairs = list(zip(src_layers, dst_layers, strict=True))
    _copy_tokens(pairs, Slots("Source", (src_slots,)), Slots("Destination", (dst_slots,)), _runs(src_slots, dst_slots))


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
    _copy_tokens(pairs, pages, starts, range(page_size, src_slots.numel(), page_size))


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
    _copy_tokens(pairs, starts, pages, range(page_size, src_slots.numel(), page_size))


class Slots(NamedTuple):
    """Tokens of one side: an index into the first dimension of its tensors, or one into the first two (page, token)."""

    side: str
    positions: tuple[Tensor, ...]

    def check(self, tensor: Tensor) -> None:
        """Refuse slots that the tensor does not have, where ``at::slice`` would clamp, wrap or broadcast."""
        for positions, size in zip(self.positions, tensor.shape[: len(self.positions)], strict=True):
            low, high = int(positions.min()), int(positions.max())
            if low < 0 or high >= size:
                wrong = low if low < 0 else high
                raise IndexError(f"{self.side} index {wrong} is out of range for a dimension of size {size}")

    def split(self, stops: Sequence[int]) -> list[Slots]:
        """Return consecutive blocks of the tokens, a new one from each stop on."""
        blocks = zip(*(positions.tensor_split(tuple(stops)) for positions in self.positions), strict=True)
        return [Slots(self.side, block) for block in blocks]

    def rows(self, tensor: Tensor) -> RowSet | None:
        """Return the tokens as rows of bytes, or None where the tensor's strides don't allow it."""
        depth = len(self.positions)
        pitch = tensor.stride(depth - 1)
        token = tensor[(0,) * depth]
        if not token.is_contiguous() or pitch < token.numel() or tensor.stride(0) % pitch:
            return None
        rows = self.positions[0] if depth == 1 else self.positions[0] * (tensor.stride(0) // pitch) + self.positions[1]
        return RowSet(rows, pitch * tensor.element_size())


def _starts(side: str, slots: Tensor, page_size: int) -> Slots:
    """Return the tokens of pages that start at the first slot of each ``page_size``."""
    return Slots(side, ((slots[::page_size, None] + torch.arange(page_size)).flatten(),))


def _pages(side: str, slots: Tensor, page_size: int) -> Slots:
    """Return the tokens of the pages in which the first slot of each ``page_size`` lies."""
    page = slots[::page_size].div(page_size, rounding_mode="floor").repeat_interleave(page_size)
    return Slots(side, (page, torch.arange(page_size).repeat(slots.numel() // page_size)))


def _paired_layers(
    pools_name: str, pools: list[Tensor], layers_name: str, layers: list[Tensor], first: int
) -> list[tuple[Tensor, Tensor]]:
    """Pair each layer's part ``[pages, P, ...]`` of the pools with the layer's own tensor."""
    require(len(pools) in (1, 2), f"{pools_name} must be [kv] or [k, v], got {len(pools)} tensors")
    require(
        len(layers) % len(pools) == 0, f"{layers_name} must have as many layers of K as of V, got {len(layers)} tensors"
    )
    count = len(layers) // len(pools)
    held = min(pool.shape[1] for pool in pools)
    if not 0 <= first <= held - count:
        raise IndexError(f"layers {first} to {first + count - 1} are out of range: {pools_name} holds {held} layers")
    return [(pools[j // count].select(1, first + j % count), layer) for j, layer in enumerate(layers)]


def _runs(src_slots: Tensor, dst_slots: Tensor) -> list[int]:
    """Return where runs in which both sides step by one end and the next begins."""
    breaks = (src_slots.diff() != 1) | (dst_slots.diff() != 1)
    stops: list[int] = (breaks.nonzero().flatten() + 1).tolist()
    return stops


def _copy_tokens(pairs: list[tuple[Tensor, Tensor]], src: Slots, dst: Slots, stops: Sequence[int]) -> None:
    """Copy tokens for each pair of tensors; where tensors share memory, block after block as upstream does."""
    if src.positions[0].numel() == 0 or not pairs:
        return
    for pair in pairs:
        for name, tensor, slots in zip(("Source", "Destination"), pair, (src, dst), strict=True):
            require_cpu(tensor, f"{name} layer")
            slots.check(tensor)
        _check_token_shapes(pair[0], pair[1], len(src.positions), len(dst.positions))
    in_order = _share_memory(pairs)
    steps = zip(src.split(stops), dst.split(stops), strict=True) if in_order else [(src, dst)]
    for src_step, dst_step in steps:
        for src_tensor, dst_tensor in pairs:
            _copy(src_tensor, dst_tensor, src_step, dst_step)


def _check_token_shapes(src: Tensor, dst: Tensor, src_depth: int, dst_depth: int) -> None:
    src_token, dst_token = src.shape[src_depth:], dst.shape[dst_depth:]
    fits = len(src_token) == len(dst_token) and all(s in (1, d) for s, d in zip(src_token, dst_token, strict=True))
    require(
        fits, f"a source token of shape {list(src_token)} does not fit a destination token of shape {list(dst_token)}"
    )


def _copy(src: Tensor, dst: Tensor, src_slots: Slots, dst_slots: Slots) -> None:
    src_rows, dst_rows = src_slots.rows(src), dst_slots.rows(dst)
    token, dst_token = src.shape[len(src_slots.positions) :], dst.shape[len(dst_slots.positions) :]
    if src_rows and dst_rows and src.dtype == dst.dtype and token == dst_token:
        width = token.numel() * src.element_size()
        if width:
            RowCopy(src_rows, dst_rows, width)(src.data_ptr(), dst.data_ptr())
        return
    last = _last_of_each(dst_slots)
    tokens = src[tuple(index[last] for index in src_slots.positions)]
    dst[tuple(index[last] for index in dst_slots.positions)] = tokens.to(dst.dtype)


def _last_of_each(slots: Slots) -> Tensor:
    """Return where each distinct slot occurs last: a tensor assignment leaves the winner of duplicates open."""
    keys = slots.positions[0]
    for positions in slots.positions[1:]:
        keys = keys * (positions.max() + 1) + positions
    order = keys.argsort(stable=True)
    changes = keys[order].diff() != 0
    return order[torch.cat([changes, torch.ones(1, dtype=torch.bool)])]


def _share_memory(pairs: list[tuple[Tensor, Tensor]]) -> bool:
    """Say whether a destination overlaps a source or another destination."""
    spans = torch.tensor([_span(tensor) for pair in zip(*pairs, strict=True) for tensor in pair])
    start, stop = spans[:, 0], spans[:, 1]
    dst = slice(len(pairs), None)
    overlaps = (start[:, None] < stop[None, dst]) & (start[None, dst] < stop[:, None])
    return int(overlaps.sum()) > len(pairs)  # each destination overlaps itself


def _span(tensor: Tensor) -> tuple[int, int]:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
