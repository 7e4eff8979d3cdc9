"""NVFP4: packed payload, and block scales in two arrangements, linear by slot and the native one of TRT-LLM's GenMHA.

A row of ``head_dim`` values is ``head_dim / 2`` payload bytes and ``S = head_dim / 16`` scale bytes. Native scales
stand by page: ``[page, head, token, S]`` for K; for V each four tokens are interleaved: the scale ``s`` of token ``t``
stands in row ``4 * (t // 4) + s // (S / 4)`` at column ``4 * (s % (S / 4)) + t % 4``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.checks import LAWS
from pytest_sglhw.conformance.families.runs import Area, Rows, RowsWorkload, Run, RunTrial, moves
from pytest_sglhw.conformance.family import ErrorInput, Kernel

if TYPE_CHECKING:
    import random

    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.family import Trial

_PAYLOAD, _SCALES = 2, 16
"""Values that share a payload byte, and values that share a scale."""


class Nvfp4(RowsWorkload):
    """``layers`` of a case counts heads here, ``widths`` is (head_dim, head_dim)."""

    layers = (1, 2, 3)
    widths = ((64, 64), (128, 128), (192, 192))
    counts = (1, 2, 5, 0)
    bases = (0,)

    def native(self, case: Rows, page_size: int, slot: int, head: int, kv: str) -> Iterator[tuple[int, int, int]]:
        """Where the scales of one row stand in the native buffer: (first scale, at, scales) of each run."""
        scales = case.widths[0] // _SCALES
        page, token = divmod(slot, page_size)
        base = (page * case.layers + head) * page_size * scales
        if kv == "K":
            yield 0, base + token * scales, scales
            return
        group = scales // 4
        for scale in range(scales):
            row, column = 4 * (token // 4) + scale // group, 4 * (scale % group) + token % 4
            yield scale, base + row * scales + column, 1


class Store(Nvfp4):
    """``store_nvfp4_kv_cache``: scatter quantised rows and scales into slots; the layout names the scale buffers."""

    options = ("dense", "strided")
    in_order = True

    def pairs(self, cell: Cell, count: int, option: str, rng: random.Random) -> tuple[list[tuple[int, int]], int, int]:
        """See :class:`RowsWorkload`: rows come in order, slots are scattered over whole pages."""
        rows = cell.page_size * rng.choice([size for size in (1, 2, 3) if size * cell.page_size >= count] or [count])
        return list(enumerate(rng.sample(range(rows), count))), max(count, 1), rows

    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """See :class:`RowsWorkload`."""
        payload, scales = (case.layers * case.widths[0] // each for each in (_PAYLOAD, _SCALES))
        areas = {}
        for kv in "KV":
            areas[f"{kv} payload"] = Area(case.source_rows * payload)
            areas[f"{kv} scales"] = Area(case.source_rows * scales)
            areas[f"{kv} cache"] = Area(case.target_rows * payload, target=True)
            areas |= {f"{kind} {kv} scales": Area(case.target_rows * scales, target=True) for kind in _kinds(cell)}
        return areas

    def runs(self, cell: Cell, case: Rows) -> Iterator[Run]:
        """See :class:`RowsWorkload`."""
        payload, scales = (case.layers * case.widths[0] // each for each in (_PAYLOAD, _SCALES))
        for kv in "KV":
            for token, slot in case.pairs:
                what = f"token {token} of {kv}, stored in slot {slot}"
                yield Run(f"{kv} cache", slot * payload, f"{kv} payload", token * payload, payload, what)
                for kind in _kinds(cell):
                    yield from self._scales(kind, cell, case, kv, token, slot, what, scales)

    def _scales(
        self, kind: str, cell: Cell, case: Rows, kv: str, token: int, slot: int, what: str, scales: int
    ) -> Iterator[Run]:
        target, source, words = f"{kind} {kv} scales", f"{kv} scales", f"the {kind} scales of {what}"
        if kind == "linear":
            yield Run(target, slot * scales, source, token * scales, scales, words)
            return
        for head in range(case.layers):
            first = token * scales + head * scales // case.layers
            for scale, at, size in self.native(case, cell.page_size, slot, head, kv):
                yield Run(target, at, source, first + scale, size, f"scale {scale} of head {head} in {words}")

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        heads, dim, page = case.layers, case.widths[0], trial.cell.page_size
        rows = [trial.view(f"{kv} {kind}", torch.uint8, case.source_rows, heads, -1)[case.span]
                for kind in ("payload", "scales") for kv in "KV"]  # fmt: skip
        caches = [trial.view(f"{kv} cache", torch.uint8, case.target_rows, heads, -1) for kv in "KV"]
        shapes = {"linear": (case.target_rows, heads), "native": (case.target_rows // page, heads, page)}
        scales = [
            trial.view(f"{kind} {kv} scales", torch.uint8, *shape, dim // _SCALES)
            if kind in _kinds(trial.cell)
            else None
            for kind, shape in shapes.items()
            for kv in "KV"
        ]
        slots = trial.index(case.targets, case.index_dtype, 3 if case.option == "strided" else 1)
        return [*rows, slots, *caches, *scales, page]

    def errors(self, trial: Trial) -> Iterable[ErrorInput]:
        """See :class:`Workload`."""
        yield ErrorInput(
            "no scale buffers at all", _set(7, None, None, None, None), ValueError, "At least one NVFP4 scale"
        )
        yield ErrorInput(
            "linear scales for K alone", _set(7, trial.arguments()[2], None), ValueError, "provided together"
        )
        if trial.case.pairs:
            yield ErrorInput("one location too few", _set(4, trial.arguments()[4][:-1]), ValueError, "KV rows")
        if "native" in _kinds(trial.cell):  # type: ignore[attr-defined]
            yield ErrorInput("a page size of 6", _set(11, 6), ValueError, "divisible by 4, got 6")


class MoveScales(Nvfp4):
    """``move_nvfp4_native_scales``: move rows of native scales between slots of one layer."""

    options = ("permuted",)

    def factors(self, cell: Cell) -> Mapping[str, Any]:
        """See :class:`RowsWorkload`."""
        kinds = ("disjoint",) if cell.layout == "disjoint" else ("shifted", "permuted")
        counts = self.counts if cell.layout == "disjoint" else self.counts[1:-1]
        return {**super().factors(cell), "option": kinds, "count": counts}

    def pairs(self, cell: Cell, count: int, option: str, rng: random.Random) -> tuple[list[tuple[int, int]], int, int]:
        """See :class:`RowsWorkload`; shifted and permuted moves overlap."""
        rows = cell.page_size * (2 * count // cell.page_size + rng.randint(1, 2))
        return moves(count, option, rows, rng), rows, rows

    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """See :class:`RowsWorkload`."""
        nbytes = case.target_rows * case.layers * case.widths[0] // _SCALES
        return {f"native {kv} scales": Area(nbytes, target=True) for kv in "KV"}

    def runs(self, cell: Cell, case: Rows) -> Iterator[Run]:
        """See :class:`RowsWorkload`."""
        for kv in "KV":
            name = f"native {kv} scales"
            for source, target in case.pairs:
                for head in range(case.layers):
                    places = (self.native(case, cell.page_size, slot, head, kv) for slot in (source, target))
                    for (scale, origin, size), (_, at, _) in zip(*places, strict=True):
                        what = f"scale {scale} of head {head} of {kv} that moves from slot {source} to slot {target}"
                        yield Run(name, at, name, origin, size, what)

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        page = trial.cell.page_size
        shape = (case.target_rows // page, case.layers, page, case.widths[0] // _SCALES)
        buffers = [trial.view(f"native {kv} scales", torch.uint8, *shape) for kv in "KV"]
        return [*buffers, trial.index(case.targets, case.index_dtype), trial.index(case.sources, case.index_dtype)]


def _kinds(cell: Cell) -> tuple[str, ...]:
    return {"linear": ("linear",), "native": ("native",), "both": ("linear", "native")}[cell.layout]


def _set(first: int, *values: Any) -> Any:
    def change(arguments: list[Any]) -> None:
        arguments[first : first + len(values)] = values

    return change


KERNELS: tuple[Kernel, ...] = (
    Kernel(
        "store_nvfp4_kv_cache",
        "nvfp4",
        ("linear", "native", "both"),
        Store(),
        (LAWS["repeat"], LAWS["split"], LAWS["errors"]),
        ("fp4_e2m1x2",),
        (4, 16, 24, 64, 128),
    ),
    Kernel(
        "move_nvfp4_native_scales",
        "nvfp4",
        ("disjoint", "overlapping"),
        MoveScales(),
        (LAWS["repeat"],),
        ("fp4_e2m1x2",),
        (4, 16, 24, 64, 128),
    ),
)
