"""Read JUnit XML: ours, pytest's without our properties, and that of other tools.

It stands on the standard library's expat, fed piece by piece: a file of any size needs the memory of its results only,
and one that was cut off is read up to there. A JUnit file has no use for a document type, so one that declares any is
refused before an entity can be defined: nothing is expanded and nothing is fetched.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from typing import IO, Any
from xml.parsers import expat

from pytest_sglhw.report.merge import FileRow, Row, Run
from pytest_sglhw.report.outcomes import OUTCOMES
from pytest_sglhw.report.reader import Reading, lane_of_path, row_of

_PIECE = 1 << 16

#: Longest text of an element that is kept as a reason.
_TEXT_LIMIT = 2000

_CRASH = re.compile(r"worker '\w+' crashed while running")

#: What pytest writes in place of a test for a file that gave none.
_COLLECTION = {"collection failure": "failed", "collection skipped": "skipped"}


def read_junit(file: IO[bytes], reading: Reading) -> None:
    """Add the one run that a JUnit file holds to ``reading``."""
    suite = _Suite(reading.path, reading.seen)
    digest = hashlib.sha256()
    try:
        while piece := file.read(_PIECE):
            digest.update(piece)
            suite.parser.Parse(piece, False)
        suite.parser.Parse(b"", True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        reading.problems.append(f"is cut off or broken: {error}; what stands before that is read")
        if not suite.begun:
            return
    except _ForeignError as error:
        reading.problems.append(str(error))
        return
    while piece := file.read(_PIECE):
        digest.update(piece)
    reading.runs.append(suite.run(digest.hexdigest()))


class _ForeignError(Exception):
    """The file is XML and not JUnit's."""


class _Suite:
    """Gather test cases from the events of the parser."""

    def __init__(self, path: str, seen: dict[Any, Any]) -> None:
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._doctype
        self._path = path
        self._seen = seen
        self.begun = False
        self._depth = 0
        self._case: dict[str, Any] | None = None
        self._text: list[str] | None = None
        self._rows: list[Row] = []
        self._files: set[FileRow] = set()
        self._lane: str | None = None
        self._time = 0.0
        self._ended = False

    def run(self, digest: str) -> Run:
        """Return what was read. The run's id is made of its content and its lane: JUnit has none."""
        lane = self._lane or lane_of_path(self._path)
        return Run(
            run_id=f"junit:{digest}:{lane}",
            lane=lane,
            named=self._lane is not None,
            time=self._time,
            ended=self._ended,
            rows=tuple(self._rows),
            files=frozenset(self._files),
            paths=frozenset({self._path}),
        )

    def _doctype(self, *_: object) -> None:
        raise _ForeignError("is refused: it declares a document type, which JUnit XML has no use for")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._depth == 0 and tag not in ("testsuites", "testsuite"):
            raise _ForeignError(f"is XML, but not JUnit's: it begins with <{tag}>")
        self.begun = True
        self._depth += 1
        if tag == "testsuite":
            self._time = max(self._time, _timestamp(attributes.get("timestamp", "")))
        elif tag == "testcase":
            self._case = {"attributes": attributes, "properties": {}, "results": {}}
        elif self._case is None:
            return
        elif tag in ("failure", "error", "skipped"):
            self._text = []
            self._case["results"][tag] = attributes
        elif tag == "property":
            self._case["properties"][attributes.get("name", "")] = attributes.get("value", "")

    def _end(self, tag: str) -> None:
        self._depth -= 1
        self._ended = self._depth == 0
        if tag == "testcase" and self._case is not None:
            self._finish(self._case)
            self._case = None
        elif tag in ("failure", "error", "skipped") and self._case is not None and self._text is not None:
            self._case["results"][tag]["text"] = "".join(self._text).strip()
            self._text = None

    def _characters(self, data: str) -> None:
        # The last line is the one that says what happened, so the end of a long text is what is kept.
        if self._text is not None:
            self._text[:] = [("".join(self._text) + data)[-_TEXT_LIMIT:]]

    def _finish(self, case: dict[str, Any]) -> None:
        attributes, properties = case["attributes"], case["properties"]
        results = case["results"]
        worst: dict[str, str] = next((results[tag] for tag in ("error", "failure", "skipped") if tag in results), {})
        lines = worst.get("text", "").splitlines() or [""]
        message = worst.get("message") or lines[0]
        if message in _COLLECTION and not attributes.get("classname"):
            self._files.add(FileRow(_file_of(attributes), _COLLECTION[message], _collection_reason(lines[-1])))
            return
        self._lane = self._lane or properties.get("sglhw.lane")
        record = {
            "nodeid": properties.get("sglhw.nodeid") or nodeid_of(attributes),
            "outcome": _outcome(results, properties.get("sglhw.outcome"), message),
            "duration": _seconds(attributes.get("time", "")),
            "platform": properties.get("sglhw.platform"),
            "reason_code": properties.get("sglhw.reason_code"),
            "reason": message,
        }
        self._rows.append(row_of(record, len(self._rows), self._seen))


def _collection_reason(line: str) -> str:
    skipped = re.search(r"""["']Skipped: (.*)["']\)$""", line)
    return skipped[1] if skipped else line.removeprefix("E  ").strip()


def _outcome(results: dict[str, dict[str, str]], stated: str | None, message: str) -> str:
    if stated in OUTCOMES:
        return stated
    if "error" in results:
        return "crashed" if _CRASH.search(message) else "error"
    if "failure" in results:
        return "failed"
    if "skipped" in results:
        return "xfailed" if results["skipped"].get("type") == "pytest.xfail" else "skipped"
    return "passed"


def nodeid_of(attributes: dict[str, str]) -> str:
    """Rebuild pytest's node id from a test case, so that it stands in the same row as the reports of other lanes.

    pytest writes ``tests.test_a.TestX`` for ``tests/test_a.py::TestX``; where the file is not given, it ends at the
    first part that looks like a test module. What other tools write stays as it is.
    """
    name, classname, file = attributes.get("name", ""), attributes.get("classname", ""), attributes.get("file")
    parts = classname.split(".") if classname else []
    if file and file.endswith(".py"):
        module = file.removesuffix(".py").replace("\\", "/").split("/")
        classes = parts[len(module) :] if parts[: len(module)] == module else []
        return "::".join(["/".join(module) + ".py", *classes, name])
    for at, part in enumerate(parts):
        if part.startswith("test_") or part.endswith("_test"):
            return "::".join(["/".join(parts[: at + 1]) + ".py", *parts[at + 1 :], name])
    return "::".join(filter(None, (classname, name)))


def _file_of(attributes: dict[str, str]) -> str:
    name = attributes.get("name", "")
    return attributes.get("file") or (name if name.endswith(".py") else name.replace(".", "/") + ".py")


def _seconds(value: str) -> float:
    try:
        return float(value.replace(",", ""))
    except ValueError:
        return 0.0


def _timestamp(value: str) -> float:
    try:
        moment = dt.datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)).timestamp()
