"""Where a token's bytes lie in a buffer, as rows of equal stride.

With ``I`` the bytes of a token in one layer (``item_size``), ``LD`` those in all layers (``layout_dim``), ``P`` the
tokens of a page and ``H`` the heads, token ``t`` of layer ``l`` is found at

============  =================================  ===================================  ========================
layout        host tensor of K or V              row numbers                          bytes per row, offset
============  =================================  ===================================  ========================
layer_first   ``[T, H, D]`` for each layer       ``t``; by head ``t * H + h``         ``I``, 0; by head ``I / H``, 0
page_first    ``[T, L, H, D]``                   ``t``                                ``LD``, ``l * I``
page_head     ``[T / P, H, P, L, D]``            ``(t // P * H + h) * P + t % P``     ``LD / H``, ``l * I / H``
============  =================================  ===================================  ========================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor


class Layout(NamedTuple):
    """An arrangement in memory: bytes per row, byte offset of each layer within its row, and how slots become rows."""

    stride: int
    offsets: tuple[int, ...]
    page_size: int = 1
    heads: int = 1

    def rows(self, slots: Tensor) -> Tensor:
        """Return the row numbers of token slots, token by token, the heads of a token together."""
        if self.heads == 1:
            return slots
        heads = torch.arange(self.heads, device=slots.device)
        page, token = (slots // self.page_size)[:, None], (slots % self.page_size)[:, None]
        return ((page * self.heads + heads) * self.page_size + token).flatten()

    def last_row(self, slot: int) -> int:
        """Return the row of the slot's last head: no lower slot has a higher row."""
        return (slot // self.page_size * self.heads + self.heads - 1) * self.page_size + slot % self.page_size


def layer_first(item_size: int, heads: int = 1) -> Layout:
    """Packed rows of one layer; ``heads`` splits each in as many equal runs."""
    return Layout(item_size // heads, (0,), heads=heads)


def page_first(item_size: int, layout_dim: int, layers: Iterable[int]) -> Layout:
    """Token by token, all layers of a token together."""
    return Layout(layout_dim, tuple(layer * item_size for layer in layers))


def page_head(item_size: int, layout_dim: int, layers: Iterable[int], page_size: int, heads: int) -> Layout:
    """Page by page, in it head by head, in it token by token, all layers of a head together."""
    head_size = item_size // heads
    return Layout(layout_dim // heads, tuple(layer * head_size for layer in layers), page_size, heads)
