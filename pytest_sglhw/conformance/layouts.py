"""Memory layouts as index arithmetic: the order of axes, and nothing else.

A layout is the order in which the axes of a pool are stored, outermost first. Everything about it follows from that:
the byte offset of (layer, token, head, byte), the tensor's shape, the strides. ``token`` stands for an unpaged token
axis; paged layouts have ``page`` and ``slot`` (the token within its page) instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

#: The full name of each layout -> the axes of one of its pools (K or V), outermost first.
AXES: Mapping[str, tuple[str, ...]] = {
    "layer_first": ("layer", "token", "head", "byte"),
    "page_first": ("token", "layer", "head", "byte"),
    "page_first_direct": ("page", "layer", "slot", "head", "byte"),
    "page_head": ("page", "head", "slot", "layer", "byte"),
}


class Extents(NamedTuple):
    """How long the axes of a pool are. A paged pool holds a whole number of pages."""

    layers: int
    tokens: int
    heads: int
    head_bytes: int
    page_size: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one token in one layer: what the kernels call ``item_size``."""
        return self.heads * self.head_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the whole pool."""
        return self.layers * self.tokens * self.row_bytes

    def of(self, axis: str) -> int:
        """The length of an axis by its name."""
        if axis == "page":
            return self.tokens // self.page_size
        return {"layer": self.layers, "token": self.tokens, "slot": self.page_size, "head": self.heads,
                "byte": self.head_bytes}[axis]  # fmt: skip


def is_paged(layout: str) -> bool:
    """Whether a layout stores whole pages, so that its pools hold a multiple of the page size."""
    return "page" in AXES[layout]


@lru_cache(maxsize=64)
def strides(layout: str, extents: Extents) -> Mapping[str, int]:
    """The byte stride of each axis of the layout."""
    result: dict[str, int] = {}
    step = 1
    for axis in reversed(AXES[layout]):
        result[axis] = step
        step *= extents.of(axis)
    return result


def shape(layout: str, extents: Extents, itemsize: int) -> tuple[int, ...]:
    """The shape of the pool as a tensor of elements of ``itemsize`` bytes."""
    *outer, _ = AXES[layout]
    return (*(extents.of(axis) for axis in outer), extents.head_bytes // itemsize)


def offset(layout: str, extents: Extents, layer: int, token: int, head: int = 0, byte: int = 0) -> int:
    """The byte offset of (layer, token, head, byte) from the pool's first byte."""
    at = {"layer": layer, "token": token, "head": head, "byte": byte}
    at["page"], at["slot"] = divmod(token, extents.page_size)
    return sum(step * at[axis] for axis, step in strides(layout, extents).items())


def position(layout: str, extents: Extents, byte_offset: int) -> dict[str, int]:
    """The axes' values at a byte offset; the inverse of :func:`offset`, with ``page``, ``slot`` and ``token`` in it."""
    at = {}
    for axis, step in strides(layout, extents).items():
        at[axis] = byte_offset // step % extents.of(axis)
    if "token" in at:
        at["page"], at["slot"] = divmod(at["token"], extents.page_size)
    else:
        at["token"] = at["page"] * extents.page_size + at["slot"]
    return at
