"""The truth: every layout seen as one logical view ``[layer, token, head, byte]``, and the transfer as one assignment.

It works on images (flat uint8 copies of whole allocations) and shares nothing with the kernels under test: no
addresses, no row sizes, no loops over layers or tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_sglhw.conformance.layouts import is_paged, strides
from pytest_sglhw.conformance.tensors import long_tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_sglhw.conformance.layouts import Extents


class LogicalView:
    """A flat image of a pool, read and written by ``[layers, tokens]``.

    :param image: flat uint8.
    :param start: the image's byte at which the pool begins.
    :param rank: where each layer really stands, for pools whose layers are not stored in order.
    :param heads: heads that belong to a row, where the pool stores more.
    """

    def __init__(
        self, image: torch.Tensor, start: int, layout: str, extents: Extents, rank: Sequence[int], heads: int
    ) -> None:
        step = strides(layout, extents)
        self._slots = extents.page_size if is_paged(layout) else 1
        page = step["page"] if is_paged(layout) else step["token"]
        self._rank = rank
        first = image.storage_offset() + start
        steps = (step["layer"], page, step.get("slot", page), step["head"])
        unit = _widest_word(extents.head_bytes, first, *steps)
        self._view = _words_of(image, unit).as_strided(
            (extents.layers, extents.tokens // self._slots, self._slots, heads, extents.head_bytes // unit),
            (*(each // unit for each in steps), 1),
            first // unit,
        )

    def _index(self, layers: Sequence[int], tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ranks = long_tensor(self._rank[layer] for layer in layers)[:, None]
        if self._slots == 1:
            return ranks, tokens, torch.zeros_like(tokens)
        pages = torch.div(tokens, self._slots, rounding_mode="floor")
        return ranks, pages, tokens - pages * self._slots

    def read(self, layers: Sequence[int], tokens: torch.Tensor) -> torch.Tensor:
        """The rows ``[layer, token, head, byte]`` of these layers and tokens."""
        rows = self._view[self._index(layers, tokens)]
        if not rows.numel():
            rows = rows.new_empty(rows.shape)  # indexing gives strides here that no view of bytes can have
        return rows.view(torch.uint8)

    def write(self, layers: Sequence[int], tokens: torch.Tensor, rows: torch.Tensor) -> None:
        """Assign rows ``[layer, token, head, byte]`` to these layers and tokens."""
        self._view[self._index(layers, tokens)] = rows.view(self._view.dtype)


#: Whole words are moved several times as fast as bytes. Nothing is computed with them.
_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


def _widest_word(*sizes: int) -> int:
    return next(word for word in _WORDS if not any(size % word for size in sizes))


def _words_of(image: torch.Tensor, word: int) -> torch.Tensor:
    """The storage of an image from its first byte on, in words."""
    size = image.untyped_storage().nbytes() // word * word
    return image.as_strided((size,), (1,), 0).view(_WORDS[word])


def transfer(
    source: LogicalView, destination: LogicalView, layers: Sequence[int], reads: torch.Tensor, writes: torch.Tensor
) -> None:
    """Do what every kernel of the matrix must do: one assignment between two logical views."""
    destination.write(layers, writes, source.read(layers, reads))
