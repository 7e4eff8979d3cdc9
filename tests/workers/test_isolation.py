"""``isolated_device``: a child process whose true report comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .helpers import RUNS_AGAIN, named, records_of


@pytest.fixture
def run(pytester: pytest.Pytester):
    def run(source: str, *args: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess("-p", "sglhw", "-p", "no:cacheprovider", "-rA", *args)

    return run


def test_the_outcome_of_the_child_is_the_outcome_of_the_test(run):
    """Passed, failed, skipped, xfailed and a setup error come back with their own texts."""
    result = run(
        """
        import os, pytest
        from pytest_sglhw import isolated_device
        pytestmark = isolated_device
        HERE = os.environ.setdefault("OUTER_PID", str(os.getpid()))

        @pytest.fixture
        def broken():
            raise KeyError("no such device")

        def test_pass():
            print("printed in the child")
            assert str(os.getpid()) != HERE

        def test_fail():
            raise ValueError("wrong in the child")

        def test_skip():
            pytest.skip("not today")

        @pytest.mark.xfail(raises=ZeroDivisionError, strict=True)
        def test_xfail():
            1 / 0

        def test_setup(broken):
            pass
        """
    )
    result.assert_outcomes(passed=1, failed=1, skipped=1, xfailed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "E *KeyError: 'no such device'",
            "E *ValueError: wrong in the child",
            "printed in the child",
            "SKIPPED * not today",
        ]
    )


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("os._exit(0)", "exit status 0"),
        ("os._exit(7)", "exit status 7"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "signal SIGSEGV"),
        ("os.abort()", "signal SIGABRT"),
    ],
)
def test_a_child_that_reports_nothing_is_an_error(run, end, how):
    """The error names the test, how its child ended and the phase that has no report; the next test runs."""
    result = run(
        f"""
        import os, signal
        from pytest_sglhw import isolated_device

        @isolated_device
        def test_dies():
            {end}

        @isolated_device
        def test_lives():
            pass
        """
    )
    result.assert_outcomes(passed=1, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [f"the child process of *::test_dies ended with {how} and no report of the call phase. It printed*"]
    )


def test_classes_parameters_and_unittest_run_in_children(run):
    """Ids with brackets and colons, class fixtures and TestCase methods find their way."""
    result = run(
        """
        import os, unittest, pytest
        from pytest_sglhw import isolated_device
        HERE = os.environ.setdefault("OUTER_PID", str(os.getpid()))

        @isolated_device
        @pytest.mark.parametrize("text", ["a::b", "[c]", "d e"])
        def test_text(text):
            assert str(os.getpid()) != HERE

        @isolated_device
        class TestCase(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                cls.pid = os.getpid()

            def test_pid(self):
                self.assertNotEqual(str(self.pid), HERE)

        def test_here():
            assert str(os.getpid()) == HERE
        """
    )
    result.assert_outcomes(passed=5)


def test_children_work_under_workers(run):
    """The reports pass from the child through its worker to the controller."""
    result = run(
        """
        import pytest
        from pytest_sglhw import isolated_device

        @isolated_device
        @pytest.mark.parametrize("n", range(3))
        def test_n(n):
            assert n != 1
        """,
        "-p",
        "xdist",
        "-n",
        "2",
    )
    result.assert_outcomes(passed=2, failed=1)


def test_an_unmet_requirement_needs_no_child(run):
    """The skip is decided before a process is spent on it."""
    result = run(
        """
        from pytest_sglhw import cuda_only, isolated_device

        @isolated_device
        @cuda_only
        def test_it():
            raise AssertionError("ran")
        """,
        "--sglhw-fake",
        "cpu",
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED *cuda_only: *"])


def test_an_argument_is_refused(run):
    """The mark takes none, and says how to write it."""
    result = run(
        """
        from pytest_sglhw import isolated_device

        @isolated_device(timeout=3)
        def test_it():
            pass
        """
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
    message = "isolated_device(timeout=3): isolated_device takes no arguments. Write: @isolated_device"
    result.stdout.fnmatch_lines([f"*{message}"])


def test_an_end_in_teardown_is_an_error(run):
    """A child that dies after its call did not pass; nor does a test whose wider fixtures fail to be torn down here."""
    result = run(
        """
        import os, pytest
        from pytest_sglhw import isolated_device

        @pytest.fixture(scope="module")
        def broken():
            yield
            raise KeyError("torn down here")

        def test_here(broken):
            pass

        @isolated_device
        def test_dies(request):
            request.addfinalizer(lambda: os._exit(3))

        @isolated_device
        def test_last():
            pass
        """
    )
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(
        [
            "the child process of *::test_dies ended with exit status 3 and no report of the teardown phase.*",
            "E *KeyError: 'torn down here'",
            "ERROR *::test_dies*",
            "ERROR *::test_last*KeyError*",
        ]
    )


def test_a_child_that_dies_after_its_test_is_told_of(run):
    """The test passed, and its process was killed on the way out: a warning."""
    result = run(
        """
        import atexit, os, signal
        from pytest_sglhw import isolated_device

        @isolated_device
        def test_it():
            atexit.register(os.kill, os.getpid(), signal.SIGSEGV)
        """
    )
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*the child process of *::test_it ended with signal SIGSEGV after the test had ended."]
    )


def test_the_child_has_the_options_of_the_run(run, pytester):
    """Those of addopts without its workers, overridden ini values, and how modules are imported."""
    pytester.makeini("[pytest]\naddopts = -p xdist -n 1 --import-mode=importlib\nmarkers = one: first")
    pytester.makeconftest("import pytest\n\n@pytest.fixture\ndef here(): return __name__")
    result = run(
        """
        from pytest_sglhw import isolated_device

        @isolated_device
        def test_it(pytestconfig, here):
            assert pytestconfig.getini("xfail_strict") is True
            assert pytestconfig.option.importmode == "importlib"
            assert not pytestconfig.option.numprocesses
        """,
        "-o",
        "xfail_strict=true",
        "--strict-markers",
    )
    result.assert_outcomes(passed=1)


def test_uncaptured_output_of_the_child_is_seen(run):
    """With -s it goes where the output of any other test goes."""
    result = run(
        """
        import os
        from pytest_sglhw import isolated_device

        @isolated_device
        def test_passes():
            print("seen at once")

        @isolated_device
        def test_dies():
            os.abort()
        """,
        "-s",
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*seen at once", "*signal SIGABRT and no report of the call phase. What it printed was not captured."]
    )


def test_a_lost_device_of_this_process_is_not_lost_in_a_child(run):
    """The isolated test runs, and what it loses is lost in its child alone."""
    result = run(
        """
        from pytest_sglhw import cuda_only, isolated_device
        LOST = "CUDA error: an illegal memory access was encountered"

        @cuda_only
        @isolated_device
        def test_isolated_bad():
            raise RuntimeError(LOST)

        @cuda_only
        def test_bad():
            raise RuntimeError(LOST)

        @cuda_only
        def test_after():
            raise AssertionError("ran")

        @cuda_only
        @isolated_device
        def test_isolated():
            pass
        """,
        "--sglhw-fake",
        "cuda",
    )
    result.stdout.fnmatch_lines(["*2 failed, 1 passed, 1 not run*"])


def test_children_do_not_probe_again(pytester, monkeypatch):
    """They read what the process that starts them knows."""
    folder = pytester.mkdir("planted")
    folder.joinpath("torch").mkdir()
    folder.joinpath("torch/version.py").write_text("__version__ = '2.11.0'\ncuda = '13.0'\nhip = None\n")
    folder.joinpath("torch/__init__.py").write_text(
        "import os\nfrom . import version\n__version__ = '2.11.0'\nopen(os.environ['PROBES'], 'a').write('probe ')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    monkeypatch.setenv("PROBES", str(pytester.path / "probes"))
    pytester.makepyfile(
        """
        import pytest
        from pytest_sglhw import cpu_only, isolated_device

        @isolated_device
        @cpu_only
        @pytest.mark.parametrize("n", range(3))
        def test_n(n): pass
        """
    )
    pytester.runpytest_subprocess("-p", "sglhw", "-p", "no:cacheprovider").assert_outcomes(passed=3)
    assert pytester.path.joinpath("probes").read_text() == "probe "


SUBTESTS = """
    import unittest
    from pytest_sglhw import isolated_device
    pytestmark = {marks}

    class Test(unittest.TestCase):
        def test_sub(self):
            for i in range(3):
                with self.subTest(i=i):
                    self.assertNotEqual(i, 1, "in the subtest")

    def test_fixture(subtests):
        with subtests.test(msg="named"):
            assert 0, "in the fixture's"
"""


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")], ids=["here", "worker"])
def test_subtests_come_back(run, pytester, workers):
    """A failed subtest is shown and counted as without isolation, and its test is failed in the report."""
    if pytest.version_tuple < (9, 0):
        pytest.skip("subtests came with pytest 9.0")
    args = (*workers, "--sglhw-report", "report.jsonl")
    plain = run(SUBTESTS.format(marks="[]"), *args)
    here = records_of(pytester)
    isolated = run(SUBTESTS.format(marks="[isolated_device]"), *args)
    there = records_of(pytester)
    assert isolated.ret == plain.ret == pytest.ExitCode.TESTS_FAILED
    assert isolated.parseoutcomes() == plain.parseoutcomes()
    isolated.stdout.fnmatch_lines(["E *AssertionError: *in the subtest", "E *AssertionError: in the fixture's*"])
    found = {name: (r["outcome"], r["reason"]) for name, r in named(there).items()}
    assert found == {name: (r["outcome"], r["reason"]) for name, r in named(here).items()}
    assert {outcome for outcome, _ in found.values()} == {"failed"}


def test_each_attempt_has_a_child_of_its_own(run, pytester):
    """A plugin that runs a failed test again does so once, outside, and the children leave it alone."""
    pytester.makeconftest(RUNS_AGAIN)
    result = run(
        """
        import os
        from pytest_sglhw import isolated_device

        @isolated_device
        def test_flaky():
            with open("pids", "a") as file:
                print(os.getpid(), file=file)
            with open("pids") as file:
                assert len(file.readlines()) == 3
        """
    )
    result.assert_outcomes(passed=1)
    assert len(set(pytester.path.joinpath("pids").read_text().split())) == 3


def test_only_setups_and_plans_of_setups(run):
    """The child sets up and calls nothing; a plan needs no child."""
    source = """
        import pytest
        from pytest_sglhw import isolated_device

        @pytest.fixture
        def pool():
            with open("set_up", "a") as file:
                file.write("x")

        @isolated_device
        def test_it(pool):
            raise AssertionError("called")
        """
    for option, written in (("--setup-plan", False), ("--setup-only", True)):
        result = run(source, option)
        assert result.ret == pytest.ExitCode.OK
        assert os.path.exists("set_up") == written


OUTLIVES = """
    import os, subprocess, sys, time
    from pytest_sglhw import isolated_device

    @isolated_device
    def test_sleeps():
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        with open("pids.new", "w") as file:
            file.write(f"{os.getpid()} {grandchild.pid}")
        os.rename("pids.new", "pids")
        import ctypes
        ctypes.PyDLL(None).sleep(300)  # holds the interpreter's lock
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_child_ends_with_its_parent(pytester, end):
    """However the process that waits for it ends, nothing goes on with the device."""
    pytester.makepyfile(OUTLIVES)
    pids = pytester.path / "pids"
    command = [sys.executable, "-m", "pytest", "-p", "sglhw", "-p", "no:cacheprovider"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as parent:
        wait_for(pids.exists)
        parent.send_signal(end)
    for pid in map(int, pids.read_text().split()):
        wait_for(lambda pid=pid: not lives(pid))


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def lives(pid: int) -> bool:
    """Whether a process runs; one that ended and that nobody waited for does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def test_the_child_has_no_children_of_ours(run):
    """A test may wait for any child of its own."""
    run(
        """
        import os, pytest
        from pytest_sglhw import isolated_device

        @isolated_device
        def test_it():
            with pytest.raises(ChildProcessError):
                os.wait()
        """
    ).assert_outcomes(passed=1)


def test_the_child_finds_the_modules_that_the_run_finds(pytester):
    """A file beside the tests hides no module that pytest itself was given."""
    pytester.makepyfile(
        test_it="""
        from pytest_sglhw import isolated_device

        @isolated_device
        def test_it():
            import pickle, json
            assert json.loads("1") == 1
        """,
        pickle="raise RuntimeError('the wrong one')",
        json="raise RuntimeError('the wrong one')",
    )
    # Not pytester's own way to run it, which puts the current folder on PYTHONPATH.
    command = [Path(sys.executable).with_name("pytest"), "-p", "sglhw", "--import-mode=importlib", "test_it.py"]
    result = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, check=False)
    assert "1 passed" in result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["here", "worker"])
def test_the_child_warns_and_knows_its_place(pytester, workers):
    """Warnings are in the summary; the worker's id, the cache and the command line are those of the parent."""
    pytester.makepyfile(
        f"""
        import sys, warnings, pytest
        from pytest_sglhw import isolated_device

        @pytest.fixture(scope="session")
        def place(worker_id, pytestconfig):
            return worker_id, pytestconfig.cache.get("left/behind", None), sys.argv

        def test_here(place, pytestconfig):
            pytestconfig.cache.set("left/behind", 3)
            pytestconfig.cache.set("argv", sys.argv)
            assert place[0] == {"gw0" if workers else "master"!r}

        @isolated_device
        def test_there(place, pytestconfig):
            warnings.warn("old in the child", DeprecationWarning)
            assert place == ({"gw0" if workers else "master"!r}, 3, pytestconfig.cache.get("argv", None))
        """
    )
    result = pytester.runpytest_subprocess("-p", "sglhw", "-p", "xdist", *workers)
    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(["*::test_there", "*.py:*: DeprecationWarning: old in the child"])


def test_what_a_lane_asks_of_a_test_is_asked_of_the_child(run, pytester):
    """A pass that called no kernel fails in a lane with ``vacuous = "fail"``, and one that called it passes."""
    pytester.makepyfile(**{"sgl_kernel/__init__": "", "sgl_kernel/kvcacheio": "def transfer_kv_direct(): pass"})
    pytester.makeconftest(
        """
        import os
        from pytest_sglhw.gates.policy import LANE_POLICY, LanePolicy

        def pytest_configure(config):
            if os.environ.setdefault("OUTER_PID", str(os.getpid())) == str(os.getpid()):
                config.stash[LANE_POLICY] = LanePolicy("cuda", vacuous="fail")
        """
    )
    result = run(
        """
        from pytest_sglhw import isolated_device, requires_kvcacheio
        pytestmark = [isolated_device, requires_kvcacheio("transfer_kv_direct")]

        def test_calls():
            from sgl_kernel.kvcacheio import transfer_kv_direct
            transfer_kv_direct()

        def test_calls_nothing():
            pass
        """,
        "--sglhw-fake",
        "cuda",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*::test_calls_nothing: passed without calling transfer_kv_direct"])


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")], ids=["here", "worker"])
def test_the_childs_temporary_files_are_where_those_of_the_run_are(pytester, workers):
    """Each child has a folder of its own in the one that was asked for, and empties nobody else's."""
    pytester.makepyfile(
        """
        from pytest_sglhw import isolated_device

        @isolated_device
        def test_there(tmp_path):
            tmp_path.joinpath("kept").touch()

        def test_here(tmp_path):
            tmp_path.joinpath("kept").touch()

        @isolated_device
        def test_there_too(tmp_path):
            tmp_path.joinpath("kept").touch()
        """
    )
    command = [sys.executable, "-m", "pytest", "-p", "sglhw", "-p", "no:cacheprovider", "--basetemp=scratch", *workers]
    assert pytester.run(*command).ret == 0
    kept = [path.parent.name for path in pytester.path.joinpath("scratch").glob("**/kept") if not path.is_symlink()]
    assert sorted(set(kept)) == ["test_here0", "test_there0", "test_there_too0"]
