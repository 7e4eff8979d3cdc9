"""Reading JUnit XML: ours, pytest's own, other tools', cut and hostile."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_sglhw.report.junit import nodeid_of
from pytest_sglhw.report.merge import FileRow
from pytest_sglhw.report.reader import read_file

from .test_recorder import ATTACH, EXPECTED, SUITE, WORKERS

FOREIGN = """<?xml version="1.0"?>
<testsuites><testsuite name="com.example.Suite" timestamp="2026-01-02T03:04:05">
<testcase classname="com.example.CacheTest" name="moves &lt;pages&gt;" time="1,234.5"/>
<testcase classname="com.example.CacheTest" name="fails"><failure message="expected 1">trace</failure></testcase>
<testcase classname="com.example.CacheTest" name="breaks"><error>no message
at line 2</error></testcase>
<testcase classname="com.example.CacheTest" name="rests"><skipped/></testcase>
</testsuite></testsuites>
"""


def _read(tmp_path, text, name="lane.xml"):
    path = tmp_path / name
    path.write_text(text)
    return read_file(str(path))


def _run_pytest(pytester, *args):
    pytester.runpytest_subprocess("-p", "sglhw", "--junitxml", "j.xml", *args, timeout=60)
    return read_file(str(pytester.path / "j.xml"))


def test_foreign_junit(tmp_path):
    """JUnit of other tools keeps its names; each kind of element gives its outcome."""
    reading = _read(tmp_path, FOREIGN)

    (run,) = reading.runs
    assert (run.lane, run.named, run.ended, run.time) == ("lane", False, True, 1767323045.0)
    assert [(row.nodeid, row.outcome, row.reason) for row in run.rows] == [
        ("com.example.CacheTest::moves <pages>", "passed", ""),
        ("com.example.CacheTest::fails", "failed", "expected 1"),
        ("com.example.CacheTest::breaks", "error", "no message"),
        ("com.example.CacheTest::rests", "skipped", ""),
    ]
    assert run.rows[0].duration == 1234.5


def test_junit_of_pytest(pytester):
    """pytest's own JUnit XML, without a property of ours, gives the node ids and the outcomes that it can tell."""
    pytester.makepyfile(
        test_all=SUITE, test_gone="import no_such_module", test_off="import pytest\npytest.importorskip('no')"
    )

    (run,) = _run_pytest(pytester, "--continue-on-collection-errors").runs

    told = {"xpassed": "passed"}
    found = {row.nodeid: row.outcome for row in run.rows}
    assert {name: found[f"test_all.py::{name}"] for name in EXPECTED if name != "test_fails_twice"} == {
        name: told.get(word, word) for name, (word, _, _) in EXPECTED.items() if name != "test_fails_twice"
    }
    assert sorted(row.outcome for row in run.rows if row.nodeid.endswith("fails_twice")) == ["error", "failed"]
    assert run.files == {
        FileRow("test_gone.py", "failed", "ModuleNotFoundError: No module named 'no_such_module'"),
        FileRow("test_off.py", "skipped", "could not import 'no': No module named 'no'"),
    }


@WORKERS
def test_our_properties(pytester, workers):
    """Marked tests carry our facts as properties, and these win over what JUnit can say."""
    pytester.makeconftest(ATTACH)
    pytester.makepyfile(
        test_marked="""
            import pytest

            class TestIt:
                @pytest.mark.facts(outcome="raised")
                def test_raised(self): pass
            def test_plain(): pass
        """
    )

    (run,) = _run_pytest(pytester, *workers).runs

    found = {row.nodeid: (row.outcome, row.platform, row.reason_code) for row in run.rows}
    assert found == {
        "test_marked.py::TestIt::test_raised": ("raised", "rocm", "capability:kv4"),
        "test_marked.py::test_plain": ("passed", None, None),
    }


def test_properties_can_be_switched_off(pytester):
    """``--sglhw-junit-properties off`` leaves the XML as pytest writes it."""
    pytester.makeconftest(ATTACH)
    pytester.makepyfile(test_marked="import pytest\n@pytest.mark.facts\ndef test_it(): pass")

    _run_pytest(pytester, "--sglhw-junit-properties", "off")

    assert "propert" not in (pytester.path / "j.xml").read_text()


def test_crashed_worker_in_junit(pytester):
    """The death of a worker is ``crashed`` from JUnit XML too."""
    pytester.makepyfile(test_crash="import os, signal\ndef test_dies(): os.kill(os.getpid(), signal.SIGKILL)")

    (run,) = _run_pytest(pytester, "-p", "xdist", "-n", "1").runs

    assert [(row.nodeid, row.outcome) for row in run.rows] == [("test_crash.py::test_dies", "crashed")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, len(FOREIGN) - 1))
def test_cut_junit(tmp_path, cut):
    """JUnit XML cut anywhere gives the test cases that were whole, and is never taken for a whole run."""
    reading = _read(tmp_path, FOREIGN[:cut])

    whole = FOREIGN[:cut].count("</testcase>") + FOREIGN[:cut].count('1,234.5"/>')
    assert sum(len(run.rows) for run in reading.runs) == whole
    complete = FOREIGN[:cut].rstrip().endswith("</testsuites>")
    assert [run.ended for run in reading.runs] in ([], [complete])
    assert bool(reading.problems) != complete


def test_entities_are_refused(tmp_path):
    """A document type is refused before an entity can be expanded or fetched."""
    bomb = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;">]><testsuite><testcase name="&y;"/></testsuite>'
    outside = '<!DOCTYPE a SYSTEM "file:///etc/passwd"><testsuite/>'

    assert _read(tmp_path, bomb).runs == _read(tmp_path, outside).runs == []


def test_same_file_under_two_names(tmp_path):
    """A copy of a JUnit file is the same run in the same lane, and another run in another lane."""
    named = FOREIGN.replace(
        'name="rests">', 'name="rests"><properties><property name="sglhw.lane" value="java"/></properties>'
    )

    ids = [_read(tmp_path, text, name).runs[0].run_id for text in (FOREIGN, named) for name in ("a.xml", "b.xml")]

    assert len(set(ids)) == 3
    assert ids[2] == ids[3]


@pytest.mark.parametrize(("attributes", "nodeid"), [
    ({"classname": "tests.gpu.test_a", "name": "test_x[1.5]"}, "tests/gpu/test_a.py::test_x[1.5]"),
    ({"classname": "tests.test_a.TestA.TestB", "name": "test_x"}, "tests/test_a.py::TestA::TestB::test_x"),
    ({"classname": "cache_test.TestA", "name": "x"}, "cache_test.py::TestA::x"),
    ({"classname": "checks.kv.TestA", "name": "x", "file": "checks/kv.py"}, "checks/kv.py::TestA::x"),
    ({"classname": "com.example.Foo", "name": "bar"}, "com.example.Foo::bar"),
    ({"classname": "", "name": "alone"}, "alone"),
])  # fmt: skip
def test_nodeid(attributes, nodeid):
    """The node id is rebuilt where the names are pytest's, and left alone elsewhere."""
    assert nodeid_of(attributes) == nodeid
