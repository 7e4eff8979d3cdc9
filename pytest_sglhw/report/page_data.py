"""The data of the page, small: words as digits, reasons as numbers of a table, as most cells share theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_sglhw.report.matrix import Cell, Column, Matrix, group_of, label_of, name_of
from pytest_sglhw.report.outcomes import OUTCOMES
from pytest_sglhw.report.summary import status_of

if TYPE_CHECKING:
    from pytest_sglhw.report.findings import Findings
    from pytest_sglhw.report.merge import Row, TestKey

_DIGITS = {word: str(digit) for digit, word in enumerate(OUTCOMES)}

#: Lists that are not about tests: the matrix can't be filtered by them.
_NOT_TESTS = ("files", "problems")


def page_data(matrix: Matrix, findings: Findings) -> dict[str, Any]:
    """Return what ``assets/page.js`` draws; the order of the values of a test is written there."""
    groups: dict[str, int] = {}
    details: dict[tuple[str | None, ...], int] = {}
    tests = [_test(matrix, test, groups, details) for test in matrix.tests]
    prefixes = {
        group_of(test): f"{group_of(test)}::" if isinstance(test, str) else f"{test[0]} " for test in matrix.tests
    }
    at = {label_of(test): number for number, test in enumerate(matrix.tests)}
    return {
        "columns": [_column(column) for column in matrix.columns],
        "outcomes": OUTCOMES,
        "groups": [{"name": name, "prefix": prefixes[name]} for name in groups],
        "details": list(details),
        "tests": tests,
        "lists": {
            word: sorted({at[finding.what] for finding in found if finding.what in at})
            for word, found in findings.items()
            if word not in _NOT_TESTS
        },
    }


def _column(column: Column) -> dict[str, Any]:
    return {
        "label": column.label,
        "lane": column.lane,
        "machine": column.machine,
        "fake": column.fake,
        "missing": column.missing,
        "status": status_of(column),
        "paths": sorted({path for run in column.runs for path in run.paths}),
    }


def _test(matrix: Matrix, test: TestKey, groups: dict[str, int], details: dict[Any, int]) -> list[Any]:
    words, numbers, times, more = [], [], [], {}
    for at, column in enumerate(matrix.columns):
        cell = column.cells.get(test)
        if cell is None:
            words.append(".")
            numbers.append(0)
            times.append(0)
            continue
        row = cell.row
        detail = (
            row.reason,
            row.reason_code,
            row.requirement,
            row.state,
            row.phase,
            row.worker,
            row.examples,
            row.attempt,
        )
        words.append(_DIGITS[row.outcome])
        numbers.append(details.setdefault(detail, len(details)))
        times.append(round(row.duration * 1000))
        if extra := _more(cell):
            more[at] = extra
    name = "" if test == group_of(test) else name_of(test)
    group = groups.setdefault(group_of(test), len(groups))
    return [group, name, "".join(words), numbers, times, *([more] if more else ())]


def _more(cell: Cell) -> dict[str, Any]:
    """What only few cells have: results that are not shown, and how much device memory the test took."""
    peak = cell.row.peak_memory
    if not cell.beside and not cell.earlier and peak is None:
        return {}
    memory = [("peak device memory", f"{peak / 2**20:,.1f} MiB")] if peak is not None else []
    beside = (("same attempt", _said(other)) for other in cell.beside)
    earlier = (("earlier attempt", _said(other)) for other in cell.earlier)
    return {
        "others": [*memory, *beside, *earlier],
        "changed": any(other.outcome != cell.row.outcome for other in cell.earlier),
    }


def _said(row: Row) -> str:
    return f"{row.outcome}: {row.reason}" if row.reason else row.outcome
