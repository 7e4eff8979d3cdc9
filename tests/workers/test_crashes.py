"""A worker that dies takes one test with it."""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from .helpers import records_of
from .helpers import run_reporting as run

CRASHES = 30
TESTS = 1000

SUITE = """
    import os, signal, sys, pytest

    DEATHS = {deaths}

    @pytest.mark.parametrize("n", range({tests}))
    def test_n(n):
        death = DEATHS.get(n)
        if death == "exit":
            os._exit(0)
        elif death:
            os.kill(os.getpid(), getattr(signal, death))
        if n % 10 == 3:
            pytest.skip("a skip")
        assert n % 10 != 7
"""


def expected_outcome(n: int, deaths: dict[int, str]) -> str:
    if n in deaths:
        return "crashed"
    return {3: "skipped", 7: "failed"}.get(n % 10, "passed")


def test_thirty_crashes_cost_thirty_tests(pytester: pytest.Pytester):
    """In a run of 1,000 tests every other outcome is right, every crash is named, and the report is complete."""
    draw = random.Random(20261130)
    deaths = {n: draw.choice(["exit", "SIGKILL", "SIGSEGV", "SIGABRT"]) for n in draw.sample(range(TESTS), CRASHES)}
    pytester.makepyfile(test_it=SUITE.format(deaths=deaths, tests=TESTS))
    result = pytester.runpytest_subprocess(
        "-p", "sglhw", "-p", "xdist", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-q", "-n", "2", "--tb=no",
        "--max-worker-restart", str(CRASHES), "--sglhw-report", "report.jsonl",
    )  # fmt: skip
    records = records_of(pytester)
    tests = [record for record in records if record["kind"] == "test"]
    assert Counter(record["nodeid"] for record in tests).most_common(1)[0][1] == 1
    assert {record["nodeid"]: record["outcome"] for record in tests} == {
        f"test_it.py::test_n[{n}]": expected_outcome(n, deaths) for n in range(TESTS)
    }
    for n, death in deaths.items():
        reason = next(r["reason"] for r in tests if r["nodeid"] == f"test_it.py::test_n[{n}]")
        assert ("exit status 0" if death == "exit" else f"signal {death}") in reason
    assert records[-1]["kind"] == "end"
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["here", "worker"])
@pytest.mark.parametrize(
    ("code", "by"),
    [
        ("raise KeyboardInterrupt('stop')", "KeyboardInterrupt: stop"),
        ("pytest.exit('enough')", "_pytest.outcomes.Exit: enough"),
    ],
)
def test_a_test_that_interrupts_the_run_did_not_crash(pytester: pytest.Pytester, code, by, workers):
    """Its worker lives: the test is not run, with what interrupted it, as without workers; exit status 2."""
    pytester.makepyfile(
        test_it=f"""
        import pytest
        def test_before(): pass
        def test_interrupts(): {code}
        """
    )
    result = run(pytester, *workers)
    (record,) = (r for r in records_of(pytester) if r["kind"] == "test" and "interrupts" in str(r["nodeid"]))
    assert (record["outcome"], record["reason_code"]) == ("not_run", "interrupted")
    assert record["reason"] == f"cut off: {by}"
    assert record["phase"] == "call" if not workers else record["phase"] in ("setup", "call")
    assert records_of(pytester)[-1]["counts"] == {"passed": 1, "not_run": 1}
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_a_process_that_ends_itself_leaves_a_report_that_is_cut_off(pytester: pytest.Pytester):
    """``os._exit(0)`` without workers ends pytest with exit status 0; the merge says where, and that it crashed."""
    pytester.makepyfile(
        test_it="""
        import os
        def test_before(): pass
        def test_exits(): os._exit(0)
        def test_after(): pass
        """
    )
    assert run(pytester).ret == 0
    assert records_of(pytester)[-1]["kind"] == "start"
    merged = pytester.run(sys.executable, "-m", "pytest_sglhw", "merge", "report.jsonl", "--fail-on", "crashed")
    assert merged.ret == 1
    merged.stdout.fnmatch_lines(
        ["  *test_it.py::test_exits *crashed: the report ends in this test: its process was killed or died"]
    )


def test_the_same_end_costs_a_worker_one_test(pytester: pytest.Pytester):
    """With one worker the run goes on and is red."""
    pytester.makepyfile(
        test_it="""
        import os
        def test_before(): pass
        def test_exits(): os._exit(0)
        def test_after(): pass
        """
    )
    assert run(pytester, "-n", "1").ret == pytest.ExitCode.TESTS_FAILED
    assert records_of(pytester)[-1]["counts"] == {"passed": 2, "crashed": 1}


def test_a_signal_without_a_name_has_its_number(pytester: pytest.Pytester):
    """Most real-time signals have none; a child of an isolated test may end by one as well."""
    pytester.makepyfile(
        test_it="""
        import os
        from pytest_sglhw import isolated_device
        @isolated_device
        def test_isolated(): os.kill(os.getpid(), 40)
        def test_here(): os.kill(os.getpid(), 40)
        """
    )
    run(pytester, "-n", "1")
    isolated, here = (r["reason"] for r in records_of(pytester) if r["kind"] == "test")
    assert "test_isolated ended with signal 40 and no report of the call phase." in isolated
    assert here == "worker 'gw0' crashed while running 'test_it.py::test_here' (signal 40)"


RECIPE = Path(__file__).parents[2] / "docs" / "workers.md"
EXITS = "faulthandler_exit_on_timeout"


@pytest.mark.parametrize(
    ("hang", "options"),
    [
        pytest.param("time.sleep(600)", (), id="c"),
        pytest.param("ctypes.PyDLL(None).sleep(600)", (), id="lock-held"),
        pytest.param("time.sleep(600)", ("-o", f"{EXITS}=false"), id="pytest-timeout"),
    ],
)
def test_the_documented_recipe_ends_a_test_that_hangs(pytester: pytest.Pytester, hang, options):
    """It is one crashed test, the threads are shown, and the rest goes on; with shorter times than on the page."""
    pytest.importorskip("pytest_timeout")
    if not options and pytest.version_tuple < (9, 0):
        pytest.skip(f"{EXITS} came with pytest 9.0")
    (block,) = re.findall(r"```toml\n(.*?)```", RECIPE.read_text(encoding="utf-8"), re.DOTALL)
    pytester.makepyprojecttoml(block.replace("= 300", "= 2").replace("= 330", "= 4"))
    pytester.makepyfile(
        test_it=f"""
        import ctypes, time
        def test_before(): pass
        def test_hangs():
            {hang}
        def test_after(): pass
        """
    )
    result = run(pytester, "-n", "1", "-p", "timeout", *options)
    assert records_of(pytester)[-1]["counts"] == {"passed": 2, "crashed": 1}
    (record,) = (r for r in records_of(pytester) if r.get("outcome") == "crashed")
    assert record["nodeid"] == "test_it.py::test_hangs"
    assert record["reason"] == "worker 'gw0' crashed while running 'test_it.py::test_hangs' (exit status 1)"
    result.stderr.fnmatch_lines(["*test_it.py*in test_hangs*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_hang_in_python_can_fail_instead(pytester: pytest.Pytester):
    """With pytest-timeout's method ``signal`` it is a failure of the test, and its worker stays."""
    pytest.importorskip("pytest_timeout")
    pytester.makepyfile(
        test_it="""
        import os, pathlib, time
        def test_before(): pathlib.Path("pid").write_text(str(os.getpid()))
        def test_hangs(): time.sleep(600)
        def test_after(): assert pathlib.Path("pid").read_text() == str(os.getpid())
        """
    )
    run(pytester, "-n", "1", "-p", "timeout", "-o", "timeout=2", "-o", "timeout_method=signal")
    (record,) = (r for r in records_of(pytester) if r.get("outcome") == "failed")
    assert (record["nodeid"], record["reason"]) == (
        "test_it.py::test_hangs",
        "Failed: Timeout (>2.0s) from pytest-timeout.",
    )
    assert records_of(pytester)[-1]["counts"] == {"passed": 2, "failed": 1}


DIES = (
    'import os, signal\nif os.environ.get("PYTEST_XDIST_WORKER") == "gw0":\n    os.kill(os.getpid(), signal.SIGSEGV)\n'
)
OUTSIDE = "died outside of a test: signal SIGSEGV"


def fail_on_crashed(pytester: pytest.Pytester) -> pytest.RunResult:
    return pytester.run(sys.executable, "-m", "pytest_sglhw", "merge", "report.jsonl", "--fail-on", "crashed")


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (DIES, OUTSIDE),
        (
            DIES.replace("    os.kill(", "    import atexit; atexit.register(os.kill, "),
            "died after its last test: signal SIGSEGV",
        ),
    ],
    ids=["collecting", "exiting"],
)
def test_a_worker_that_dies_outside_of_a_test_leaves_a_trace(pytester: pytest.Pytester, before, reason):
    """The run goes on, names it, and records it; the merge counts it as crashed."""
    pytester.makepyfile(test_it=before + "def test_a(): pass\ndef test_b(): pass\n")
    result = run(pytester, "-p", "no:faulthandler", "-n", "2")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([f"sglhw: gw0 {reason}"])
    assert [r for r in records_of(pytester) if r["kind"] == "worker"] == [
        {"kind": "worker", "worker": "gw0", "outcome": "crashed", "reason": reason}
    ]
    merged = fail_on_crashed(pytester)
    assert merged.ret == 1
    merged.stdout.fnmatch_lines([f"  *: worker gw0 {reason}"])


def test_a_lane_in_which_a_worker_died_outside_of_a_test_is_red(pytester: pytest.Pytester):
    """Its promise is kept by the workers that are left, and its exit status is 1."""
    pytester.makefile(".toml", sglhw='[lanes.cpu]\nplatform = "cpu"\n')
    pytester.makepyfile(test_it=DIES + "def test_a(): pass\n")
    assert run(pytester, "-p", "no:faulthandler", "-n", "2", "--sglhw-lane", "cpu").ret == pytest.ExitCode.TESTS_FAILED


def test_workers_that_all_die_are_one_line_and_a_crash_each(pytester: pytest.Pytester):
    """No test ran, and the merge says why."""
    pytester.makepyfile(test_it=DIES.replace(' == "gw0"', "") + "def test_a(): pass\n")
    result = run(pytester, "-p", "no:faulthandler", "-n", "2", "--max-worker-restart", "1")
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"sglhw: gw0, gw1, gw2 {OUTSIDE}"])
    assert fail_on_crashed(pytester).ret == 1


def test_a_usage_error_in_a_worker_ends_the_run(pytester: pytest.Pytester):
    """Without ``-n`` xdist replaces the worker for ever."""
    pytester.makepyfile(test_it="def test_a(): pass\n")
    spec = "popen//env:SGLHW_PIN_SELF=9;1;0"  # as a remote worker has it
    result = run(pytester, "--tx", spec, "--dist", "load", "--sglhw-fake", "cuda*2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    message = (
        "'9' is not a device of this run (--sglhw-devices). Valid: off, auto, or some of 0, 1, separated by commas."
    )
    assert f"ERROR: worker gw0: {message}" in result.stderr.lines
