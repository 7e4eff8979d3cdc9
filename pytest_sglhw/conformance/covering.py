"""The covering design: explicit rows of factor values such that, over a kernel's cells, every pair of values meets.

Rows are chosen greedily and without chance, kernel by kernel over all of its cells, so a cell's rows are the same
whatever filters, workers or seeds a run has.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
        for first, second in combinations(sorted(possible, key=lambda level: level[0]), 2):
            is_new = first[0] != second[0] and (first, second) not in found
            if is_new and kernel.workload.feasible(cell, dict((first, second))):
                found.add((first, second))
        for level in possible:
            found.update(pairs_of(cell, dict([level])))
    return frozenset(found)


@lru_cache(maxsize=64)
def rows(kernel: Kernel, each: int) -> Mapping[Cell, tuple[dict[str, Any], ...]]:
    """``each`` rows for every cell of the kernel (values of its factors), and more until every wanted pair is met."""
    missing = set(wanted_pairs(kernel))
    cells = kernel.cells()
    result: dict[Cell, list[dict[str, Any]]] = {cell: [] for cell in cells}

    def add(cell: Cell, pinned: Mapping[str, Any], turn: int) -> None:
        row = _row(kernel, cell, pinned, missing, turn)
        missing.difference_update(pairs_of(cell, row))
        result[cell].append(row)

    for number, cell in enumerate(cells):
        for index in range(each):
            add(cell, {}, number * each + index)
    for turn, pair in enumerate(sorted(missing, key=repr)):
        if pair in missing:
            add(*_where(kernel, cells, pair, turn), turn)
    return {cell: tuple(found) for cell, found in result.items()}


def _where(kernel: Kernel, cells: Sequence[Cell], pair: Pair, turn: int) -> tuple[Cell, dict[str, Any]]:
    """A cell in which this pair can be met, another one at every turn, and the values of factors to meet it by."""
    start = turn % len(cells)
    for cell in (*cells[start:], *cells[:start]):
        fixed = cell._asdict()
        pinned = dict(level for level in pair if level[0] not in fixed)
        offered = {**{name: (value,) for name, value in fixed.items()}, **kernel.workload.factors(cell)}
        if all(value in offered[name] for name, value in pair) and kernel.workload.feasible(cell, pinned):
            return cell, pinned
    raise AssertionError(f"{kernel.name} has no cell for {pair}")  # wanted_pairs found one


def _row(kernel: Kernel, cell: Cell, pinned: Mapping[str, Any], missing: set[Pair], turn: int) -> dict[str, Any]:
    """Choose each factor's value so that it meets the most missing pairs with what stands already."""
    factors = [item for item in kernel.workload.factors(cell).items() if item[0] not in pinned]
    shift = turn % len(factors) if factors else 0
    row = dict(pinned)
    for name, values in factors[shift:] + factors[:shift]:
        fitting = [value for value in values if kernel.workload.feasible(cell, {**row, name: value})]
        start = turn % len(fitting)
        fitting = fitting[start:] + fitting[:start]
        row[name] = max(fitting, key=_gain(cell, row, name, missing)) if missing else fitting[0]
    return row


def _gain(cell: Cell, row: Mapping[str, Any], name: str, missing: set[Pair]) -> Callable[[Any], int]:
    """How many missing pairs a value of the factor ``name`` meets with the cell's values and those of the row."""
    before = [("layout", cell.layout), ("dtype", cell.dtype), ("page_size", cell.page_size)]
    before += [level for level in row.items() if level[0] < name]
    after = [level for level in row.items() if level[0] > name]

    def gain(value: Any) -> int:
        level = (name, value)
        return sum((each, level) in missing for each in before) + sum((level, each) in missing for each in after)

    return gain
