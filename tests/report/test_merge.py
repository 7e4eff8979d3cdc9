"""Merging runs, and the matrix of merged runs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_sglhw.report.matrix import build, label_of
from pytest_sglhw.report.merge import FileRow, Row, Run, Runs, merge
from pytest_sglhw.report.outcomes import OUTCOMES
from pytest_sglhw.report.reader import read_file

from .helpers import end, lane, result, session, start, write

NODES = ("t.py::a", "t.py::b", "u.py::c")


def _row(seq: int, nodeid: str, outcome: str, attempt: int = 1) -> Row:
    return Row(seq, nodeid, nodeid, outcome, "call", 0.1, "cuda", None, None, None, "", None, attempt, (), None)


ROWS = st.builds(_row, st.integers(0, 4), st.sampled_from(NODES), st.sampled_from(OUTCOMES), st.integers(1, 2))
MACHINES = st.sampled_from([None, {"platform": "cuda"}, {"platform": "cuda", "devices": [{"arch": "sm90"}]}])
RUNS = st.builds(
    Run,
    run_id=st.sampled_from("abc"),
    lane=st.sampled_from(["cuda", "rocm"]),
    named=st.booleans(),
    shard=st.sampled_from([None, "1/2", "2/2"]),
    attempt=st.integers(1, 2),
    time=st.sampled_from([0.0, 1.0]),
    environment=MACHINES,
    exit_status=st.sampled_from([None, 0, 1]),
    ended=st.booleans(),
    rows=st.lists(ROWS, max_size=5, unique=True).map(tuple),
    files=st.frozensets(
        st.builds(FileRow, st.sampled_from(NODES), st.just("failed"), st.sampled_from("xy")), max_size=2
    ),
    open_starts=st.frozensets(st.tuples(st.sampled_from(NODES), st.integers(1, 3)), max_size=2),
    paths=st.frozensets(st.sampled_from(["1.jsonl", "2.jsonl"]), max_size=2),
)


def _content(runs: Runs) -> dict[str, Run]:
    """Runs with the order of their rows left out: it is a set that is merged."""
    return {run_id: replace(run, rows=tuple(sorted(run.rows, key=repr))) for run_id, run in runs.items()}


@given(st.lists(RUNS, max_size=4), st.lists(RUNS, max_size=4), st.lists(RUNS, max_size=4))
def test_merge_is_associative(one, two, three):
    """How runs are grouped into merges does not matter."""
    left = merge(merge(merge(one).values(), two).values(), three)
    right = merge(one, merge(two, three).values())

    assert _content(left) == _content(right)


@given(st.lists(RUNS, max_size=6).flatmap(lambda runs: st.tuples(st.just(runs), st.permutations(runs))))
def test_order_does_not_matter(both):
    """In whatever order the runs come, the matrix is the same."""
    runs, shuffled = both

    assert _content(merge(runs)) == _content(merge(shuffled))
    assert build(merge(runs)) == build(merge(shuffled))


@given(st.lists(RUNS, max_size=6))
def test_no_record_is_lost(runs):
    """Every record of every run is in the merge, and every test of the merge in a cell of the matrix."""
    merged = merge(runs)

    for run in runs:
        assert set(run.rows) <= set(merged[run.run_id].rows)
        assert run.files <= merged[run.run_id].files
    in_cells = {
        row for column in build(merged).columns for cell in column.cells.values() for row in (*cell.last, *cell.earlier)
    }
    assert {row for run in merged.values() for row in run.rows} <= in_cells


@given(st.lists(RUNS, max_size=4))
def test_merging_twice_changes_nothing(runs):
    """A merge with itself is itself."""
    merged = merge(runs)

    assert _content(merge(merged.values(), merged.values())) == _content(merged)


def _matrix(*paths, expected=()):
    return build(merge(*(read_file(path).runs for path in paths)), expected)


def _cells(matrix):
    return {
        (label_of(test), column.label): column.cells[test].row.outcome
        for test in matrix.tests
        for column in matrix.columns
        if test in column.cells
    }


@given(cut=st.integers(1, 900))
def test_cut_copy_adds_nothing(tmp_path_factory, cut):
    """A run and a copy of it that was cut anywhere are the run."""
    path = tmp_path_factory.mktemp("cut")
    records = [session(), start("t.py::a"), result("t.py::a"), start("t.py::a"), result("t.py::a", "failed"), end(1)]
    whole = write(path / "whole.jsonl", records)
    copy = path / "copy.jsonl"
    copy.write_bytes("".join(json.dumps(record) + "\n" for record in records).encode()[:cut])

    (run,) = merge(read_file(str(copy)).runs, read_file(whole).runs).values() if read_file(str(copy)).runs else (None,)

    expected = read_file(whole).runs[0]
    assert run is None or replace(run, paths=expected.paths) == expected


def test_lanes_are_columns(tmp_path):
    """Each lane is a column; a test that a lane does not know has no cell there."""
    matrix = _matrix(
        lane(tmp_path, "cuda", result("t.py::a"), result("t.py::b", "failed")),
        lane(tmp_path, "rocm", result("t.py::a", "skipped"), result("u.py::c", "raised")),
    )

    assert [column.label for column in matrix.columns] == ["cuda", "rocm"]
    assert _cells(matrix) == {
        ("t.py::a", "cuda"): "passed",
        ("t.py::b", "cuda"): "failed",
        ("t.py::a", "rocm"): "skipped",
        ("u.py::c", "rocm"): "raised",
    }


def test_expected_lane_is_a_column(tmp_path):
    """A lane that sent nothing is a column of its own."""
    matrix = _matrix(lane(tmp_path, "cuda", result("t.py::a")), expected=["rocm", "cuda"])

    assert [(column.label, column.missing) for column in matrix.columns] == [("cuda", False), ("rocm", True)]


@pytest.mark.parametrize(("first", "second"), [
    ({"run_id": "r1", "attempt": 1}, {"run_id": "r2", "attempt": 2, "time": 1.0}),
    ({"run_id": "r1", "time": 5.0}, {"run_id": "r2", "time": 6.0}),
])  # fmt: skip
def test_last_attempt_wins(tmp_path, first, second):
    """Of several attempts the last decides (by number, else by time); the others stay visible."""
    matrix = _matrix(
        lane(tmp_path, "cuda", result("t.py::a", "passed"), **second),
        lane(tmp_path, "cuda", result("t.py::a", "failed"), result("t.py::b"), **first),
    )

    assert _cells(matrix) == {("t.py::a", "cuda"): "passed", ("t.py::b", "cuda"): "passed"}
    assert [row.outcome for row in matrix.columns[0].cells["t.py::a"].earlier] == ["failed"]


def test_attempts_within_a_run(tmp_path):
    """A test that was run again in its run ends in its last attempt."""
    matrix = _matrix(lane(tmp_path, "cuda", result("t.py::a", "failed", rerun=True), result("t.py::a", attempt=2)))

    cell = matrix.columns[0].cells["t.py::a"]
    assert (cell.row.outcome, [row.outcome for row in cell.earlier]) == ("passed", ["failed"])


def test_same_id_twice_shows_the_worst(tmp_path):
    """Two results of one attempt are both kept, and the worse one is shown."""
    matrix = _matrix(lane(tmp_path, "cuda", result("t.py::a"), result("t.py::a", "failed")))

    cell = matrix.columns[0].cells["t.py::a"]
    assert [row.outcome for row in cell.last] == ["failed", "passed"]


def test_shards_combine(tmp_path):
    """The shards of a lane are one column."""
    matrix = _matrix(
        lane(tmp_path, "cuda", result("t.py::a"), run_id="r1", shard="1/2"),
        lane(tmp_path, "cuda", result("t.py::b"), run_id="r2", shard="2/2"),
    )

    assert _cells(matrix) == {("t.py::a", "cuda"): "passed", ("t.py::b", "cuda"): "passed"}


def _machine(arch, runtime="12.8"):
    return {"platform": "cuda", "devices": [{"arch": arch}], "versions": {"runtime": runtime}}


def test_machines_are_kept_apart(tmp_path):
    """One lane on two archs or two runtimes is a column for each: neither result hides the other."""
    matrix = _matrix(
        lane(tmp_path, "cuda", result("t.py::a"), run_id="r1", environment=_machine("sm90")),
        lane(tmp_path, "cuda", result("t.py::a", "failed"), run_id="r2", environment=_machine("sm100")),
        lane(tmp_path, "cuda", result("t.py::a", "raised"), run_id="r3", environment=_machine("sm90", "13.0")),
    )

    assert _cells(matrix) == {
        ("t.py::a", "cuda (cuda sm90 12.8)"): "passed",
        ("t.py::a", "cuda (cuda sm100 12.8)"): "failed",
        ("t.py::a", "cuda (cuda sm90 13.0)"): "raised",
    }


def test_unknown_machine_joins_the_only_one(tmp_path):
    """A run that died before it knew its machine is an attempt of its lane, not a column."""
    died = write(tmp_path / "died.jsonl", [session(run_id="r1", environment=None, time=1.0), start("t.py::a")])

    matrix = _matrix(died, lane(tmp_path, "cuda", result("t.py::a"), run_id="r2", time=2.0))

    (column,) = matrix.columns
    assert column.cells["t.py::a"].row.outcome == "passed"
    assert [row.outcome for row in column.cells["t.py::a"].earlier] == ["crashed"]


def test_fake_is_kept_apart(tmp_path):
    """A faked machine never shares a column with a real one."""
    matrix = _matrix(
        lane(tmp_path, "cuda", result("t.py::a", "failed"), run_id="r1"),
        lane(tmp_path, "cuda", result("t.py::a"), run_id="r2", fake="cuda:sm90"),
    )

    assert [column.label for column in matrix.columns] == ["cuda (cuda sm90 12.8)", "cuda (faked cuda sm90 12.8)"]


def test_start_without_result_is_crashed(tmp_path):
    """Where a report was cut off, the test that was running is crashed there."""
    matrix = _matrix(write(tmp_path / "r", [session(), start("t.py::a"), result("t.py::a"), start("t.py::b")]))

    (column,) = matrix.columns
    assert _cells(matrix) == {("t.py::a", "cuda"): "passed", ("t.py::b", "cuda"): "crashed"}
    assert column.cells["t.py::b"].row.reason == "the report ends in this test: its process was killed or died"
    assert column.cut_off == list(column.runs)


CASE = {
    "provider": "torch",
    "kernel": "transfer_kv_direct",
    "layout": "page_first",
    "dtype": "float16",
    "page_size": 16,
}


def test_transfer_items_have_their_own_key(tmp_path):
    """Transfer-matrix items meet by kernel, layout, dtype and page size, whatever their node ids; a crash too."""
    matrix = _matrix(
        lane(tmp_path, "cuda", result("one.py::x", **CASE)),
        lane(tmp_path, "rocm", result("two.py::y", "failed", **CASE)),
        lane(tmp_path, "xpu", result("one.py::x", "crashed")),
    )

    name = "torch transfer_kv_direct[page_first-float16-page16]"
    assert _cells(matrix) == {(name, "cuda"): "passed", (name, "rocm"): "failed", (name, "xpu"): "crashed"}
    assert [group for group, _ in matrix.groups()] == ["transfer matrix: torch"]


def test_junit_gives_way_to_our_report(tmp_path):
    """Where a lane sent both, our report decides: JUnit XML of the same run knows less."""
    junit = tmp_path / "j.xml"
    junit.write_text(
        '<testsuite timestamp="2030-01-01T00:00:00"><testcase classname="t" name="a"><skipped/><properties>'
        '<property name="sglhw.lane" value="cuda"/><property name="sglhw.nodeid" value="t.py::a"/></properties>'
        "</testcase></testsuite>"
    )

    matrix = _matrix(str(junit), lane(tmp_path, "cuda", result("t.py::a", "xpassed")))

    assert _cells(matrix) == {("t.py::a", "cuda"): "xpassed"}
