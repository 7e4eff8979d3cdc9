"""Storing freshly computed rows in the slots of a cache.

Slot 0 is the reserved padding slot: rows that point at it come from padding of the batch, and the kernels skip them
(``reserved_skip_index`` of ``store_cache`` and ``set_mla_kv_buffer``); a negative slot of ``reshape_and_cache_flash``
is padding too. Every slot but those is met once, as the winner of two rows for one slot is not defined.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.checks import LAWS
from pytest_sglhw.conformance.families.runs import Area, Rows, RowsWorkload, Run, RunTrial
from pytest_sglhw.conformance.family import Kernel

if TYPE_CHECKING:
    from pytest_sglhw.conformance.cells import Cell

_PADDING = {"slot_0": 0, "negative": -1}
"""What a padding row's slot is, by option."""


class StoreRows(RowsWorkload):
    """Rows in order to slots; in a cell whose layout says ``slot_0`` at least one row is padding."""

    layers: Sequence[int] = (1,)
    widths: Sequence[tuple[int, int]] = ((16, 16), (24, 72), (80, 8), (512, 128))
    in_order = True

    def pairs(self, cell: Cell, count: int, option: str, rng: random.Random) -> tuple[list[tuple[int, int]], int, int]:
        """See :class:`RowsWorkload`."""
        slots = rng.sample(range(1, count + rng.randint(2, 9)), count)
        if count and (padding := _PADDING.get(option)) is not None:
            for row in rng.sample(range(count), rng.randint(1, count)):
                slots[row] = padding
        return list(enumerate(slots)), max(count, 1), count + 9

    def factors(self, cell: Cell) -> Mapping[str, Any]:
        """See :class:`RowsWorkload`."""
        if cell.layout.endswith("slot_0"):
            return {**super().factors(cell), "option": ("slot_0",), "count": self.counts[:-1]}
        return super().factors(cell)

    def stored(self, case: Rows) -> list[tuple[int, int]]:
        """The pairs that are not padding."""
        return [(row, slot) for row, slot in case.pairs if slot > 0]

    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """See :class:`RowsWorkload`."""
        areas = {}
        for kv, width in zip("KV", case.widths, strict=True):
            areas[f"{kv} rows"] = Area(case.source_rows * width)
            areas[f"{kv} cache"] = Area(case.target_rows * width, target=True, base=case.base)
        return areas

    def runs(self, cell: Cell, case: Rows) -> Iterator[Run]:
        """See :class:`RowsWorkload`."""
        for kv, width in zip("KV", case.widths, strict=True):
            for row, slot in self.stored(case):
                what = f"row {row} of {kv}, stored in slot {slot}"
                yield Run(f"{kv} cache", slot * width, f"{kv} rows", row * width, width, what)

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        dtype = trial.cell.torch_dtype()
        rows = [trial.view(f"{kv} rows", dtype, case.source_rows, *self.shape)[case.span] for kv in "KV"]
        caches = [trial.view(f"{kv} cache", dtype, case.target_rows, *self.shape) for kv in "KV"]
        return [*rows, *caches, trial.index(case.targets, case.index_dtype, 2 if case.option == "strided" else 1)]

    shape: tuple[int, ...] = (1, -1)
    """The shape of one row: one head (what pools pass) or flat (what kernels take)."""


class StoreFlat(StoreRows):
    """``store_cache``, which takes rows of ``[N, H * D]`` and strided indices."""

    shape = (-1,)
    options = ("", "strided")


class StoreLatent(StoreRows):
    """``set_mla_kv_buffer(kv_buffer, loc, nope, rope)``: one row of two parts; widths are (nope bytes, rope bytes)."""

    widths = ((16, 16), (24, 8), (512, 128), (528, 128))

    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """See :class:`RowsWorkload`."""
        parts = self._parts(cell, case)
        cache = Area(case.target_rows * sum(width for _, width in parts), target=True, base=case.base)
        return {"cache": cache, **{f"{part} rows": Area(case.source_rows * width) for part, width in parts}}

    def runs(self, cell: Cell, case: Rows) -> Iterator[Run]:
        """See :class:`RowsWorkload`."""
        parts = self._parts(cell, case)
        stride, start = sum(width for _, width in parts), 0
        for part, width in parts:
            for row, slot in self.stored(case):
                what = f"the {part} part of row {row}, stored in slot {slot}"
                yield Run("cache", slot * stride + start, f"{part} rows", row * width, width, what)
            start += width

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        dtype = trial.cell.torch_dtype()
        rows = [trial.view(f"{part} rows", dtype, case.source_rows, 1, -1)[case.span]
                for part, _ in self._parts(trial.cell, case)]  # fmt: skip
        cache = trial.view("cache", dtype, case.target_rows, 1, -1)
        return [cache, trial.index(case.targets, case.index_dtype), *rows, *[None] * (2 - len(rows))]

    def factors(self, cell: Cell) -> Mapping[str, Any]:
        """See :class:`RowsWorkload`; no rows at all are a layout of their own."""
        *some, none = self.counts
        return {**super().factors(cell), "count": (none,) if cell.layout == "empty" else tuple(some)}

    def _parts(self, cell: Cell, case: Rows) -> list[tuple[str, int]]:
        parts = list(zip(("nope", "rope"), case.widths, strict=True))
        return parts[:1] if cell.layout.startswith("nope_only") else parts


class StorePaged(StoreRows):
    """``reshape_and_cache_flash``: caches of ``[pages, page_size, heads, head_size]``; here ``layers`` counts heads."""

    layers = (1, 3, 5)
    widths = ((30, 30), (120, 120), (240, 240))
    counts = (1, 2, 5, 0)
    options = ("", "negative")

    def factors(self, cell: Cell) -> Mapping[str, Any]:
        """See :class:`RowsWorkload`."""
        kinds = {"slots": self.options, "swa": ("",), "swa_padding": ("negative",)}[cell.layout]
        widths = [pair for pair in self.widths if not pair[0] % (15 * cell.itemsize)] or self.widths[-1:]
        counts = self.counts[:-1] if cell.layout == "swa_padding" else self.counts
        return {**super().factors(cell), "option": kinds, "widths": widths, "count": counts}

    def pairs(self, cell: Cell, count: int, option: str, rng: random.Random) -> tuple[list[tuple[int, int]], int, int]:
        """See :class:`RowsWorkload`: whole pages of slots."""
        pairs, rows, slots = super().pairs(cell, count, option, rng)
        return pairs, rows, -(-slots // cell.page_size) * cell.page_size

    def stored(self, case: Rows) -> list[tuple[int, int]]:
        """See :class:`StoreRows`; slot 0 is a slot like any other here."""
        return [(row, slot) for row, slot in case.pairs if slot >= 0]

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        dtype, heads, page = trial.cell.torch_dtype(), case.layers, trial.cell.page_size
        rows = [trial.view(f"{kv} rows", dtype, case.source_rows, heads, -1)[case.span] for kv in "KV"]
        shape = (case.target_rows // page, page, heads, -1)
        caches = [trial.view(f"{kv} cache", dtype, *shape) for kv in "KV"]
        return [*rows, *caches, *self._slots(trial, case)]

    def _slots(self, trial: RunTrial, case: Rows) -> list[torch.Tensor]:
        """The slots; for sliding window attention a second mapping too, before whose start a valid slot stands."""
        if trial.cell.layout == "slots":
            return [trial.index(case.targets, case.index_dtype)]
        numbers = random.Random(case.seed).sample(range(len(case.pairs)), len(case.pairs))
        mapping = dict(zip(numbers, case.targets, strict=True))
        full = [number if slot >= 0 else slot for number, slot in zip(numbers, case.targets, strict=True)]
        second = [0, *(max(mapping[number], 0) for number in range(len(numbers)))]
        return [trial.index(full, case.index_dtype), trial.index(second, case.index_dtype)[1:]]


class Pack(RowsWorkload):
    """``copy_mla_rows_into_pack``: gather rows of every layer into one packed buffer, layer after layer."""

    options = ("packed", "padded")
    indices = ("int64", "int32")
    bases = (0,)

    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """See :class:`RowsWorkload`."""
        layers = range(case.layers)
        areas = {f"layer {layer}": Area(case.source_rows * self._stride(case, layer)) for layer in layers}
        total = len(case.pairs) * sum(self._width(case, layer) for layer in layers)
        return {**areas, "pack": Area(total + 8, target=True)}

    def runs(self, cell: Cell, case: Rows) -> Iterator[Run]:
        """See :class:`RowsWorkload`."""
        at = 0
        for layer in range(case.layers):
            width, stride = self._width(case, layer), self._stride(case, layer)
            for number, row in enumerate(case.sources):
                what = f"row {row} of layer {layer}, item {number} of the pack"
                yield Run("pack", at, f"layer {layer}", row * stride, width, what)
                at += width

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        layers = range(case.layers)
        addresses = [trial.buffers[f"layer {layer}"].address() for layer in layers]
        widths, strides = ([size(case, layer) for layer in layers] for size in (self._width, self._stride))
        rows = trial.index(case.sources, case.index_dtype)
        return [addresses, rows, trial.view("pack", torch.uint8, -1), widths, strides]

    def _width(self, case: Rows, layer: int) -> int:
        return case.widths[layer % 2]

    def _stride(self, case: Rows, layer: int) -> int:
        return self._width(case, layer) + (8 if case.option == "padded" else 0)


_DTYPES = ("bfloat16", "float8_e4m3fn", "uint8")
_LAWS = (LAWS["repeat"], LAWS["split"])

KERNELS: tuple[Kernel, ...] = (
    Kernel("set_kv_buffer", "store", ("slots", "slot_0"), StoreRows(), _LAWS, _DTYPES, (1,)),
    Kernel("store_cache", "store", ("slots", "slot_0"), StoreFlat(), _LAWS, _DTYPES, (1,)),
    Kernel(
        "set_mla_kv_buffer",
        "store",
        ("with_rope", "with_rope_slot_0", "nope_only", "nope_only_slot_0", "empty"),
        StoreLatent(),
        _LAWS,
        _DTYPES,
        (1,),
    ),
    Kernel(
        "reshape_and_cache_flash",
        "store",
        ("slots", "swa", "swa_padding"),
        StorePaged(),
        _LAWS,
        _DTYPES[:2],
        (1, 3, 16, 128),
    ),
    Kernel("copy_mla_rows_into_pack", "store", ("pack",), Pack(), (LAWS["repeat"],), ("uint8",), (1,)),
)
