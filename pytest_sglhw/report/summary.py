"""What the text renderers share: the tables of lanes, files and transfers as plain rows, and lists as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pytest_sglhw.report.findings import HEADINGS, Findings
from pytest_sglhw.report.matrix import Cell, Column, Matrix, group_of, name_of
from pytest_sglhw.report.outcomes import EXECUTED, OUTCOMES
from pytest_sglhw.report.transfer import TransferTable, transfer_tables

if TYPE_CHECKING:
    from pytest_sglhw.report.merge import TestKey

#: A suite up to this size is shown test by test, a larger one file by file.
TESTS_SHOWN = 60

#: What a cell without a result shows: the test is not known in this lane.
NOTHING = "-"

MISSING = "missing"

#: What pytest's exit statuses mean where it is not the tests that decided.
_EXITS = {2: " (interrupted)", 3: " (internal error)", 4: " (refused)", 5: " (no tests)"}


class Table(NamedTuple):
    """A heading, a line that says how to read it, and rows of which the first is the head."""

    title: str
    note: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(matrix: Matrix) -> list[Table]:
    """Every table of a matrix, in the order in which they are shown."""
    detail = _tests(matrix) if len(matrix.tests) <= TESTS_SHOWN else _files(matrix)
    return [_lanes(matrix), detail, *map(_transfer, transfer_tables(matrix))]


def headline(matrix: Matrix, findings: Findings) -> str:
    """The matrix in one sentence."""
    lanes = len(matrix.lanes())
    said = ", ".join(f"{len(found)} {word}" for word, found in findings.items())
    return f"{len(matrix.tests)} tests in {lanes} lane{'s' * (lanes != 1)}: {said or 'nothing to report'}"


def heading(word: str, count: int) -> str:
    """The heading of one list."""
    return f"{HEADINGS[word]} ({count})"


def fakes(matrix: Matrix) -> list[str]:
    """A warning for each column that is not a real machine."""
    return [
        f"{column.label}: a faked environment ({column.fake}), not a machine"
        for column in matrix.columns
        if column.fake
    ]


def status_of(column: Column) -> str:
    """How the runs of a column ended."""
    if column.missing:
        return MISSING
    cut_off = len(column.cut_off)
    states = [f"{cut_off} cut off"] if cut_off else []
    exits = Counter(run.exit_status for run in column.last_runs if run.ended)
    states += [f"exit {status}{_EXITS.get(status, '')}" for status in exits if status is not None]
    if len(column.last_runs) > 1:
        states.append(f"{len(column.last_runs)} shards")
    return ", ".join(states) or "ended"


def _lanes(matrix: Matrix) -> Table:
    words = [word for word in OUTCOMES if any(word in column.counts() for column in matrix.columns)]
    rows = []
    for column in matrix.columns:
        counts = column.counts()
        machine = ("faked " if column.fake else "") + column.machine
        rows.append((column.lane, machine, status_of(column), *(str(counts[word] or NOTHING) for word in words)))
    return Table("Lanes", "", ("lane", "machine", "status", *words), rows)


def _tests(matrix: Matrix) -> Table:
    head = ("test", *(column.label for column in matrix.columns))
    rows = [(_name(test), *(_word(column, test) for column in matrix.columns)) for test in matrix.tests]
    return Table("Tests", f"{NOTHING}: not known in this lane", head, rows)


def _name(test: TestKey) -> str:
    return f"{group_of(test)}::{name_of(test)}" if isinstance(test, str) and "::" in test else name_of(test)


def _word(column: Column, test: TestKey) -> str:
    return MISSING if column.missing else shown(column.cells.get(test))


def shown(cell: Cell | None) -> str:
    """The word of a cell, with a sign where earlier attempts ended otherwise."""
    if cell is None:
        return NOTHING
    return cell.row.outcome + ("*" if any(row.outcome != cell.row.outcome for row in cell.earlier) else "")


def _files(matrix: Matrix) -> Table:
    head = ("file", *(column.label for column in matrix.columns))
    rows = [(name, *(_file_cell(column, tests) for column in matrix.columns)) for name, tests in matrix.groups()]
    note = "executed (passed, failed, raised) of all tests of the file in this lane; then what did not go well"
    return Table("Files", note, head, rows)


def _file_cell(column: Column, tests: list[TestKey]) -> str:
    if column.missing:
        return MISSING
    counts = Counter(column.cells[test].row.outcome for test in tests if test in column.cells)
    if not counts:
        return NOTHING
    executed = sum(counts[word] for word in EXECUTED)
    bad = [f"{counts[word]} {word}" for word in ("failed", "error", "crashed", "not_run") if counts[word]]
    return ", ".join([f"{executed}/{counts.total()}", *bad])


def _transfer(table: TransferTable) -> Table:
    head = ("kernel", "layout", "dtype", *(f"page {page_size}" for page_size in table.heads))
    rows = [(*row, *(shown(table.cells.get((*row, page_size))) for page_size in table.heads)) for row in table.rows]
    return Table(f"Transfer matrix: {table.title}", f"{NOTHING}: no such case", head, rows)
