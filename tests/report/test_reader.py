"""Reading files: ours, cut, damaged, foreign, huge."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_sglhw.report import reader
from pytest_sglhw.report.reader import lane_of_path, read_file

from .helpers import collect, end, result, session, start, write

WHOLE = [
    session("cuda"),
    collect("tests/test_gone.py", "failed", "ImportError: nope"),
    start("tests/test_a.py::test_1"),
    result("tests/test_a.py::test_1", reason_code="platform"),
    start("tests/test_a.py::test_2"),
    result("tests/test_a.py::test_2", "failed", reason="é and \N{SNOWMAN}"),
    end(1),
]


def test_whole_report(tmp_path):
    """A whole report gives its run with every fact and no problem."""
    reading = read_file(write(tmp_path / "r.jsonl", WHOLE))

    (run,) = reading.runs
    assert reading.problems == []
    assert (run.run_id, run.lane, run.named, run.ended, run.exit_status) == ("run-cuda", "cuda", True, True, 1)
    assert run.signature == ("cuda", "sm90", "12.8")
    assert [(row.nodeid, row.outcome, row.reason_code) for row in run.rows] == [
        ("tests/test_a.py::test_1", "passed", "platform"),
        ("tests/test_a.py::test_2", "failed", None),
    ]
    assert run.files == {("tests/test_gone.py", "failed", "ImportError: nope")}
    assert run.open_starts == frozenset()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, sum(len(json.dumps(record)) + 1 for record in WHOLE)))
def test_cut_at_any_byte(tmp_path, cut):
    """A report cut at any byte is read up to its last whole record, and says that it was cut off."""
    data = b"".join(json.dumps(record).encode() + b"\n" for record in WHOLE)[:cut]
    path = tmp_path / "cut.jsonl"
    path.write_bytes(data)

    reading = read_file(str(path))

    whole = [json.loads(line) for line in data.split(b"\n") if line.endswith(b"}") and _is_json(line)]
    runs = reading.runs
    if not whole:
        assert runs == []
        return
    assert [row.nodeid for row in runs[0].rows] == [r["nodeid"] for r in whole if r["kind"] == "test"]
    assert runs[0].ended == any(r["kind"] == "end" for r in whole)
    started = [r["nodeid"] for r in whole if r["kind"] == "start"]
    finished = [r["nodeid"] for r in whole if r["kind"] == "test"]
    assert {nodeid for nodeid, _ in runs[0].open_starts} == set(started) - set(finished)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


NEITHER = (
    "is neither a report of pytest-sglhw nor JUnit XML: it begins with {!r}. "
    "Give files that --sglhw-report or --junitxml wrote."
)


NO_RECORD = "holds no whole record of a run: the run that was to write it barely began"


@pytest.mark.parametrize(("data", "problem"), [
    (b"", "is empty: the run that was to write it never began"),
    (b" \n\n", "is empty: the run that was to write it never began"),
    (b'{"kind":"session","schema":"1.0","run_id":"ab', NO_RECORD),
    (b"{}", NO_RECORD),
    (b'{"kind":"mood"}\n', NO_RECORD),
    (b"\x00\x01binary", NEITHER.format(b"\x00\x01binary")),
    (b"PK\x03\x04zip", NEITHER.format(b"PK\x03\x04zip")),
    (b"<html><body>", "is XML, but not JUnit's: it begins with <html>"),
    (b"<!DOCTYPE a [<!ENTITY b 'c'>]><testsuites/>",
     "is refused: it declares a document type, which JUnit XML has no use for"),
    (b"<testsuites", "is cut off or broken: unclosed token: line 1, column 0; what stands before that is read"),
])  # fmt: skip
def test_foreign_files(tmp_path, data, problem):
    """A file that is no report is named with what it is, and gives no run."""
    path = tmp_path / "x"
    path.write_bytes(data)

    reading = read_file(str(path))

    assert (reading.runs, reading.problems) == ([], [problem])


def test_missing_file(tmp_path):
    """A file that is not there is named."""
    assert read_file(str(tmp_path / "no")).problems == ["can't be read: No such file or directory"]
    assert read_file(str(tmp_path)).problems == ["can't be read: Is a directory"]


@pytest.mark.parametrize("schema", ["2.0", "0.9", 2, "x"])
def test_other_major_schema(tmp_path, schema):
    """A report of another major schema is refused with what can be read."""
    reading = read_file(write(tmp_path / "r", [session(schema=schema), *WHOLE[1:]]))

    assert reading.runs == []
    (problem,) = reading.problems
    assert problem == (
        f"has schema {schema}, which this version of pytest-sglhw can't read (valid: 1.x). "
        "Merge with the version that wrote it."
    )


def test_newer_minor_schema(tmp_path):
    """Of a newer minor schema, unknown kinds and keys are ignored and the rest is read."""
    newer = [session(schema="1.7", colour="red"), {"kind": "mood", "is": "good"}, result("t.py::a", speed=9), end()]

    reading = read_file(write(tmp_path / "r", newer))

    assert reading.problems == []
    assert [row.nodeid for row in reading.runs[0].rows] == ["t.py::a"]


def test_damaged_lines(tmp_path):
    """A damaged line is named with its number; the lines around it are read."""
    path = tmp_path / "r"
    good = [json.dumps(record) for record in WHOLE]
    bad = ["{nonsense", "[1, 2]", '{"kind": "test"}', '{"kind": "test", "nodeid": 7}', "null", "[" * 100_000]
    path.write_text("\n".join([*good[:2], *bad, *good[2:]]) + "\n")

    reading = read_file(str(path))

    assert [row.nodeid for row in reading.runs[0].rows] == ["tests/test_a.py::test_1", "tests/test_a.py::test_2"]
    assert reading.runs[0].ended
    assert [problem.partition(" is not a record")[0] for problem in reading.problems] == [
        *(f"line {number}" for number in (3, 4, 5, 6, 7)), "1 more lines are damaged",
    ]  # fmt: skip


def test_gigantic_line(tmp_path, monkeypatch):
    """A line longer than any record is skipped without being held, and named."""
    monkeypatch.setattr(reader, "LINE_LIMIT", 4 << 20)
    path = tmp_path / "r"
    first, *rest = (json.dumps(record).encode() + b"\n" for record in WHOLE)
    with path.open("wb") as file:
        file.write(first)
        for _ in range(20):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + b"".join(rest))

    reading = read_file(str(path))

    assert reading.problems == ["line 2 is longer than 4 MiB; the rest is read"]
    assert len(reading.runs[0].rows) == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["nodeid", "outcome", "duration", "platform", "attempt", "reason", "marks", "kernel", "phase"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
            max_leaves=4,
        ),
    )
)
def test_any_values(tmp_path, facts):
    """Whatever the keys of a record hold, reading it neither raises nor loses the record after it."""
    records = [session(), {"kind": "test", **facts}, result("t.py::after"), end()]

    reading = read_file(write(tmp_path / "r", records))

    assert reading.runs[0].rows[-1].nodeid == "t.py::after"
    assert len(reading.runs[0].rows) + len(reading.problems) == 2


def test_unknown_outcome_is_not_green(tmp_path):
    """An outcome that no version knows is an error, with the word."""
    reading = read_file(write(tmp_path / "r", [session(), result("t.py::a", "fine", reason="so they say"), end()]))

    row = reading.runs[0].rows[0]
    assert (row.outcome, row.reason) == ("error", "unknown outcome 'fine' so they say")


def test_no_session(tmp_path):
    """Records without a session are read into a run that the file names, and that is said."""
    reading = read_file(write(tmp_path / "half.jsonl", WHOLE[1:]))

    assert reading.problems == ["does not begin with a session record: what ran, and where, is not known"]
    assert (reading.runs[0].lane, reading.runs[0].named, len(reading.runs[0].rows)) == ("half", False, 2)


def test_two_runs_in_one_file(tmp_path):
    """Reports that were written one after the other into one file are the runs they were."""
    reading = read_file(write(tmp_path / "r", [*WHOLE, session("rocm"), result("t.py::a")]))

    assert [(run.lane, len(run.rows), run.ended) for run in reading.runs] == [("cuda", 2, True), ("rocm", 1, False)]


def test_environment_that_came_later(tmp_path):
    """An environment that was probed during the run is that of the run."""
    later = {
        "kind": "environment",
        "environment": {"platform": "rocm", "devices": [{"arch": "gfx942"}], "versions": {}},
    }
    reading = read_file(write(tmp_path / "r", [session(environment=None), later, end()]))

    assert reading.runs[0].signature == ("rocm", "gfx942", None)


@pytest.mark.parametrize(("path", "lane"), [
    ("out/cuda.jsonl", "cuda"), ("reports-rocm/junit.xml", "reports-rocm"), ("cpu/report.jsonl", "cpu"),
])  # fmt: skip
def test_lane_of_path(path, lane):
    """A lane that no record names is named after the file or, where that says nothing, its directory."""
    assert lane_of_path(path) == lane
