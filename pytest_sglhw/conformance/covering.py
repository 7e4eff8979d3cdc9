"""The covering design: explicit rows of factor values such that, over a kernel's cells, every pair of values meets.

Rows are chosen greedily and without chance, kernel by kernel over all of its cells, so a cell's rows are the same
whatever filters, workers or seeds a run has.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.family import Kernel

Level = tuple[str, Any]
Pair = tuple[Level, Level]


def pairs_of(cell: Cell, values: Mapping[str, Any]) -> Iterable[Pair]:
    """The pairs that one example meets: of its factors, and of each factor with the cell's own values."""
    fixed = (("layout", cell.layout), ("dtype", cell.dtype), ("page_size", cell.page_size))
    return combinations((*fixed, *sorted(values.items(), key=lambda level: level[0])), 2)


@lru_cache(maxsize=64)
def wanted_pairs(kernel: Kernel) -> frozenset[Pair]:
    """Every pair that some cell of the kernel can meet."""
    found: set[Pair] = set()
    for cell in kernel.cells():
        levels = [(name, value) for name, values in kernel.workload.factors(cell).items() for value in values]
        possible = [level for level in levels if kernel.workload.feasible(cell, dict([level]))]
        for first, second in combinations(possible, 2):
            chosen = dict((first, second))
            if len(chosen) == 2 and kernel.workload.feasible(cell, chosen):
                found.add((first, second) if first[0] < second[0] else (second, first))
        for level in possible:
            found.update(pair for pair in pairs_of(cell, dict([level])))
    return frozenset(found)


@lru_cache(maxsize=64)
def rows(kernel: Kernel, each: int) -> Mapping[Cell, tuple[dict[str, Any], ...]]:
    """``each`` rows for every cell of the kernel: values of its factors."""
    missing = set(wanted_pairs(kernel))
    result: dict[Cell, tuple[dict[str, Any], ...]] = {}
    for number, cell in enumerate(kernel.cells()):
        chosen = []
        for index in range(each):
            row = _row(kernel, cell, missing, number * each + index)
            missing.difference_update(pairs_of(cell, row))
            chosen.append(row)
        result[cell] = tuple(chosen)
    return result


def _row(kernel: Kernel, cell: Cell, missing: set[Pair], turn: int) -> dict[str, Any]:
    """Choose each factor's value so that it meets the most missing pairs with what stands already."""
    factors = list(kernel.workload.factors(cell).items())
    shift = turn % len(factors) if factors else 0
    row: dict[str, Any] = {}
    for name, values in factors[shift:] + factors[:shift]:
        fitting = [value for value in values if kernel.workload.feasible(cell, {**row, name: value})]
        start = turn % len(fitting)
        row[name] = max(fitting[start:] + fitting[:start], key=lambda value: _gain(cell, row, (name, value), missing))
    return row


def _gain(cell: Cell, row: Mapping[str, Any], level: Level, missing: set[Pair]) -> int:
    return sum(pair in missing for pair in pairs_of(cell, {**row, level[0]: level[1]}) if level in pair)
