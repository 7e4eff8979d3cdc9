"""Runs, and how they merge: a set of records by run, so that neither order nor grouping nor repetition matters.

What several runs say together (columns, cells, lists) is derived from the merged runs, in ``matrix`` and ``findings``;
nothing is decided here, so nothing is lost here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: What a transfer-matrix item is known by in a merge, in place of its node id.
MATRIX_KEYS = ("provider", "kernel", "layout", "dtype", "page_size")

#: Either a node id or the values of :data:`MATRIX_KEYS`.
TestKey = str | tuple[str, ...]


class Row(NamedTuple):
    """One ``test`` record. ``seq`` is its place among the tests of its run, which tells it from its like."""

    seq: int
    nodeid: str
    key: TestKey
    outcome: str
    phase: str
    duration: float
    platform: str | None
    requirement: str | None
    state: str | None
    reason_code: str | None
    reason: str
    worker: str | None
    attempt: int
    marks: tuple[str, ...]
    examples: int | None
    peak_memory: int | None = None


class FileRow(NamedTuple):
    """One ``collect`` record: a file that gave no test."""

    nodeid: str
    outcome: str
    reason: str


class Signature(NamedTuple):
    """What keeps cells of one lane apart; ``None`` is not known."""

    platform: str | None
    arch: str | None
    runtime: str | None


NOT_KNOWN = Signature(None, None, None)


@dataclass(frozen=True)
class Run:
    """The records of one run (one ``session``), from however many files."""

    run_id: str
    lane: str
    """Name of the lane; where the run names none, that of its file, and ``named`` is false."""
    named: bool = True
    shard: str | None = None
    attempt: int = 1
    time: float = 0.0
    fake: str | None = None
    promise: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    exit_status: int | None = None
    ended: bool = False
    broken_promises: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    files: frozenset[FileRow] = frozenset()
    open_starts: frozenset[tuple[str, int]] = frozenset()
    """Tests that were started and have no result: the node id, and which start of it (the first is 1)."""
    deaths: frozenset[tuple[str, str]] = frozenset()
    """Workers that died outside of a test, each with how."""
    paths: frozenset[str] = field(default=frozenset())

    @property
    def foreign(self) -> bool:
        """Whether it comes from JUnit XML, which knows less than a report of ours."""
        return self.run_id.startswith("junit:")

    @property
    def order(self) -> tuple[int, bool, float]:
        """Later attempts are greater; beside a report of ours, the JUnit XML of the same run gives way."""
        return self.attempt, not self.foreign, self.time

    @property
    def signature(self) -> Signature:
        """Platform, arch and runtime version, as far as the run knew them."""
        facts = self.environment
        if facts is None:
            platforms = {row.platform for row in self.rows if row.platform}
            return Signature(platforms.pop() if len(platforms) == 1 else None, None, None)
        devices = facts.get("devices")
        rows = devices if isinstance(devices, list) else ()
        archs = dict.fromkeys(str(row["arch"]) for row in rows if isinstance(row, Mapping) and row.get("arch"))
        runtime = _mapping(facts.get("versions")).get("runtime")
        return Signature(_text(facts.get("platform")), "+".join(archs) or None, _text(runtime))


#: Merged runs by their id.
Runs = dict[str, Run]


def merge(*parts: Iterable[Run]) -> Runs:
    """Merge runs: those with one id are the same run, of which each file may hold more or less."""
    merged: Runs = {}
    for part in parts:
        for run in part:
            known = merged.get(run.run_id)
            merged[run.run_id] = run if known is None or known is run else united(known, run)
    return merged


#: Facts about the run as a whole; the rest of a :class:`Run` are sets of records.
_FACTS = (
    "lane", "named", "shard", "attempt", "time", "fake", "promise", "environment", "exit_status", "ended",
    "broken_promises",
)  # fmt: skip


def united(one: Run, other: Run) -> Run:
    """Unite two copies of one run; every record of either is in it once."""
    rows = sorted(set(one.rows) | set(other.rows), key=lambda row: (row.seq, repr(row)))
    results = Counter(row.nodeid for row in rows)
    starts = one.open_starts | other.open_starts
    return Run(
        run_id=one.run_id,
        **{name: max(getattr(one, name), getattr(other, name), key=_weight) for name in _FACTS},
        rows=tuple(rows),
        files=one.files | other.files,
        open_starts=frozenset((nodeid, nth) for nodeid, nth in starts if results[nodeid] < nth),
        deaths=one.deaths | other.deaths,
        paths=one.paths | other.paths,
    )


def _weight(value: Any) -> tuple[bool, str]:
    """Order the values of one fact: something over nothing, else any order that does not depend on which came first."""
    return value not in (None, False, ()), repr(value)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return None if value is None else str(value)
