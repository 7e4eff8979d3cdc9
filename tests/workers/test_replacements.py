"""Workers that are replaced, or not: what becomes of the tests that were theirs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_sglhw.workers.left_over import LeftOver
from pytest_sglhw.workers.scheduling import SCHEDULERS

from .helpers import records_of
from .helpers import run_reporting as run


@pytest.fixture(autouse=True)
def _outermost(monkeypatch):
    """These tests may run in a worker themselves."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


STARTS_BADLY = """
    import os
    if "PYTEST_XDIST_WORKER" in os.environ:
        {code}
"""


@pytest.mark.parametrize("how", [("--tx", "popen", "--dist", "load"), ("-n", "2")], ids=["tx", "n"])
def test_a_worker_whose_conftest_fails_ends_the_run(pytester: pytest.Pytester, how):
    """Each replacement would fail as well, without ``-n`` for ever: the run ends at the first, with its own words."""
    pytester.makeconftest(STARTS_BADLY.format(code="1 / 0"))
    pytester.makepyfile(test_it="def test_a(): pass\n")
    result = run(pytester, *how)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    error = f"ZeroDivisionError: division by zero (from {pytester.path / 'conftest.py'})"
    result.stderr.fnmatch_lines([f"ERROR: worker gw*: it could not start: *{error}"])
    result.stdout.fnmatch_lines(
        ["*gw* node down: Traceback *", "*conftest.py*", "*ZeroDivisionError: division by zero"]
    )
    assert records_of(pytester)[-1]["exit_status"] == pytest.ExitCode.USAGE_ERROR


def test_workers_that_die_at_their_start_end_a_run_without_a_limit(pytester: pytest.Pytester):
    """xdist knows a limit with ``-n`` alone; after four for each worker nothing else is to be expected."""
    pytester.makeconftest(STARTS_BADLY.format(code="os._exit(3)"))
    pytester.makepyfile(test_it="def test_a(): pass\n")
    result = run(pytester, "--tx", "popen", "--dist", "load")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    last = "ERROR: 5 workers in a row died before they had collected, the last one gw4 (exit status 3)."
    assert f"{last} xdist would start others for ever; --max-worker-restart N sets a limit." in result.stderr.lines


KILLS = """
    import os, pytest

    @pytest.mark.xdist_group("first")
    @pytest.mark.parametrize("n", range({tests}))
    def test_n(n):
        if n == 1:
            os._exit(3)
"""


@pytest.mark.parametrize("dist", ["load", "loadgroup", "loadscope", "worksteal"])
def test_tests_that_no_worker_was_left_for_are_told(pytester: pytest.Pytester, dist):
    """Each has its record and its word in the terminal and in JUnit XML."""
    pytester.makepyfile(test_it=KILLS.format(tests=6))
    result = run(pytester, "-n", "1", "--max-worker-restart", "0", "--dist", dist, "--junitxml", "junit.xml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    tests = {r["nodeid"]: r for r in records_of(pytester) if r["kind"] == "test"}
    assert {nodeid: r["outcome"] for nodeid, r in tests.items()} == {
        f"test_it.py::test_n[{n}]": ("passed", "crashed")[n] if n < 2 else "not_run" for n in range(6)
    }
    last = tests["test_it.py::test_n[5]"]
    reason = "no worker was left to run it: gw0 died, and xdist starts no other (--max-worker-restart 0)"
    assert (last["reason_code"], last["reason"], last["phase"]) == ("no_worker", reason, "setup")
    assert records_of(pytester)[-1]["counts"] == {"passed": 1, "crashed": 1, "not_run": 4}
    result.stdout.fnmatch_lines(
        ["sglhw: 4 tests were not run, the first of them test_it.py::test_n[[]2]*: no worker was left*", "*4 not run*"]
    )
    assert pytester.path.joinpath("junit.xml").read_text().count(f'message="{reason}"') == 4


#: Begins a module whose workers wait for one another.
WAITS = """
    import os, pathlib, pytest, time
    def wait_for(name):
        until = time.monotonic() + 60
        while not os.path.exists(name):
            assert time.monotonic() < until, name
            time.sleep(0.02)
"""


@pytest.mark.parametrize(
    "options", [("--sglhw-report", "report.jsonl", "-p", "no:terminal"), ()], ids=["no-terminal", "no-report"]
)
def test_tests_that_never_ran_make_no_green_run(pytester: pytest.Pytester, options):
    """Where no test is to blame for the death of the worker: exit status 1, whoever is there to say why."""
    pytester.makeconftest(
        """
        import pathlib, pytest
        @pytest.hookimpl(trylast=True)  # the controller has been told
        def pytest_collection_finish(session):
            pathlib.Path("collected").touch()
        """
    )
    pytester.makepyfile(
        test_it=WAITS
        + """
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw0":
        wait_for("collected")
        time.sleep(0.3)
        os._exit(3)
    def test_a(): pass
        """
    )
    args = ("-p", "sglhw", "-p", "xdist", "-p", "no:cacheprovider", "-n", "2", "--max-worker-restart", "0", *options)
    result = pytester.runpytest_subprocess(*args, timeout=60)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    if options:
        assert records_of(pytester)[-1]["counts"] == {"not_run": 1}
    else:
        result.stdout.fnmatch_lines(["sglhw: 1 test was not run, test_it.py::test_a: no worker was left to run it: *"])


@pytest.mark.parametrize("status", [pytest.ExitCode.INTERRUPTED, pytest.ExitCode.USAGE_ERROR])
def test_a_run_that_ended_otherwise_left_no_test_over(status):
    """What an interrupt left out, also after a crash, is not among the tests that a crash kept from running."""
    reports: list[pytest.TestReport] = []
    hook = SimpleNamespace(pytest_runtest_logreport=lambda report: reports.append(report))  # noqa: PLW0108 - by keyword
    config = SimpleNamespace(
        option=SimpleNamespace(maxworkerrestart=0), hook=hook, pluginmanager=pytest.PytestPluginManager()
    )
    left_over = LeftOver(config, ["test_it.py::test_a"], "gw0")
    left_over.pytest_sessionfinish(SimpleNamespace(exitstatus=status))
    assert not reports
    left_over.pytest_sessionfinish(SimpleNamespace(exitstatus=pytest.ExitCode.OK))
    assert [report.nodeid for report in reports] == ["test_it.py::test_a"]


def test_a_lane_names_the_tests_that_were_not_run(pytester: pytest.Pytester):
    """They break its promise, however few it asks for."""
    pytester.makefile(".toml", sglhw='[lanes.cpu]\nplatform = "cpu"\n')
    pytester.makepyfile(test_it=KILLS.format(tests=4))
    result = run(pytester, "-n", "1", "--max-worker-restart", "0", "--sglhw-lane", "cpu")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "PROMISE BROKEN: tests that were not run: 2",
            "  2 x no worker was left to run it: gw0 died*: test_it.py::test_n[[]2], test_it.py::test_n[[]3]",
        ]
    )


@pytest.mark.parametrize("dist", ["load", "loadfile", "loadgroup", "loadscope", "worksteal"])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_rest_goes_on_however_it_is_distributed(pytester: pytest.Pytester, dist, workers):
    """A test that crashed is not run again, and no replacement waits for ever."""
    pytester.makepyfile(test_it=KILLS.format(tests=3), test_other=KILLS.format(tests=2))
    run(pytester, "-n", workers, "--dist", dist)
    tests = {r["nodeid"]: r["outcome"] for r in records_of(pytester) if r["kind"] == "test"}
    assert tests == {
        f"test_{file}.py::test_n[{n}]": "crashed" if n == 1 else "passed"
        for file, count in (("it", 3), ("other", 2))
        for n in range(count)
    }
    assert records_of(pytester)[-1]["counts"] == {"passed": 3, "crashed": 2}


class DeadWorker:
    """A worker that died, which nobody has told yet."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw0")

    def send_runtest_some(self, indices):
        raise BrokenPipeError

    def shutdown(self):
        self.shutting_down = True


@pytest.mark.parametrize("dist", ["load", "loadfile", "loadgroup", "loadscope", "worksteal"])
def test_what_is_sent_to_a_worker_that_just_died_is_taken_back(dist):
    """The scheduler keeps it as that worker's, and gives it away again when the death is told."""
    option = SimpleNamespace(tx=["popen"], loadscopereorder=True, maxschedchunk=None)
    config = SimpleNamespace(option=option, getvalue=vars(option).get, getoption=vars(option).get)
    scheduler = SCHEDULERS[dist](config, None)
    node = DeadWorker()
    scheduler.add_node(node)
    scheduler.add_node_collection(node, ["t.py::a", "t.py::b"])
    scheduler.schedule()
    assert scheduler.remove_node(node) == "t.py::a"


@pytest.mark.parametrize("dist", ["loadfile", "loadgroup", "loadscope"])
def test_a_crash_while_a_replacement_collects(pytester: pytest.Pytester, dist):
    """The replacement gets its work when it knows the tests."""
    source = (
        WAITS
        + """
    who = os.environ["PYTEST_XDIST_WORKER"]
    pathlib.Path(who).touch()
    if who == "gw2":
        wait_for("gw3")  # the other has crashed, and is replaced

    @pytest.mark.xdist_group('{number}')
    @pytest.mark.parametrize("n", range(3))
    def test_n(n):
        if n == 0:
            if {number}:
                wait_for("gw2")
            os._exit(3)
    """
    )
    pytester.makepyfile(**{f"test_{number}": source.format(number=number) for number in (0, 1)})
    result = run(pytester, "-n", "2", "--dist", dist)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert records_of(pytester)[-1]["counts"] == {"passed": 4, "crashed": 2}


@pytest.mark.parametrize("dies", ["here", "before"])
def test_a_crashed_test_of_a_group_has_its_own_id(pytester: pytest.Pytester, dies):
    """``--dist loadgroup`` writes ``@group`` behind ids, also where the worker dies before it says what it begins."""
    pytester.makepyfile(
        test_it="""
        import os, pytest
        @pytest.mark.xdist_group("a@b")
        @pytest.mark.parametrize("text", ["x@y", "z"])
        def test_text(text):
            if text == "x@y": os._exit(3)
        def test_alone(): pass
        """
    )
    if dies == "before":
        pytester.makeconftest(
            """
            import os, pytest
            @pytest.hookimpl(tryfirst=True)
            def pytest_runtest_protocol(item):
                if "PYTEST_XDIST_WORKER" in os.environ and item.name == "test_text[x@y]":
                    os._exit(3)
            """
        )
    run(pytester, "-n", "2", "--dist", "loadgroup")
    assert {r["nodeid"]: r["outcome"] for r in records_of(pytester) if r["kind"] == "test"} == {
        "test_it.py::test_text[x@y]": "crashed",
        "test_it.py::test_text[z]": "passed",
        "test_it.py::test_alone": "passed",
    }
