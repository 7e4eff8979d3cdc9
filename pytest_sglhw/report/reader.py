"""Read reports: our JSON Lines up to the last whole record, JUnit XML, and a name for everything else.

A reader never raises on what a file holds: what can't be read is a problem with its file and line; the rest is read.
"""

from __future__ import annotations

import codecs
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any, ClassVar

from pytest_sglhw.report.merge import MATRIX_KEYS, FileRow, Row, Run
from pytest_sglhw.report.outcomes import OUTCOMES

#: Major version of the schema that this reader knows.
MAJOR = "1"

#: No record of ours is longer; a longer line is skipped without being held in memory.
LINE_LIMIT = 4 << 20

#: Names that say nothing about the lane: the name of their directory does.
GENERIC_NAMES = frozenset(
    {"junit", "report", "reports", "result", "results", "test-results", "pytest", "sglhw", "tests"}
)

_decode = json.JSONDecoder().raw_decode

#: Damaged lines of one file that are named one by one.
_NAMED_LINES = 5


@dataclass
class Reading:
    """What one file gave: runs, and what was wrong with it.

    ``seen`` holds one copy of each text (and of each tuple of marks), of which reports repeat many.
    """

    path: str
    seen: dict[Any, Any] = field(default_factory=dict, repr=False)
    runs: list[Run] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_file(path: str, seen: dict[Any, Any] | None = None) -> Reading:
    """Read a file, whatever it is. Give the files of one merge the same ``seen``: they name the same tests."""
    reading = Reading(path, {} if seen is None else seen)
    try:
        with open(path, "rb") as file:
            _read(file, reading)
    except OSError as error:
        reading.problems.append(f"can't be read: {error.strerror or error}")
    return reading


def _read(file: IO[bytes], reading: Reading) -> None:
    head = file.read(512)
    file.seek(0)
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if not start:
        reading.problems.append("is empty: the run that was to write it never began")
    elif start.startswith(b"{"):
        _Lines(reading).read(file)
    elif start.startswith((b"<", codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        from pytest_sglhw.report.junit import read_junit

        read_junit(file, reading)
    else:
        reading.problems.append(
            f"is neither a report of pytest-sglhw nor JUnit XML: it begins with {start[:16]!r}. "
            "Give files that --sglhw-report or --junitxml wrote."
        )


def lane_of_path(path: str) -> str:
    """Name a lane after the file that names none: its stem or, where that says nothing, its directory."""
    absolute = os.path.abspath(path)
    stem = os.path.splitext(os.path.basename(absolute))[0]
    parent = os.path.basename(os.path.dirname(absolute))
    return parent if stem.lower() in GENERIC_NAMES and parent else stem


class _Lines:
    """Read the lines of one report."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._run: _RunBuilder | None = None
        self._damaged = 0

    def read(self, file: IO[bytes]) -> None:
        for number, line in enumerate(_lines(file), 1):
            if line is None:
                self._damage(number, f"is longer than {LINE_LIMIT >> 20} MiB")
                continue
            content = line.decode("utf-8-sig" if number == 1 else "utf-8", "replace").strip()
            if not content:
                continue
            try:
                record, end = _decode(content)
                if end != len(content):
                    raise ValueError(f"{len(content) - end} characters after the record")
                self._take(record["kind"], record)
            except _NewerSchemaError as error:
                self._reading.problems.append(str(error))
                self._run = None
                return
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                if line.endswith(b"\n"):
                    self._damage(number, f"is not a record ({type(error).__name__}: {str(error)[:100]})")
        self._finish()
        if not self._reading.runs and not self._reading.problems:
            self._reading.problems.append("holds no whole record of a run: the run that was to write it barely began")

    def _take(self, kind: str, record: dict[str, Any]) -> None:
        if kind == "session":
            self._finish()
            self._run = _RunBuilder(self._reading, record)
        elif kind in _RunBuilder.TAKES:
            if self._run is None:
                self._reading.problems.append("does not begin with a session record: what ran, and where, is not known")
                self._run = _RunBuilder(self._reading, {})
            _RunBuilder.TAKES[kind](self._run, record)

    def _damage(self, number: int, what: str) -> None:
        self._damaged += 1
        if self._damaged <= _NAMED_LINES:
            self._reading.problems.append(f"line {number} {what}; the rest is read")

    def _finish(self) -> None:
        if self._damaged > _NAMED_LINES:
            self._reading.problems.append(f"{self._damaged - _NAMED_LINES} more lines are damaged")
            self._damaged = 0
        if self._run is not None:
            self._reading.runs.append(self._run.run())
        self._run = None


def _lines(file: IO[bytes]) -> Iterator[bytes | None]:
    """Yield the lines of a file; ``None`` for one that is too long to be a record."""
    while line := file.readline(LINE_LIMIT):
        if len(line) < LINE_LIMIT or line.endswith(b"\n"):
            yield line
            continue
        while (rest := file.readline(LINE_LIMIT)) and not rest.endswith(b"\n"):
            pass
        yield None


class _NewerSchemaError(Exception):
    """The report is of a schema that this reader does not know."""


class _RunBuilder:
    """Gather the records of one run."""

    def __init__(self, reading: Reading, session: dict[str, Any]) -> None:
        path = self._path = reading.path
        self._seen = reading.seen
        schema = str(session.get("schema", MAJOR))
        if schema.partition(".")[0] != MAJOR:
            raise _NewerSchemaError(
                f"has schema {schema}, which this version of pytest-sglhw can't read (valid: {MAJOR}.x). "
                "Merge with the version that wrote it."
            )
        lane = session.get("lane")
        self._facts: dict[str, Any] = {
            "run_id": str(session.get("run_id") or f"unnamed:{os.path.abspath(path)}"),
            "lane": str(lane) if lane else lane_of_path(path),
            "named": bool(lane),
            "shard": str(session["shard"]) if session.get("shard") else None,
            "attempt": number(session.get("attempt"), 1),
            "time": float(number(session.get("time"), 0)),
            "fake": str(session["fake"]) if session.get("fake") else None,
            "promise": mapping(session.get("promise")),
            "environment": mapping(session.get("environment")),
        }
        self._rows: list[Row] = []
        self._files: set[FileRow] = set()
        self._open: Counter[str] = Counter()
        self._deaths: set[tuple[str, str]] = set()

    def environment(self, record: dict[str, Any]) -> None:
        self._facts["environment"] = mapping(record["environment"]) or self._facts["environment"]

    def collect(self, record: dict[str, Any]) -> None:
        self._files.add(FileRow(text(record["nodeid"]), str(record.get("outcome")), str(record.get("reason") or "")))

    def start(self, record: dict[str, Any]) -> None:
        self._open[text(record["nodeid"])] += 1

    def test(self, record: dict[str, Any]) -> None:
        row = row_of(record, len(self._rows), self._seen)
        self._rows.append(row)
        left = self._open.get(row.nodeid, 0) - 1
        if left > 0:
            self._open[row.nodeid] = left
        elif left == 0:
            del self._open[row.nodeid]

    def worker(self, record: dict[str, Any]) -> None:
        if record.get("outcome") == "crashed":
            self._deaths.add((text(record["worker"]), str(record.get("reason") or "")))

    def end(self, record: dict[str, Any]) -> None:
        status = record.get("exit_status")
        broken = record.get("broken_promises")
        self._facts["ended"] = True
        self._facts["exit_status"] = status if type(status) is int else None
        self._facts["broken_promises"] = tuple(map(str, broken)) if isinstance(broken, list) else ()

    TAKES: ClassVar = {
        "environment": environment,
        "collect": collect,
        "start": start,
        "test": test,
        "worker": worker,
        "end": end,
    }

    def run(self) -> Run:
        results = Counter(row.nodeid for row in self._rows if row.nodeid in self._open)
        starts = {(nodeid, results[nodeid] + nth) for nodeid, left in self._open.items() for nth in range(1, left + 1)}
        return Run(
            **self._facts,
            rows=tuple(self._rows),
            files=frozenset(self._files),
            open_starts=frozenset(starts),
            deaths=frozenset(self._deaths),
            paths=frozenset({self._path}),
        )


_WORDS = frozenset(OUTCOMES)


def row_of(record: dict[str, Any], seq: int, seen: dict[Any, Any]) -> Row:
    """Turn a ``test`` record into a row, whatever its optional keys hold.

    :raises TypeError: the record has no text as ``nodeid``
    """
    get = record.get
    nodeid = seen.setdefault(value, value) if type(value := record["nodeid"]) is str else text(value)
    outcome = get("outcome")
    reason = get("reason") or ""
    if outcome not in _WORDS:
        reason = f"unknown outcome {outcome!r} {reason}".rstrip()
        outcome = "error"
    reason = reason if type(reason) is str else str(reason)
    duration = get("duration")
    attempt = get("attempt")
    examples = get("examples")
    peak_memory = get("peak_memory")
    return Row(
        seq,
        nodeid,
        nodeid if get("kernel") is None else tuple(str(get(key) or "") for key in MATRIX_KEYS),
        seen.setdefault(outcome, outcome),
        str(get("phase") or ""),
        duration if type(duration) is float and 0 <= duration < 1e9 else float(number(duration, 0)),
        _optional(get("platform"), seen),
        _optional(get("requirement"), seen),
        _optional(get("state"), seen),
        _optional(get("reason_code"), seen),
        seen.setdefault(reason, reason),
        _optional(get("worker"), seen),
        attempt if type(attempt) is int and attempt > 0 else 1,
        _marks(get("marks"), seen),
        examples if type(examples) is int else None,
        peak_memory if type(peak_memory) is int and peak_memory >= 0 else None,
    )


def _marks(value: object, seen: dict[Any, Any]) -> tuple[str, ...]:
    if type(value) is not list:
        return ()
    marks = tuple(map(str, value))
    shared: tuple[str, ...] = seen.setdefault(marks, marks)
    return shared


def _optional(value: object, seen: dict[Any, Any]) -> str | None:
    if value is None:
        return None
    given = value if type(value) is str else str(value)
    shared: str = seen.setdefault(given, given)
    return shared


def text(value: object) -> str:
    """Return a value that has to be a text."""
    if not isinstance(value, str):
        raise TypeError(f"not a text: {value!r}")
    return value


def mapping(value: object) -> dict[str, Any] | None:
    """Return a value that is to be a table, if it is one that a program could have meant."""
    return value if isinstance(value, dict) and _nested(value, 12) else None


def _nested(value: object, levels: int) -> bool:
    """Whether ``value`` is nested at most so deep: what is deeper can't be encoded again."""
    if not isinstance(value, (dict, list)):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_nested(each, levels - 1) for each in inner)


def number(value: object, otherwise: int) -> int | float:
    """Return a sane number, else ``otherwise``."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15
    return value if good else otherwise  # type: ignore[return-value]
