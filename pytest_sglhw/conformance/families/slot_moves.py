"""Moving rows between slots of the same pool, in every layer at once: all sources are read before a target is written.

Source of the contract: ``MHATokenToKVPool.move_kv_cache`` and ``copy_all_layer_kv_cache_tiled`` ("safe for in-place
copy"), and the CPU operator ``copy_all_layer_kv_cache_cpu``, which gathers everything before it scatters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.checks import LAWS
from pytest_sglhw.conformance.families.runs import Area, Rows, RowsWorkload, Run, RunTrial, moves
from pytest_sglhw.conformance.family import ErrorInput, Kernel

if TYPE_CHECKING:
    import random

    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.family import Trial

#: SGLang's pool moves this many slots in one launch (128 for rows of 8 KiB and more).
CHUNK = 256


class SlotMove(RowsWorkload):
    """A move inside one pool: in every buffer, the rows of the source slots to the target slots."""

    widths = ((16, 16), (24, 8), (136, 72), (264, 128))
    options = ("permuted", "shifted", "disjoint")
    counts = (1, 2, 5, 33, 0)
    bases = (0,)

    def pairs(self, cell: Cell, count: int, option: str, rng: random.Random) -> tuple[list[tuple[int, int]], int, int]:
        """See :class:`RowsWorkload`."""
        rows = 2 * count + rng.randint(1, 9)
        return moves(count, option, rows, rng), rows, rows

    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """See :class:`RowsWorkload`."""
        return {name: Area(case.source_rows * width, target=True) for name, width in self.buffers(cell, case)}

    def runs(self, cell: Cell, case: Rows) -> Iterator[Run]:
        """See :class:`RowsWorkload`."""
        for name, width in self.buffers(cell, case):
            for source, target in case.pairs:
                what = f"the row that moves from slot {source} to slot {target} of {name}"
                yield Run(name, target * width, name, source * width, width, what)

    def buffers(self, cell: Cell, case: Rows) -> list[tuple[str, int]]:
        """Name and row bytes of every buffer: K of all layers, then V."""
        parts, layers = zip("KV", case.widths, strict=True), range(case.layers)
        return [(f"layer {layer} of {part}", width) for part, width in parts for layer in layers]

    def locations(self, trial: RunTrial, case: Rows) -> list[Any]:
        """The target slots and the source slots, in this order."""
        return [trial.index(case.targets, case.index_dtype), trial.index(case.sources, case.index_dtype)]


class Tables(SlotMove):
    """``kernel(data_ptrs, strides, tgt_loc, src_loc)``: a table of addresses and one of row bytes, which may differ."""

    widths = ((16, 16), (24, 72), (136, 40), (576, 656))

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        names, widths = zip(*self.buffers(trial.cell, case), strict=True)
        return [trial.table(names), trial.index(widths), *self.locations(trial, case)]


class CheckedTables(Tables):
    """The operator for CPUs, which compares everything that it is given before it moves a byte."""

    def errors(self, trial: Trial) -> Iterator[ErrorInput]:
        """See :class:`Workload`: each names the comparison that failed."""
        for words, position, change, comparison in (
            ("a pointer table of type int64", 0, torch.Tensor.long, "data_ptrs.scalar_type(), at::kUInt64"),
            ("row sizes of type int32", 1, torch.Tensor.int, "strides.scalar_type(), at::kLong"),
            ("source slots of another type", 3, _other_type, "tgt_loc.scalar_type(), src_loc.scalar_type()"),
            ("one row size too few", 1, lambda sizes: sizes[:-1], "strides.numel(), num_bufs"),
            (
                "one source slot too many",
                3,
                lambda slots: torch.cat([slots, slots.new_zeros(1)]),
                "src_loc.numel(), num_locs",
            ),
        ):
            spoil = partial(_spoil, position, change)
            yield ErrorInput(words, spoil, RuntimeError, f"CHECK_EQ({comparison}) failed")


def _spoil(position: int, change: Callable[[torch.Tensor], torch.Tensor], arguments: list[Any]) -> None:
    arguments[position] = change(arguments[position])


def _one_more(slots: torch.Tensor) -> torch.Tensor:
    return torch.cat([slots, slots.new_zeros(1)])


def _other_type(slots: torch.Tensor) -> torch.Tensor:
    return slots.int() if slots.dtype == torch.int64 else slots.long()


class Pools(SlotMove):
    """``move_kv_cache(k_buffers, v_buffers, tgt_loc, src_loc, k_scales, v_scales)``; scales are those of a KV4 pool.

    The layout of the cell is one corner of the factors. In a KV4 pool a row of payload has an eighth of its bytes in
    scales.
    """

    def factors(self, cell: Cell) -> Mapping[str, Any]:
        """See :class:`RowsWorkload`."""
        wider = [(width, 10 * width) for width, _ in self.widths if not width % cell.itemsize]
        corner: dict[str, Mapping[str, Any]] = {
            "one_launch": {},
            "with_scales": {},
            "wider_v": {"widths": wider, "count": self.counts[:-1]},
            "across_chunks": {"count": (CHUNK + 1, 2 * CHUNK + 3), "option": ("shifted", "permuted")},
        }
        return {**super().factors(cell), **corner[cell.layout]}

    def smaller(self, cell: Cell, case: Rows) -> Iterator[Rows]:
        """See :class:`RowsWorkload`; a case across chunks stays one."""
        least = CHUNK + 1 if cell.layout == "across_chunks" else 1
        return (case for case in super().smaller(cell, case) if len(case.pairs) >= least)

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        dtype, scaled = trial.cell.torch_dtype(), trial.cell.layout == "with_scales"
        names = [name for name, _ in self.buffers(trial.cell, case)]
        views = [trial.view(name, torch.uint8 if scaled else dtype, case.source_rows, 1, -1) for name in names]
        k, v, *scales = (views[start : start + case.layers] for start in range(0, len(views), case.layers))
        return [k, v, *self.locations(trial, case), *scales]

    def buffers(self, cell: Cell, case: Rows) -> list[tuple[str, int]]:
        """See :class:`SlotMove`."""
        payload = super().buffers(cell, case)
        if cell.layout != "with_scales":
            return payload
        return payload + [(name.replace(" of ", " of the scales of "), width // 8) for name, width in payload]


KERNELS: tuple[Kernel, ...] = (
    Kernel("copy_all_layer_kv_cache_tiled", "slot_moves", ("slots",), Tables(), (LAWS["repeat"],), ("uint8",), (1,)),
    Kernel(
        "copy_all_layer_kv_cache_cpu",
        "slot_moves",
        ("slots",),
        CheckedTables(),
        (LAWS["repeat"], LAWS["errors"]),
        ("uint8",),
        (1,),
    ),
    Kernel(
        "move_kv_cache",
        "slot_moves",
        ("one_launch", "with_scales", "wider_v", "across_chunks"),
        Pools(),
        (LAWS["repeat"],),
        ("bfloat16", "uint8"),
        (1,),
    ),
)
