"""The hardware matrix: tests in rows, lanes in columns, derived from merged runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_sglhw.report.merge import NOT_KNOWN, FileRow, Row, Run, Runs, Signature, TestKey
from pytest_sglhw.report.outcomes import EXECUTED

#: Which word a cell shows where several results count: the worst, then one that executed over one that did not.
_WORST_FIRST = ("crashed", "failed", "error", "not_run", "xpassed", "raised", "passed", "xfailed", "skipped")

_RANK = {word: rank for rank, word in enumerate(_WORST_FIRST)}


class Cell(NamedTuple):
    """What one test did in one column."""

    row: Row
    """The result that is shown."""
    beside: tuple[Row, ...] = ()
    """Others of the same attempt: one node id twice, or in two shards."""
    earlier: tuple[Row, ...] = ()
    """Results that a later attempt replaced, the oldest first."""

    @property
    def last(self) -> tuple[Row, ...]:
        """Every result of the last attempt."""
        return (self.row, *self.beside)

    @property
    def executed(self) -> bool:
        """Whether the test's own code ran to a verdict in the last attempt."""
        return self.row.outcome in EXECUTED or any(row.outcome in EXECUTED for row in self.beside)


@dataclass
class Column:
    """One lane on one kind of machine; a lane that was expected and sent nothing has no runs."""

    lane: str
    named: bool = True
    signature: Signature = NOT_KNOWN
    runs: tuple[Run, ...] = ()
    cells: dict[TestKey, Cell] = field(default_factory=dict)
    files: dict[str, FileRow] = field(default_factory=dict)
    apart: bool = False
    """Whether the lane has other columns, so that the label needs more than its name."""

    @property
    def missing(self) -> bool:
        """Whether the lane sent nothing."""
        return not self.runs

    @property
    def fake(self) -> str | None:
        """What the runs pretended to be."""
        return next((run.fake for run in self.runs if run.fake), None)

    @property
    def machine(self) -> str:
        """Platform, arch and runtime version as one text."""
        return " ".join(part for part in self.signature if part) or ("" if self.missing else "machine not known")

    @property
    def label(self) -> str:
        """Name of the column: unique in its matrix."""
        fake = "faked " if self.fake else ""
        return f"{self.lane} ({fake}{self.machine})" if self.apart else self.lane

    @property
    def last_runs(self) -> list[Run]:
        """The last attempt of each shard; ``runs`` are in order."""
        return list({run.shard: run for run in self.runs}.values())

    @property
    def cut_off(self) -> list[Run]:
        """The runs whose report has no end, unless a later attempt replaced them."""
        return [run for run in self.last_runs if not run.ended]

    def counts(self) -> Counter[str]:
        """How many tests ended in each word."""
        return Counter(cell.row.outcome for cell in self.cells.values())


@dataclass
class Matrix:
    """Columns in the order of their names, and every test of any of them."""

    columns: list[Column]
    tests: list[TestKey]

    def lanes(self) -> dict[str, list[Column]]:
        """The columns of each lane."""
        lanes: dict[str, list[Column]] = defaultdict(list)
        for column in self.columns:
            lanes[column.lane].append(column)
        return lanes

    def groups(self) -> Iterator[tuple[str, list[TestKey]]]:
        """Tests by file (transfer-matrix items: by provider), in order."""
        group: list[TestKey] = []
        name = ""
        for test in self.tests:
            if group and group_of(test) != name:
                yield name, group
                group = []
            name = group_of(test)
            group.append(test)
        if group:
            yield name, group


def build(runs: Runs, expected: Iterable[str] = ()) -> Matrix:
    """Lay merged runs out as a matrix; each lane in ``expected`` has a column, whether it sent something or not."""
    aliases: dict[str, TestKey] = {
        row.nodeid: row.key for run in runs.values() for row in run.rows if type(row.key) is tuple
    }
    columns = [_column(place, group, aliases) for place, group in _places(runs).items()]
    columns += [Column(lane) for lane in dict.fromkeys(expected) if lane not in {column.lane for column in columns}]
    columns.sort(key=lambda column: (column.lane, tuple(map(str, column.signature)), str(column.fake)))
    lanes = Counter(column.lane for column in columns)
    for column in columns:
        column.apart = lanes[column.lane] > 1
    tests = sorted({test for column in columns for test in column.cells}, key=_sort_key)
    return Matrix(columns, tests)


class _Place(NamedTuple):
    lane: str
    fake: bool
    signature: Signature


def _places(runs: Runs) -> dict[_Place, list[Run]]:
    """Group runs that share a column. What a run does not know of its machine does not keep it apart."""
    known: dict[tuple[str, bool], list[Signature]] = defaultdict(list)
    for run in runs.values():
        known[run.lane, bool(run.fake)].append(run.signature)
    places: dict[_Place, list[Run]] = defaultdict(list)
    for run in sorted(runs.values(), key=lambda run: (run.order, run.run_id)):
        kind = run.lane, bool(run.fake)
        places[_Place(*kind, _completed(run.signature, known[kind]))].append(run)
    return places


def _completed(signature: Signature, known: list[Signature]) -> Signature:
    """Fill in what is not known from the others of the lane, where only one of them fits."""
    fitting = {
        other
        for other in known
        if all(mine in (None, theirs) for mine, theirs in zip(signature, other, strict=True)) and other != signature
    }
    most = max(map(_knowledge, fitting), default=0)
    best = [other for other in fitting if _knowledge(other) == most]
    return best[0] if len(best) == 1 else signature


def _knowledge(signature: Signature) -> int:
    return sum(part is not None for part in signature)


def _column(place: _Place, runs: list[Run], aliases: dict[str, TestKey]) -> Column:
    column = Column(place.lane, any(run.named for run in runs), place.signature, tuple(runs))
    single: dict[TestKey, tuple[Run, Row]] = {}
    several: dict[TestKey, list[tuple[Run, Row]]] = {}
    for run in runs:
        for row in (*run.rows, *_cut_off_rows(run)):
            key = aliases.get(row.nodeid, row.key) if aliases else row.key
            entry = (run, row)
            first = single.setdefault(key, entry)
            if first is not entry:
                several.setdefault(key, [first]).append(entry)
        column.files.update((file.nodeid, file) for file in sorted(run.files))
    cells = column.cells
    for key, (_, row) in single.items():
        cells[key] = Cell(row)
    for key, entries in several.items():
        cells[key] = _combined(entries)
    return column


def _cut_off_rows(run: Run) -> Iterator[Row]:
    for nodeid, nth in sorted(run.open_starts):
        reason = "the report ends in this test: its process was killed or died"
        yield Row(-1, nodeid, nodeid, "crashed", "", 0.0, None, None, None, "cut_off", reason, None, nth, (), None)


def _combined(entries: list[tuple[Run, Row]]) -> Cell:
    """One cell of several results: the last attempt in each shard counts, of those the worst is shown."""
    latest: dict[str | None, tuple[object, ...]] = {}
    for run, row in entries:
        latest[run.shard] = max(latest.get(run.shard, ()), _attempt(run, row))
    last = [row for run, row in entries if _attempt(run, row) == latest[run.shard]]
    earlier = [row for run, row in entries if _attempt(run, row) != latest[run.shard]]
    last.sort(key=lambda row: _RANK[row.outcome])
    return Cell(last[0], tuple(last[1:]), tuple(earlier))


def _attempt(run: Run, row: Row) -> tuple[object, ...]:
    return (*run.order, row.attempt)


def group_of(test: TestKey) -> str:
    """The heading under which a test is folded: its file or, for a transfer-matrix item, its provider."""
    return test.partition("::")[0] if isinstance(test, str) else f"transfer matrix: {test[0]}"


def name_of(test: TestKey) -> str:
    """The name of a test below its heading."""
    return (test.partition("::")[2] or test) if isinstance(test, str) else label_of(test).partition(" ")[2]


def label_of(test: TestKey) -> str:
    """The full name of a test."""
    if isinstance(test, str):
        return test
    provider, kernel, layout, dtype, page_size = test
    return f"{provider} {kernel}[{layout}-{dtype}-page{page_size}]"


def _sort_key(test: TestKey) -> tuple[str, ...]:
    if isinstance(test, str):
        return (test.partition("::")[0], test)
    *front, page_size = test
    return (group_of(test), *front, page_size.zfill(8))


def shard_of(shard: str | None) -> tuple[int, int] | None:
    """Split ``"2/4"``; ``None`` for what is not of this form."""
    nth, _, total = (shard or "").partition("/")
    if not (nth.isdecimal() and total.isdecimal()) or not 1 <= int(nth) <= int(total) <= 10_000:
        return None
    return int(nth), int(total)
