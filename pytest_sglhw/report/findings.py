"""What a matrix says that somebody should look at: the lists that come before the table, in this order.

Six of them are words of ``--fail-on``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pytest_sglhw.report.matrix import Cell, Column, Matrix, label_of, shard_of
from pytest_sglhw.report.outcomes import EXECUTED

if TYPE_CHECKING:
    from pytest_sglhw.report.merge import Row, TestKey

#: ``--fail-on`` word -> heading of its list.
FAIL_ON = {
    "missing": "Missing: lanes and shards that were expected and sent nothing",
    "crashed": "Crashed and cut off",
    "contract": "Contract: lanes that ran less than they promise",
    "failed": "Failed",
    "lost": "Lost: executed in the baseline and not any more",
    "nowhere": "Nowhere: executed in no lane",
}

#: Lists that are shown and fail nothing.
SHOWN = {
    "contradictions": "Contradictions: one platform, two answers",
    "changed": "Changed between attempts",
    "files": "Files that gave no test",
    "problems": "Input that could not be used as it is",
}

HEADINGS = FAIL_ON | SHOWN


class Finding(NamedTuple):
    """One line of a list: what, in which column, and why."""

    what: str
    where: str
    why: str


Findings = dict[str, list[Finding]]


def find(matrix: Matrix, baseline: Matrix | None = None, problems: Iterable[Finding] = ()) -> Findings:
    """Return every list that is not empty, by its word."""
    lists = {
        "missing": _missing(matrix),
        "crashed": _crashed(matrix),
        "contract": _contract(matrix),
        "failed": _failed(matrix),
        "lost": _lost(matrix, baseline) if baseline else (),
        "nowhere": _nowhere(matrix),
        "contradictions": _contradictions(matrix),
        "changed": _changed(matrix),
        "files": _files(matrix, ("skipped", "empty")),
        "problems": (*problems, *_repeated(matrix)),
    }
    found = {word: list(findings) for word, findings in lists.items()}
    return {word: findings for word, findings in found.items() if findings}


def _missing(matrix: Matrix) -> Iterator[Finding]:
    for lane, columns in matrix.lanes().items():
        if all(column.missing for column in columns):
            yield Finding(lane, "", "expected, and sent nothing")
        seen = {shard for column in columns for run in column.runs if (shard := shard_of(run.shard))}
        for total in sorted({total for _, total in seen}):
            for nth in range(1, total + 1):
                if (nth, total) not in seen:
                    yield Finding(f"{lane}, shard {nth}/{total}", "", "the lane's other shards are here")


def _crashed(matrix: Matrix) -> Iterator[Finding]:
    for column in matrix.columns:
        for run in column.cut_off:
            yield Finding(column.label, _shard(run.shard), f"the report is cut off after {len(run.rows)} tests")
        for run in column.last_runs:
            for worker, reason in sorted(run.deaths):
                yield Finding(column.label, _shard(run.shard), f"worker {worker} {reason}")
    yield from _cells(matrix, ("crashed",))


def _failed(matrix: Matrix) -> Iterator[Finding]:
    yield from _files(matrix, ("failed",))
    yield from _cells(matrix, ("failed", "error"))


def _cells(matrix: Matrix, words: tuple[str, ...]) -> Iterator[Finding]:
    for test in matrix.tests:
        for column in matrix.columns:
            cell = column.cells.get(test)
            if cell is not None and cell.row.outcome in words:
                yield Finding(label_of(test), column.label, described(cell.row))


def described(row: Row) -> str:
    """One line on a result that is not a plain pass."""
    phase = f" in {row.phase}" if row.outcome == "error" and row.phase else ""
    first_line = row.reason.partition("\n")[0]
    return f"{row.outcome}{phase}" + (f": {first_line}" if first_line else "")


def _nowhere(matrix: Matrix) -> Iterator[Finding]:
    executed: set[TestKey] = set()
    for column in matrix.columns:
        executed.update(test for test, cell in column.cells.items() if cell.executed)
    for test in matrix.tests:
        if test not in executed:
            yield Finding(label_of(test), "", _everywhere(matrix, test))
    files = {name for column in matrix.columns for name, file in column.files.items() if file.outcome != "empty"}
    for name in sorted(files - {label_of(test).partition("::")[0] for test in matrix.tests}):
        states = sorted({column.files[name].outcome for column in matrix.columns if name in column.files})
        yield Finding(name, "", f"the whole file: {', '.join(states)}")


def _everywhere(matrix: Matrix, test: TestKey) -> str:
    """What became of a test in each lane that knows it, lanes with the same answer together."""
    answers: dict[str, list[str]] = defaultdict(list)
    for column in matrix.columns:
        if test in column.cells:
            answers[described(column.cells[test].row)].append(column.label)
    return "; ".join(f"{', '.join(lanes)}: {answer}" for answer, lanes in answers.items())


def _lost(matrix: Matrix, baseline: Matrix) -> Iterator[Finding]:
    """Compare lane by lane; a lane that is gone or has no name is compared with all lanes of now."""
    now = _executed_by_lane(matrix)
    anywhere = {test for tests in now.values() for test in tests}
    named = {column.lane for column in matrix.columns if column.named and not column.missing}
    for lane, columns in baseline.lanes().items():
        compared = now[lane] if lane in named else anywhere
        before = {test for column in columns for test, cell in column.cells.items() if cell.executed}
        for test in (test for test in baseline.tests if test in before and test not in compared):
            elsewhere = "; still executed in another lane" if test in anywhere else ""
            yield Finding(label_of(test), lane, _lost_to(matrix, lane, test) + elsewhere)


def _lost_to(matrix: Matrix, lane: str, test: TestKey) -> str:
    rows = [column.cells[test].row for column in matrix.columns if column.lane == lane and test in column.cells]
    if rows:
        return f"now {described(rows[0])}"
    return f"now {answer}" if (answer := _everywhere(matrix, test)) else "now in no report"


def _executed_by_lane(matrix: Matrix) -> dict[str, set[TestKey]]:
    executed: dict[str, set[TestKey]] = defaultdict(set)
    for column in matrix.columns:
        executed[column.lane].update(test for test, cell in column.cells.items() if cell.executed)
    return executed


def _contract(matrix: Matrix) -> Iterator[Finding]:
    for lane, columns in matrix.lanes().items():
        runs = [run for column in columns for run in column.last_runs]
        promise = next((run.promise for run in reversed(runs) if run.promise), None) or {}
        executed = _executed_nodes(columns)
        for promised, least, count in minima(promise, executed):
            if count < least:
                yield Finding(lane, "", f"{promised} = {least}, executed {count}")
        for run in runs:
            for broken in run.broken_promises:
                yield Finding(lane, _shard(run.shard), broken)
            if run.named and run.exit_status == 4:
                yield Finding(lane, _shard(run.shard), "the run ended with exit status 4 before any test")


def _executed_nodes(columns: list[Column]) -> dict[str, tuple[str, ...]]:
    """The executed tests of a lane by node id (that is what its minima count), with their marks."""
    rows = (row for column in columns for cell in column.cells.values() for row in cell.last)
    return {row.nodeid: row.marks for row in rows if row.outcome in EXECUTED}


def minima(promise: object, executed: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, int, int]]:
    """Give each minimum of a lane's promise, with its count among ``executed`` (node ids with their marks)."""
    if not isinstance(promise, dict):
        return
    if type(least := promise.get("min_executed")) is int:
        yield "min_executed", least, len(executed)
    by_mark = promise.get("min_executed_by_mark")
    for mark, least in by_mark.items() if isinstance(by_mark, dict) else ():
        if type(least) is int:
            yield f"min_executed_by_mark.{mark}", least, sum(mark in marks for marks in executed.values())


def _contradictions(matrix: Matrix) -> Iterator[Finding]:
    """Raised here and executed there on one platform; passed here and failed there on one kind of machine."""
    for test in matrix.tests:
        cells = [(column, column.cells[test]) for column in matrix.columns if test in column.cells]
        words = {cell.row.outcome for _, cell in cells}
        if "raised" in words and not words.isdisjoint(("passed", "failed")):
            yield from _contradicting(label_of(test), "raised", ("passed", "failed"), _by_platform(cells))
        if {"passed", "failed"} <= words:
            yield from _contradicting(label_of(test), "passed", ("failed",), _by_machine(cells))


def _contradicting(name: str, word: str, against: tuple[str, ...], places: dict[str, Answers]) -> Iterator[Finding]:
    for place, answers in places.items():
        others = [other for other in against if other in answers]
        if word in answers and others:
            where = [label for answer in (word, *others) for label in answers[answer]]
            yield Finding(name, ", ".join(where), f"{' and '.join((word, *others))}, all on {place}")


#: Outcome -> labels of the columns in which a test ended so.
Answers = dict[str, list[str]]


def _by_platform(cells: list[tuple[Column, Cell]]) -> dict[str, Answers]:
    places: dict[str, Answers] = {}
    for column, cell in cells:
        if platform := cell.row.platform or column.signature.platform:
            places.setdefault(platform, {}).setdefault(cell.row.outcome, []).append(column.label)
    return places


def _by_machine(cells: list[tuple[Column, Cell]]) -> dict[str, Answers]:
    places: dict[str, Answers] = {}
    for column, cell in cells:
        if column.signature.platform:
            places.setdefault(column.machine, {}).setdefault(cell.row.outcome, []).append(column.label)
    return places


def _changed(matrix: Matrix) -> Iterator[Finding]:
    for column in matrix.columns:
        for test, cell in column.cells.items():
            if any(row.outcome != cell.row.outcome for row in cell.earlier):
                words = " then ".join(row.outcome for row in (*cell.earlier, cell.row))
                yield Finding(label_of(test), column.label, words)


def _files(matrix: Matrix, words: tuple[str, ...]) -> Iterator[Finding]:
    for column in matrix.columns:
        for name, file in column.files.items():
            if file.outcome in words:
                yield Finding(name, column.label, f"{file.outcome}, collected 0, executed 0: {file.reason}")


def _repeated(matrix: Matrix) -> Iterator[Finding]:
    for column in matrix.columns:
        for run in column.runs:
            if len(run.paths) > 1:
                first, *others = sorted(run.paths)
                yield Finding(", ".join(others), "", f"the same run as {first}: counted once")


def _shard(shard: str | None) -> str:
    return f"shard {shard}" if shard else ""
