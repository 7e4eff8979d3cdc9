"""The report of real runs: one process and workers, failures of every kind, kills and interruptions."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from .helpers import read_records, results_of

WORKERS = pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["one-process", "workers"])

SUITE = """
    import pytest

    @pytest.fixture
    def broken():
        raise RuntimeError("no setup")

    @pytest.fixture
    def leaves():
        yield
        raise RuntimeError("no teardown")

    def test_passes(): pass
    def test_fails(): assert 1 == 2, "told so"
    def test_setup(broken): pass
    def test_teardown(leaves): pass
    def test_fails_twice(leaves): assert 0, "first"
    def test_skips_then_teardown(leaves): pytest.skip("inside")
    def test_skips(): pytest.skip("not today")
    @pytest.mark.skip(reason="marked")
    def test_marked(): pass
    @pytest.mark.xfail(reason="known")
    def test_xfails(): assert 0
    @pytest.mark.xfail(reason="known")
    def test_xpasses(): pass
    @pytest.mark.xfail(reason="known", strict=True)
    def test_strict(): pass
    @pytest.mark.xfail(run=False, reason="hangs")
    def test_not_even_run(): pass
"""

EXPECTED = {
    "test_passes": ("passed", "call", ""),
    "test_fails": ("failed", "call", "AssertionError: told so\nassert 1 == 2"),
    "test_setup": ("error", "setup", "RuntimeError: no setup"),
    "test_teardown": ("error", "teardown", "RuntimeError: no teardown"),
    "test_fails_twice": ("failed", "call", "AssertionError: first\nassert 0"),
    "test_skips_then_teardown": ("error", "teardown", "RuntimeError: no teardown"),
    "test_skips": ("skipped", "call", "not today"),
    "test_marked": ("skipped", "setup", "marked"),
    "test_xfails": ("xfailed", "call", "known"),
    "test_xpasses": ("xpassed", "call", "known"),
    "test_strict": ("failed", "call", "[XPASS(strict)] known"),
    "test_not_even_run": ("xfailed", "setup", "[NOTRUN] hangs"),
}


@WORKERS
def test_each_test_has_one_outcome(pytester, report, workers):
    """A test ends in one word, whichever of its phases decided, with the phase and the reason."""
    pytester.makepyfile(test_all=SUITE)

    records = report(*workers)

    found = {name: (r["outcome"], r["phase"], r["reason"]) for name, r in results_of(records).items()}
    assert found == EXPECTED
    assert records[-1]["counts"] == Counter(word for word, _, _ in EXPECTED.values())


@WORKERS
def test_records_of_a_run(pytester, report, workers):
    """A report begins with ``session``, has a ``start`` before each ``test``, and ends with ``end``."""
    pytester.makepyfile(test_two="def test_a(): pass\ndef test_b(): pass")

    records = report(*workers)

    kinds = [r["kind"] for r in records]
    assert (kinds[0], kinds[-1]) == ("session", "end")
    assert Counter(kinds) == {"session": 1, "start": 2, "test": 2, "end": 1}
    assert records[0]["schema"] == "1.0"
    assert (records[0]["lane"], records[0]["shard"], records[0]["attempt"], records[0]["fake"]) == (None, None, 1, None)
    assert set(results_of(records)["test_a"]) >= {
        "nodeid", "outcome", "duration", "platform", "lane", "worker", "attempt", "requirement", "state", "reason_code",
        "reason", "phase",
    }  # fmt: skip
    assert (records[-1]["exit_status"], records[-1]["counts"], records[-1]["collected"]) == (0, {"passed": 2}, 2)
    workers_seen = {r["worker"] for r in records if r["kind"] == "test"}
    assert workers_seen <= ({"gw0", "gw1"} if workers else {None})


@WORKERS
def test_files_without_tests(pytester, report, workers):
    """A file that fails to collect, is skipped whole or is empty is in the report with its reason, each of them."""
    pytester.makeconftest("import pytest\ndef need():\n    pytest.skip('no such thing', allow_module_level=True)\n")
    pytester.makepyfile(
        test_broken="import no_such_module",
        test_skipped_1="from conftest import need\nneed()",
        test_skipped_2="from conftest import need\nneed()",
        test_nothing="x = 1",
        test_fine="def test_it(): pass",
    )

    records = report("--continue-on-collection-errors", *workers)

    files = {r["nodeid"]: (r["outcome"], r["reason"]) for r in records if r["kind"] == "collect"}
    assert files == {
        "test_broken.py": ("failed", "ModuleNotFoundError: No module named 'no_such_module'"),
        "test_skipped_1.py": ("skipped", "no such thing"),
        "test_skipped_2.py": ("skipped", "no such thing"),
        "test_nothing.py": ("empty", "the file was collected and holds no test"),
    }
    assert records[-1]["files"] == {"failed": 1, "skipped": 2, "empty": 1}
    assert records[-1]["counts"] == {"passed": 1}


FACTS = {
    "marks": ["requires_kv4"],
    "requirement": "requires_kv4",
    "platform": "rocm",
    "state": "unavailable",
    "reason_code": "capability:kv4",
    "reason": "kv4 is for cuda; this is rocm",
}

ATTACH = f"""
    import pytest

    FACTS = {FACTS!r}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        if item.get_closest_marker("facts"):
            report.sglhw = dict(FACTS, **item.get_closest_marker("facts").kwargs)
        return report

    def pytest_configure(config):
        config.addinivalue_line("markers", "facts: test only")
"""


@WORKERS
def test_facts_of_gates(pytester, report, workers):
    """What ``gates`` attached is in the record, and its words ``raised`` and ``not_run`` count as outcomes."""
    pytester.makeconftest(ATTACH)
    pytester.makepyfile(
        test_facts="""
            import pytest

            @pytest.mark.facts
            def test_skipped(): pytest.skip("kv4 is for cuda; this is rocm")
            @pytest.mark.facts(outcome="raised")
            def test_raised(): pass
            @pytest.mark.facts(outcome="raised")
            def test_did_not(): assert 0, "DID NOT RAISE"
            @pytest.mark.facts(outcome="not_run", reason="poisoned by test_x")
            def test_poisoned(): assert 0
            @pytest.mark.facts(matrix={"provider": "torch", "kernel": "transfer_kv_direct", "layout": "page_first",
                                       "dtype": "float16", "page_size": 16, "examples": 25})
            def test_matrix(): pass
        """
    )

    found = results_of(report(*workers))

    assert {name: r["outcome"] for name, r in found.items()} == {
        "test_skipped": "skipped",
        "test_raised": "raised",
        "test_did_not": "failed",
        "test_poisoned": "not_run",
        "test_matrix": "passed",
    }
    assert {key: found["test_skipped"][key] for key in FACTS} == FACTS
    assert found["test_did_not"]["reason"].startswith("AssertionError: DID NOT RAISE")
    assert found["test_poisoned"]["reason"] == "poisoned by test_x"
    assert found["test_matrix"]["kernel"] == "transfer_kv_direct"
    assert found["test_matrix"]["examples"] == 25


@WORKERS
def test_subtests_count_as_their_test(pytester, report, workers):
    """A test with subtests has one outcome, and a failed subtest fails it."""
    pytester.makepyfile(
        test_sub="""
            import unittest

            class Test(unittest.TestCase):
                def test_good(self):
                    for i in range(3):
                        with self.subTest(i=i):
                            pass
                def test_bad(self):
                    for i in range(3):
                        with self.subTest(i=i):
                            self.assertNotEqual(i, 1)
        """
    )
    if pytest.version_tuple < (9,):
        pytest.skip("pytest 8 has no subtests of its own")

    records = report(*workers)

    found = results_of(records)
    assert {name: r["outcome"] for name, r in found.items()} == {
        "Test::test_good": "passed",
        "Test::test_bad": "failed",
    }
    assert found["Test::test_bad"]["reason"] == "AssertionError: 1 == 1"
    assert records[-1]["counts"] == {"passed": 1, "failed": 1}


def test_crashed_worker(pytester, report):
    """The death of a worker is ``crashed``, in the phase where the test stood, and the rest of the run is there."""
    pytester.makepyfile(
        test_crash="""
            import os, signal

            def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
            def test_lives(): pass
        """
    )

    records = report("-p", "xdist", "-n", "1")

    found = results_of(records)
    assert found["test_dies"]["outcome"] == "crashed"
    assert found["test_dies"]["phase"] == "call"
    assert found["test_dies"]["worker"] == "gw0"
    assert (
        found["test_dies"]["reason"] == "worker 'gw0' crashed while running 'test_crash.py::test_dies' (signal SIGKILL)"
    )
    assert found["test_lives"]["outcome"] == "passed"
    assert records[-1]["exit_status"] == 1


def test_interrupted_run(pytester, report):
    """A test that an interruption cut off is ``not_run``; a failure that came before it stays a failure."""
    pytester.makepyfile(
        test_stop="""
            import pytest

            def test_before(): pass
            @pytest.fixture
            def stops():
                yield
                raise KeyboardInterrupt
            def test_fails_then_stopped(stops): assert 0, "first"
            def test_after(): pass
        """
    )

    records = report()

    found = {name: (r["outcome"], r["phase"], r["reason"]) for name, r in results_of(records).items()}
    assert found == {
        "test_before": ("passed", "call", ""),
        "test_fails_then_stopped": ("failed", "call", "AssertionError: first\nassert 0"),
    }
    assert records[-1]["exit_status"] == 2


def test_exit_in_a_test(pytester, report):
    """``pytest.exit`` inside a test leaves it ``not_run`` with the reason."""
    pytester.makepyfile(test_stop="import pytest\ndef test_stops(): pytest.exit('enough')\ndef test_after(): pass\n")

    records = report()

    stopped = results_of(records)["test_stops"]
    assert (stopped["outcome"], stopped["phase"], stopped["reason_code"]) == ("not_run", "call", "interrupted")
    assert stopped["reason"] == "cut off: _pytest.outcomes.Exit: enough"
    assert records[-1]["counts"] == {"not_run": 1}


def test_killed_process(pytester):
    """A killed process leaves every record up to the ``start`` of the test in which it died, and no ``end``."""
    pytester.makepyfile(
        test_kill="""
            import os, signal

            def test_first(): pass
            def test_kills(): os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    command = [sys.executable, "-m", "pytest", "-p", "sglhw", "--sglhw-report", "r.jsonl"]

    done = subprocess.run(command, cwd=pytester.path, capture_output=True, timeout=60, check=False)

    assert done.returncode == -signal.SIGKILL
    records = read_records(pytester.path / "r.jsonl")
    assert [r["kind"] for r in records] == ["session", "start", "test", "start"]
    assert records[-1]["nodeid"] == "test_kill.py::test_kills"


def test_attempts(pytester, report):
    """A plugin that runs a failing test again gives a result for each attempt; only the last one counts."""
    pytester.makeconftest(
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):
            for attempt in range(2):
                item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
                for report in runtestprotocol(item, nextitem=nextitem, log=False):
                    report.rerun = attempt
                    if report.failed and not attempt:
                        report.outcome = "rerun"
                    item.ihook.pytest_runtest_logreport(report=report)
                    if report.outcome == "rerun":
                        break
                item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
                if report.outcome != "rerun":
                    break
            return True
        """
    )
    pytester.makepyfile(
        test_flaky="""
            calls = []

            def test_flaky():
                calls.append(1)
                assert len(calls) == 2
            def test_fine(): pass
        """
    )

    records = report()

    found = [(r["nodeid"], r["outcome"], r["attempt"], r.get("rerun")) for r in records if r["kind"] == "test"]
    assert found == [
        ("test_flaky.py::test_flaky", "failed", 1, True),
        ("test_flaky.py::test_flaky", "passed", 2, None),
        ("test_flaky.py::test_fine", "passed", 1, None),
    ]
    assert (records[-1]["counts"], records[-1]["reruns"]) == ({"passed": 2}, 1)


def test_same_id_twice(pytester, report):
    """Two tests with one node id are two results of the first attempt: neither replaces the other."""
    pytester.makepyfile(test_dup="def test_it(tmp_path_factory): pass")

    records = report("test_dup.py", "test_dup.py", "--keep-duplicates")

    assert [(r["outcome"], r["attempt"]) for r in records if r["kind"] == "test"] == [("passed", 1)] * 2


def test_forked_child_writes_nothing(pytester, report):
    """A test that forks, and whose child goes on in pytest, adds nothing to the report of the parent."""
    pytester.makepyfile(
        test_fork="""
            import os

            def test_forks():
                pid = os.fork()
                if pid:
                    assert os.waitpid(pid, 0)[1] != 0
                else:
                    raise SystemError("in the child")
        """
    )

    records = report("-s")

    assert [r["kind"] for r in records] == ["session", "start", "test", "end"]
    assert results_of(records)["test_forks"]["outcome"] == "passed"


@WORKERS
def test_fake_environment(pytester, report, workers):
    """A fake is in the report, as such and as the environment of the run."""
    pytester.makepyfile(test_it="def test_it(): pass")

    begun = report("--sglhw-fake", "rocm:gfx942*2", *workers)[0]

    assert begun["fake"] == "rocm:gfx942*2"
    assert (begun["environment"]["platform"], begun["environment"]["fake"]) == ("rocm", "rocm:gfx942*2")
    assert [device["arch"] for device in begun["environment"]["devices"]] == ["gfx942", "gfx942"]


@WORKERS
def test_refused_lane_reports(pytester, report, workers):
    """A lane that was refused before any test leaves a report with its promise and its exit status."""
    pytester.makefile(".toml", sglhw='[lanes.gpu]\nplatform = "rocm"\nmin_executed = 3\n')
    pytester.makepyfile(test_it="def test_it(): pass")

    records = report("--sglhw-lane", "gpu", "--sglhw-fake", "rocm", *workers)

    assert [r["kind"] for r in records] == ["session", "end"]
    assert (records[0]["lane"], records[0]["promise"]["min_executed"], records[-1]["exit_status"]) == ("gpu", 3, 4)


def test_nested_pytest_leaves_the_report_alone(pytester, monkeypatch):
    """A pytest that a test runs never writes into the report of the outer one."""
    monkeypatch.setenv("SGLHW_REPORT", "r.jsonl")
    monkeypatch.delenv("SGLHW_OUTER_PYTEST", raising=False)
    pytester.makepyfile(
        test_outer="""
            import subprocess, sys

            def test_outer():
                command = [sys.executable, "-m", "pytest", "-p", "sglhw", "inner.py"]
                assert subprocess.run(command).returncode == 0
        """,
        inner="def test_inner(): pass",
    )

    assert pytester.runpytest_subprocess("-p", "sglhw", timeout=60).ret == 0

    assert list(results_of(read_records(pytester.path / "r.jsonl"))) == ["test_outer"]


def test_only_fixtures_is_not_a_pass(pytester, report):
    """``--setup-only`` runs no test, so none is ``passed``."""
    pytester.makepyfile(test_it="import pytest\n@pytest.fixture\ndef f(): pass\ndef test_it(f): pass")

    test = results_of(report("--setup-only"))["test_it"]

    assert (test["outcome"], test["reason"]) == ("not_run", "only the fixtures ran: the test's own code was not called")


def test_report_in_an_impossible_place(pytester):
    """A report that can't be written is a usage error, before any test runs."""
    pytester.makepyfile(test_it="def test_it(): pass")
    (pytester.path / "file").write_text("")
    target = pytester.path / "file" / "r.jsonl"

    result = pytester.runpytest_subprocess("-p", "sglhw", f"--sglhw-report={target}")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"the report '{target}' (--sglhw-report) can't be written: " in result.stderr.str()
    assert "Give a file in a directory that this user may write to." in result.stderr.str()


WAITS = """
    import os, pathlib, time

    def test_waits():
        pathlib.Path("waiting").touch()
        until = time.monotonic() + 60
        while not os.path.exists("go on"):
            assert time.monotonic() < until
            time.sleep(0.02)
"""
TAKEN = "the report '{}' (--sglhw-report) is being written by another run. Give each run a file of its own, or wait for"


@pytest.fixture
def writing(pytester):
    """A run that has begun to write ``r.jsonl`` and goes on while the test looks."""
    pytester.makepyfile(test_waits=WAITS, test_other="def test_other(): pass")

    @contextlib.contextmanager
    def writing(*args):
        command = [sys.executable, "-m", "pytest", "-p", "sglhw", "--sglhw-report=r.jsonl", "test_waits.py", *args]
        with subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.DEVNULL) as process:
            until = time.monotonic() + 60
            while not (pytester.path / "waiting").exists():
                assert time.monotonic() < until
                time.sleep(0.02)
            try:
                yield process
            finally:
                (pytester.path / "go on").touch()

    return writing


@WORKERS
def test_one_run_at_a_time_writes_a_report(pytester, writing, workers):
    """A second one is a usage error and touches nothing, by whatever name it calls the file."""
    (pytester.path / "also.jsonl").symlink_to("r.jsonl")
    with writing(*workers):
        for name in ("r.jsonl", "also.jsonl"):
            second = pytester.runpytest_subprocess("-p", "sglhw", f"--sglhw-report={name}", *workers, "test_other.py")
            assert second.ret == pytest.ExitCode.USAGE_ERROR
            assert TAKEN.format(pytester.path / name) in second.stderr.str()
    records = read_records(pytester.path / "r.jsonl")
    assert (list(results_of(records)), records[-1]["kind"]) == (["test_waits"], "end")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_run_blocks_nobody(pytester, writing):
    """Nor does a process that it forked and that goes on."""
    pytester.makepyfile(test_waits=WAITS.replace("pathlib.Path", "forked = os.fork()\n        pathlib.Path", 1))
    with writing() as process:
        process.kill()
        process.wait()
        second = pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-report=r.jsonl", "test_other.py")
    assert second.ret == 0
    assert list(results_of(read_records(pytester.path / "r.jsonl"))) == ["test_other"]


def test_runs_one_after_the_other_share_a_file(pytester):
    """The later report replaces the earlier one, within a process as well."""
    pytester.makepyfile(test_it="def test_it(): pass")
    script = "import pytest\nfor _ in range(2):\n    assert pytest.main(['-p', 'sglhw', '--sglhw-report=r.jsonl']) == 0"

    assert pytester.run(sys.executable, "-c", script).ret == 0

    assert [r["kind"] for r in read_records(pytester.path / "r.jsonl")] == ["session", "start", "test", "end"]


@pytest.mark.parametrize("how", ["os.unlink('r.jsonl')", "os.replace('other', 'r.jsonl')"], ids=["gone", "replaced"])
def test_a_report_that_is_not_there_any_more_fails_the_run(pytester, how):
    """Nobody would find what was written."""
    (pytester.path / "other").write_text("")
    pytester.makepyfile(test_it=f"import os\ndef test_it(): {how}")

    result = pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-report=r.jsonl")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["the report is cut off, since writing it failed: the file was removed or replaced while the run wrote it"]
    )


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="needs /dev/null")
def test_a_device_takes_the_reports_of_many_runs(pytester, writing):
    """It holds none of them."""
    pytester.makepyfile(test_other="def test_other(): pass")
    with writing("--sglhw-report=/dev/null"):
        second = pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-report=/dev/null", "test_other.py")
    assert second.ret == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, a file that is always full")
def test_full_disk_fails_the_run(pytester):
    """A run whose report could not be written whole is not green, and says why."""
    pytester.makepyfile(test_it="def test_it(): pass")

    result = pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-report=/dev/full")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["the report is cut off, since writing it failed: No space left on device"])


def test_summary_names_the_report(pytester):
    """The terminal summary says where the report is."""
    pytester.makepyfile(test_it="def test_it(): pass")

    result = pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-report=deep/er/r.jsonl")

    result.stdout.fnmatch_lines([f"*sglhw report: {pytester.path}/deep/er/r.jsonl*"])
    assert result.ret == 0


def test_nobody_listens_nothing_tracked(pytester):
    """Without a report, a lane, JUnit XML or a hook, no tracker is registered."""
    pytester.makepyfile(
        test_it="def test_it(pytestconfig): assert not pytestconfig.pluginmanager.hasplugin('sglhw-results')"
    )

    assert pytester.runpytest_subprocess("-p", "sglhw").ret == 0


@WORKERS
def test_hooks_are_called(pytester, workers):
    """A conftest that implements the hooks gets each result in the process that reports."""
    pytester.makeconftest(
        """
        def pytest_sglhw_test_finished(result):
            print(f"RESULT {result.nodeid} {result.outcome} {result.executed}")
        def pytest_sglhw_file_finished(result):
            print(f"FILE {result.nodeid} {result.outcome}")
        """
    )
    pytester.makepyfile(test_it="def test_it(): pass", test_nothing="")

    result = pytester.runpytest_subprocess("-p", "sglhw", "-s", *workers)

    result.stdout.fnmatch_lines_random(["*RESULT test_it.py::test_it passed True", "*FILE test_nothing.py empty"])


@pytest.mark.parametrize(("environ", "attempt"), [
    ({}, 1), ({"GITHUB_RUN_ATTEMPT": "3"}, 3), ({"GITHUB_RUN_ATTEMPT": "3", "SGLHW_ATTEMPT": "2"}, 2),
    ({"SGLHW_ATTEMPT": "soon"}, 1), ({"SGLHW_ATTEMPT": "0"}, 1),
])  # fmt: skip
def test_run_attempt(environ, attempt):
    """The attempt is our variable's, else what GitHub counts, else the first."""
    from pytest_sglhw.report.recorder import run_attempt

    assert run_attempt(environ) == attempt


@WORKERS
def test_environment_is_that_of_the_machine(pytester, report, workers):
    """Where a test needed the environment, it is in the report, whichever process asked for it."""
    pytester.makepyfile(test_it="from pytest_sglhw import requires_kv4\n@requires_kv4\ndef test_it(): pass")

    records = report(*workers)

    environments = [r["environment"] for r in records if r.get("environment")]
    assert environments[-1]["platform"] == results_of(records)["test_it"]["platform"]
    assert "kv4" in environments[-1]["capabilities"]
