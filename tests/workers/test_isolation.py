"""``isolated_device``: a child process whose true report comes back."""

from __future__ import annotations

import pytest


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
