"""The truth: every layout seen as one logical view ``[layer, token, head, byte]``, and the transfer as one assignment.

It works on images (flat uint8 copies of whole allocations) and shares nothing with the kernels under test: no
addresses, no row sizes, no loops over layers or tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_sglhw.conformance.layouts import is_paged, strides

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
        self._rank = torch.tensor(rank)
        self._view = image.as_strided(
            (extents.layers, extents.tokens // self._slots, self._slots, heads, extents.head_bytes),
            (step["layer"], page, step.get("slot", page), step["head"], 1),
            image.storage_offset() + start,
        )

    def _index(self, layers: Sequence[int], tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pages = torch.div(tokens, self._slots, rounding_mode="floor")
        return self._rank[list(layers)][:, None], pages, tokens - pages * self._slots

    def read(self, layers: Sequence[int], tokens: torch.Tensor) -> torch.Tensor:
        """The rows ``[layer, token, head, byte]`` of these layers and tokens."""
        return self._view[self._index(layers, tokens)]

    def write(self, layers: Sequence[int], tokens: torch.Tensor, rows: torch.Tensor) -> None:
        """Assign rows ``[layer, token, head, byte]`` to these layers and tokens."""
        self._view[self._index(layers, tokens)] = rows


def transfer(
    source: LogicalView, destination: LogicalView, layers: Sequence[int], reads: torch.Tensor, writes: torch.Tensor
) -> None:
    """Do what every kernel of the matrix must do: one assignment between two logical views."""
    destination.write(layers, writes, source.read(layers, reads))
