"""A lane around a real run: exit statuses, what the terminal and the report say, with and without workers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest

LANES = """
[lanes.cpu]
platform = "cpu"
min_executed = 2
min_executed_by_mark = { cpu_only = 1 }
allow_skips = ["cuda_only"]

[lanes.cuda]
platform = "cuda"
"""

KEPT = """
import pytest

@pytest.mark.cpu_only
def test_here(): pass

@pytest.mark.cuda_only
def test_elsewhere(): pass

def test_plain(): pass
"""

WORKERS = pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["one process", "workers"])


@pytest.fixture
def suite(project: Callable[..., pytest.Pytester]) -> pytest.Pytester:
    return project(LANES, test_kept=KEPT)


def run(suite: pytest.Pytester, *args: str) -> pytest.RunResult:
    return suite.runpytest_subprocess(*args, timeout=120)


@WORKERS
def test_a_kept_promise_is_green(suite: pytest.Pytester, workers: tuple[str, ...]) -> None:
    """The header names the lane, the summary says how much was executed."""
    result = run(suite, "--sglhw-lane", "cpu", *workers)

    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "sglhw: lane cpu (sglhw.toml:1 [[]lanes.cpu]): the machine is what it promises",
            "2 of 3 tests ran to a verdict",
        ]
    )
    result.stdout.no_fnmatch_line("*PROMISE BROKEN*")


def test_a_run_that_only_collects_is_not_judged(suite: pytest.Pytester) -> None:
    """The machine is still looked at, as for the run itself; nothing is said of tests that nobody ran."""
    result = run(suite, "--sglhw-lane", "cpu", "--collect-only", "-q")

    assert result.ret == 0
    assert "PROMISE BROKEN" not in result.stdout.str()
    assert "ran to a verdict" not in result.stdout.str()


@WORKERS
def test_a_contradicting_skip_fails_the_run(suite: pytest.Pytester, workers: tuple[str, ...]) -> None:
    """Four devices needed and none found: status 1, and the test, what it needs, what was found, the lane."""
    suite.makepyfile(test_four="import pytest\n@pytest.mark.sglhw(min_devices=4)\ndef test_four(): pass")

    result = run(suite, "--sglhw-lane", "cpu", "--sglhw-report", "r.jsonl", *workers)

    broken = "test_four.py::test_four [devices]: sglhw(min_devices=4): 4 devices needed, 0 found"
    assert result.ret == 1
    lines = result.stdout.str().splitlines()
    at = lines.index("PROMISE BROKEN: 1 skip contradicts the promise (allow_skips: cuda_only)")
    assert lines[at + 1] == f"  {broken}"
    assert any("lane cpu (sglhw.toml:1 [lanes.cpu])" in line for line in lines[at - 3 : at])
    records = [json.loads(line) for line in (suite.path / "r.jsonl").read_text().splitlines()]
    assert records[0]["promise"]["min_executed_by_mark"] == {"cpu_only": 1}
    assert (records[-1]["exit_status"], records[-1]["broken_promises"]) == (1, [broken])


@pytest.mark.parametrize(("args", "collected"), [(("-k", "elsewhere"), 1), (("-k", "nothing"), 0)])
def test_a_lane_that_executes_too_little_is_red(suite: pytest.Pytester, args: tuple[str, ...], collected: int) -> None:
    """Also where nothing was collected at all, which pytest calls status 5."""
    result = run(suite, "--sglhw-lane", "cpu", *args)

    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            f"0 of {collected} tests ran to a verdict",
            "PROMISE BROKEN: too few tests were executed: min_executed = 2, executed 0",
            "PROMISE BROKEN: too few tests were executed: min_executed_by_mark.cpu_only = 1, executed 0",
        ]
    )


def test_a_shard_does_not_check_the_minima(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says who does."""
    monkeypatch.setenv("SGLHW_SHARD", "1/2")
    monkeypatch.setenv("SGLHW_LANE", "cpu")

    result = run(suite, "-k", "plain")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["this is shard 1/2: sglhw merge checks the minima of the lane"])


@pytest.mark.parametrize("arguments", [("--sglhw-lane", "cpu"), (), ("--sglhw-plan",)], ids=["lane", "none", "plan"])
def test_a_wrong_shard_is_a_usage_error(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """Before anything is collected, also where no lane is named: whoever sets it means one."""
    monkeypatch.setenv("SGLHW_SHARD", "3/2")

    result = run(suite, *arguments)

    assert result.ret == 4
    assert "ERROR: SGLHW_SHARD is '3/2'. Valid: PART/PARTS, such as 2/4." in result.stderr.str()


@WORKERS
def test_a_wrong_machine_is_refused_before_collection(suite: pytest.Pytester, workers: tuple[str, ...]) -> None:
    """Status 4 and the table; no file of the suite is imported, no worker started."""
    suite.makepyfile(test_trace="raise SystemExit('this file was imported')")

    result = run(suite, "--sglhw-lane", "cuda", *workers)

    assert result.ret == 4
    assert "ERROR: this machine is not what lane cuda (sglhw.toml:7 [lanes.cuda]) promises:" in result.stderr.str()
    result.stderr.fnmatch_lines(["  x platform  cuda        cpu*", "  x devices   at least 1  0*"])
    assert "this file was imported" not in result.stdout.str() + result.stderr.str()


def test_a_lane_refuses_a_fake(suite: pytest.Pytester) -> None:
    """A fake that would keep the promise is still no machine."""
    result = run(suite, "--sglhw-lane", "cuda", "--sglhw-fake", "cuda:sm90*8")

    assert result.ret == 4
    result.stderr.fnmatch_lines(["  x machine   live        fake   --sglhw-fake cuda:sm90[*]8", "    platform  cuda*"])


def test_an_unknown_lane_is_a_usage_error(suite: pytest.Pytester) -> None:
    """The message names the lanes that are there."""
    result = run(suite, "--sglhw-lane", "cud")

    assert result.ret == 4
    assert "ERROR: there is no lane 'cud'. Configured: cpu, cuda." in result.stderr.str()


@WORKERS
def test_skips_of_others_and_files_without_tests_are_shown(suite: pytest.Pytester, workers: tuple[str, ...]) -> None:
    """Listed with their reasons; they do not break the promise, though a file that fails fails the run as ever."""
    suite.makepyfile(
        test_absent="import pytest\npytest.importorskip('no_such_module_anywhere')",
        test_empty="",
        test_later="import pytest\n@pytest.mark.skip(reason='not today')\ndef test_later(): pass",
    )

    result = run(suite, "--sglhw-lane", "cpu", *workers)

    assert result.ret == 0
    lines = result.stdout.str().splitlines()
    assert "files that gave no test: 2" in lines
    assert "  test_absent.py (skipped): could not import 'no_such_module_anywhere': No module named " in "\n".join(
        lines
    )
    assert "  test_empty.py (empty): the file was collected and holds no test" in lines
    assert "skips that this plugin did not cause: 1" in lines
    assert "  1 x not today: test_later.py::test_later" in lines


def test_a_lane_of_the_environment_holds_in_workers(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """xdist hands over the command line alone; still each worker knows the lane, as with the option."""
    monkeypatch.setenv("SGLHW_LANE", "cpu")
    suite.makepyfile(
        test_empty="",
        test_inside="""
        from pytest_sglhw.gates.policy import LANE_POLICY
        def test_policy(request): assert request.config.stash[LANE_POLICY].name == "cpu"
        """,
    )

    result = run(suite, "-p", "xdist", "-n", "2")

    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["3 of 4 tests ran to a verdict", "  test_empty.py (empty): the file was collected and holds no test"]
    )


@WORKERS
def test_a_skip_of_the_test_itself_is_no_skip_of_ours(suite: pytest.Pytester, workers: tuple[str, ...]) -> None:
    """Whether inside a test that must raise or by pytest's mark beside ours: listed, and no contradiction."""
    suite.makepyfile(
        test_own="""
        import pytest
        @pytest.mark.requires_kvcacheio(otherwise="raise")
        def test_inside(): pytest.skip("own")
        @pytest.mark.skip(reason="not today")
        @pytest.mark.requires_kvcacheio
        def test_beside(): pass
        """
    )

    result = run(suite, "--sglhw-lane", "cpu", *workers)

    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["skips that this plugin did not cause: 2", "  1 x own: test_own.py::test_inside"],
    )
    result.stdout.fnmatch_lines(["  1 x not today: test_own.py::test_beside"])


def test_a_file_that_import_or_skip_left_fails_the_run(suite: pytest.Pytester) -> None:
    """Unless the lane allows it: a whole file of tests for kernels that are not here is not nothing."""
    text = "import pytest_sglhw\npytest_sglhw.import_or_skip('sgl_kernel.kvcacheio', 'kvcacheio')\ndef test_k(): pass"
    suite.makepyfile(test_file=text)

    result = run(suite, "--sglhw-lane", "cpu")

    assert result.ret == 1
    result.stdout.fnmatch_lines(["  test_file.py [[]capability:kvcacheio[]]: import_or_skip(*"])


def test_a_failing_run_keeps_its_status(suite: pytest.Pytester) -> None:
    """A run that was interrupted by collection errors is not called a test failure."""
    suite.makepyfile(test_bad="import no_such_module_anywhere")

    result = run(suite, "--sglhw-lane", "cpu")

    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["files that gave no test: 1", "  test_bad.py (failed): *no_such_module_anywhere*"])


def test_a_test_that_runs_pytest_leaves_the_lane_alone(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable counts in the outermost pytest only: a nested run that skips everything breaks no promise."""
    monkeypatch.setenv("SGLHW_LANE", "cpu")
    suite.makepyfile(
        test_outer=f"""
        import subprocess
        def test_nested(tmp_path):
            (tmp_path / "test_in.py").write_text("import pytest\\n@pytest.mark.cuda_only\\ndef test_in(): pass")
            command = [{sys.executable!r}, "-m", "pytest", "-p", "sglhw", str(tmp_path)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
            assert done.returncode == 0 and "lane cpu" not in done.stdout, done.stdout
        """
    )

    assert run(suite).ret == 0
