"""Workers hold their devices, and what one of them breaks stays its own."""

from __future__ import annotations

import pytest

from .helpers import RUNS_AGAIN, records_of

LOG_MASK = """
    import os, pathlib
    SEEN_AT_IMPORT = {name: value for name, value in os.environ.items() if name.endswith("_VISIBLE_DEVICES")}
"""
LOG_TEST = """
    import conftest, pytest, pathlib, os, time

    @pytest.mark.parametrize("n", range(8))
    def test_n(n, worker_id):
        with open("seen.txt", "a") as file:
            file.write(f"{worker_id} {sorted(conftest.SEEN_AT_IMPORT.items())}\\n")
"""


@pytest.fixture(autouse=True)
def no_masks(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


def seen(pytester: pytest.Pytester) -> dict[str, str]:
    lines = pytester.path.joinpath("seen.txt").read_text().splitlines()
    return dict(sorted({tuple(line.split(" ", 1)) for line in lines}))


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "sglhw", "-p", "xdist", "-p", "no:cacheprovider", *args)


def test_workers_are_pinned_before_conftest_is_imported(pytester, monkeypatch):
    """Each worker has its device of the caller's mask when the first line of the test project runs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    pytester.makeconftest(LOG_MASK)
    pytester.makepyfile(LOG_TEST)
    args = ("--sglhw-devices", "auto", "-n", "2", "--dist", "each", "--sglhw-report", "report.jsonl")
    result = run(pytester, "--sglhw-fake", "cuda:sm90*2", *args)
    result.assert_outcomes(passed=16)
    assert seen(pytester) == {
        "gw0": "[('CUDA_VISIBLE_DEVICES', '2')]",
        "gw1": "[('CUDA_VISIBLE_DEVICES', '5')]",
    }
    result.stdout.fnmatch_lines(["sglhw: devices of the workers: gw0=2, gw1=5"])
    end = records_of(pytester)[-1]
    assert end["worker_devices"] == {"gw0": "2", "gw1": "5"}


@pytest.mark.parametrize("how", ["xdist", "xdist.plugin", "by itself"])
def test_workers_are_pinned_however_xdist_was_loaded(pytester, monkeypatch, request, how):
    """Where plugins are not loaded on their own, by the name of its entry point or of its module."""
    monkeypatch.delenv("PYTEST_PLUGINS", raising=False)
    if how == "by itself":
        request.getfixturevalue("every_plugin")
    loaded = () if how == "by itself" else ("-p", how)
    pytester.makepyfile("def test_it(): pass")
    args = ("-n", "2", "--sglhw-fake", "cuda*2", "--sglhw-devices", "auto")
    result = pytester.runpytest_subprocess("-p", "sglhw", "-p", "no:cacheprovider", *loaded, *args)
    result.stdout.fnmatch_lines(["sglhw: devices of the workers: gw0=0, gw1=1"])


def test_off_by_default(pytester, monkeypatch):
    """Nobody's mask is touched unless pinning is asked for."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    pytester.makeconftest(LOG_MASK)
    pytester.makepyfile(LOG_TEST)
    result = run(pytester, "--sglhw-fake", "cuda:sm90*2", "-n", "2", "--dist", "each")
    result.assert_outcomes(passed=16)
    result.stdout.fnmatch_lines(["sglhw: 2 workers shared 2 devices; --sglhw-devices auto gives each its own"])
    assert set(seen(pytester).values()) == {"[('CUDA_VISIBLE_DEVICES', '2,5')]"}


def test_a_replacement_has_the_devices_of_the_worker_that_crashed(pytester):
    """The crash is named with its signal and its devices, and the new worker holds the same ones."""
    pytester.makeconftest(LOG_MASK)
    pytester.makepyfile("""
        import conftest, os, signal, pytest

        @pytest.mark.parametrize("n", range(6))
        def test_n(n, worker_id):
            with open("seen.txt", "a") as file:
                file.write(f"{worker_id} {conftest.SEEN_AT_IMPORT['HIP_VISIBLE_DEVICES']}\\n")
            if n == 1:
                os.kill(os.getpid(), signal.SIGSEGV)
    """)
    result = run(pytester, "--sglhw-fake", "rocm:gfx942*8", "--sglhw-devices", "6", "-n", "1", "-rf")
    result.assert_outcomes(passed=5, failed=1)
    assert seen(pytester) == {"gw0": "6", "gw1": "6"}
    result.stdout.fnmatch_lines(["worker 'gw0' crashed while running * (signal SIGSEGV, devices 6)"])


def test_a_worker_that_holds_too_few_devices_says_so(pytester):
    """The reason names what the worker holds, and the remedy the option that widens it."""
    pytester.makepyfile("""
        from pytest_sglhw import sglhw

        @sglhw(min_devices=2)
        def test_two():
            pass
    """)
    fake = ("--sglhw-fake", "cuda:sm90*4", "-rs")
    result = run(pytester, *fake, "--sglhw-devices", "auto", "-n", "2")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*2 devices needed, this worker holds 1 of 4*"])
    result.stdout.fnmatch_lines(["*devices_pinned: *", "*would run with: --sglhw-devices-per-worker 2"])
    wider = run(pytester, *fake, "--sglhw-devices", "auto", "--sglhw-devices-per-worker", "2", "-n", "2")
    wider.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("--sglhw-devices", "9"),
            (
                "ERROR: '9' is not a device of this run (--sglhw-devices). Valid: off, auto, or some of 0, 1, "
                "separated by commas."
            ),
        ),
        (
            ("--sglhw-devices", "auto", "--sglhw-devices-per-worker", "3"),
            (
                "ERROR: each worker is to get 3 devices (--sglhw-devices-per-worker), but there are only 2 devices to "
                "give. Valid: off, auto, or some of 0, 1, separated by commas."
            ),
        ),
    ],
)
def test_devices_that_do_not_fit_are_a_usage_error(pytester, args, message):
    """Exit status 4, with what is valid."""
    pytester.makepyfile("def test_it(): pass")
    result = run(pytester, "--sglhw-fake", "cuda*2", "-n", "2", *args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.lines + result.stdout.lines


def test_a_remote_worker_pins_itself(pytester, monkeypatch):
    """It reads its request from the environment before conftest is imported, and takes the share of its slot."""
    monkeypatch.setenv("SGLHW_PIN_SELF", "auto;1;2")
    pytester.makeconftest(LOG_MASK)
    pytester.makepyfile("""
        import conftest

        def test_it():
            assert conftest.SEEN_AT_IMPORT == {"CUDA_VISIBLE_DEVICES": "2"}
    """)
    run(pytester, "--sglhw-fake", "cuda*4").assert_outcomes(passed=1)


def test_a_worker_behind_a_proxy_is_a_remote_one(pytester):
    """It pins itself where it is, and its process is not ours to ask how it ended."""
    pytester.makeconftest(LOG_MASK)
    pytester.makepyfile(LOG_TEST)
    specs = ("--px", "id=proxy//popen//execmodel=thread", "--tx", "popen//via=proxy", "--dist", "load")
    result = run(pytester, *specs, "--sglhw-fake", "cuda*4", "--sglhw-devices", "2,3")
    result.assert_outcomes(passed=8)
    assert list(seen(pytester).values()) == ["[('CUDA_VISIBLE_DEVICES', '2')]"]
    result.stdout.fnmatch_lines(["sglhw: devices of the workers: gw*=2"])


POISONED = """
    import pytest
    from pytest_sglhw import cpu_only, cuda_only

    def test_before():
        pass

    @cuda_only
    def test_good():
        pass

    @cuda_only
    def test_bad():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    @cuda_only
    @pytest.mark.parametrize("n", range(20))
    def test_after(n):
        raise AssertionError("ran on a lost device")

    @cpu_only
    def test_skipped_anyway():
        pass

    def test_plain():
        pass
"""


def test_after_a_sticky_error_device_tests_are_not_run(pytester):
    """One failed, the rest of the device tests name the culprit, everything else goes on."""
    pytester.makepyfile(POISONED)
    result = run(pytester, "--sglhw-fake", "cuda:sm90", "-rs", "--sglhw-report", "report.jsonl")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    outcomes = result.parseoutcomes()
    assert (outcomes["failed"], outcomes["passed"], outcomes["skipped"]) == (1, 3, 1)
    result.stdout.fnmatch_lines(["*20 not run*"])
    records = records_of(pytester)
    reasons = [record["reason"] for record in records if record.get("outcome") == "not_run"]
    assert reasons == ["poisoned by test_after_a_sticky_error_device_tests_are_not_run.py::test_bad"] * 20


UNMARKED = """
    import pytest
    from pytest_sglhw import cuda_only
    LOST = RuntimeError("CUDA error: an illegal memory access was encountered")

    @pytest.fixture
    def pool():
        raise LOST

    {unmarked}

    @cuda_only
    def test_first():
        raise AssertionError("ran on a lost device")

    @cuda_only
    def test_second():
        raise AssertionError("ran on a lost device")
"""


@pytest.mark.parametrize(
    ("unmarked", "failed"),
    [
        ("def test_bad(): raise LOST", {"failed": 1}),
        ("def test_bad(pool): pass", {"errors": 1}),
        ("def test_bad():\n        try: raise LOST\n        finally: assert 0", {"failed": 1}),
    ],
    ids=["call", "setup", "behind"],
)
def test_a_test_without_a_mark_may_lose_the_device_first(pytester, unmarked, failed):
    """The device tests after it are not run, the very first included, and name it."""
    pytester.makepyfile(test_it=UNMARKED.format(unmarked=unmarked))
    result = run(pytester, "--sglhw-fake", "cuda", "--sglhw-report", "report.jsonl")
    assert result.parseoutcomes() == {**failed, "not": 2}
    records = records_of(pytester)
    told = [(r["nodeid"], r["reason"]) for r in records if r.get("outcome") == "not_run"]
    assert told == [(f"test_it.py::test_{n}", "poisoned by test_it.py::test_bad") for n in ("first", "second")]
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    result.stdout.fnmatch_lines([f"sglhw: test_it.py::test_bad lost the device of its process ({error}): 2 device *"])


def test_a_file_may_lose_the_device_while_it_is_imported(pytester):
    """The device tests of other files name it, where the run goes on."""
    pytester.makepyfile(
        test_a="raise RuntimeError('CUDA error: device-side assert triggered')",
        test_b="from pytest_sglhw import cuda_only\n@cuda_only\ndef test_it(): raise AssertionError('ran')",
    )
    result = run(pytester, "--sglhw-fake", "cuda", "--continue-on-collection-errors")
    assert result.parseoutcomes() == {"errors": 1, "not": 1}  # not run
    result.stdout.fnmatch_lines(["sglhw: test_a.py lost the device of its process *: 1 device test after it not run"])


def test_an_ordinary_failure_poisons_nothing(pytester):
    """An out-of-memory error leaves the context usable."""
    pytester.makepyfile("""
        from pytest_sglhw import cuda_only

        @cuda_only
        def test_bad():
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

        @cuda_only
        def test_good():
            pass
    """)
    run(pytester, "--sglhw-fake", "cuda").assert_outcomes(passed=1, failed=1)


def test_a_late_error_is_the_failure_of_the_test_that_caused_it(pytester):
    """The device is waited for at the end of each device test, where torch has a context in this process."""
    pytester.makepyfile(
        torch="""
        class cuda:
            launched = False

            @staticmethod
            def is_initialized():
                return True

            @staticmethod
            def synchronize():
                if cuda.launched:
                    raise RuntimeError("CUDA error: device-side assert triggered")
        """,
        test_it="""
        import torch
        from pytest_sglhw import cuda_only

        @cuda_only
        def test_launches():
            torch.cuda.launched = True

        @cuda_only
        def test_innocent():
            pass
        """,
    )
    result = run(pytester, "--sglhw-fake", "cuda", "-rf", "test_it.py")
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_launches - RuntimeError: CUDA error: device-side*"])
    result.stdout.fnmatch_lines(["*1 failed, *1 not run*"])


LOSES_ITS_DEVICE = """
    import pytest
    from pytest_sglhw import cuda_only

    @cuda_only
    {mark}
    def test_bad():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    @cuda_only
    @pytest.mark.parametrize("n", range({after}))
    def test_after(n):
        pass
"""
WORKERS = pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["here", "worker"])


@WORKERS
def test_the_test_that_lost_the_device_stays_a_failure_when_it_is_run_again(pytester, workers):
    """A further attempt fails for the loss; it is not "poisoned by" itself, which would be green."""
    pytester.makeconftest(RUNS_AGAIN)
    pytester.makepyfile(LOSES_ITS_DEVICE.format(mark="", after=1))
    result = run(pytester, "--sglhw-fake", "cuda", "--sglhw-report", "report.jsonl", *workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    records = records_of(pytester)
    attempts = [r for r in records if r["kind"] == "test" and r["nodeid"].endswith("::test_bad")]
    assert [(r["outcome"], r["phase"], r.get("rerun", False)) for r in attempts] == [
        ("failed", "call", True),
        ("failed", "call", True),
        ("failed", "call", False),
    ]
    lost = "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert attempts[-1]["reason"] == (
        f"Failed: this process has lost its device in an earlier attempt at this test: {lost}"
    )
    assert records[-1]["counts"] == {"failed": 1, "not_run": 1}


@WORKERS
def test_a_loss_that_was_expected_does_not_make_the_rest_green(pytester, workers):
    """The test is ``xfailed``, those after it were not run: exit status 1, with the loss named."""
    pytester.makepyfile(test_it=LOSES_ITS_DEVICE.format(mark="@pytest.mark.xfail", after=2))
    result = run(pytester, "--sglhw-fake", "cuda", *workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    who = f"{'gw0: ' if workers else ''}test_it.py::test_bad"
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    result.stdout.fnmatch_lines(
        [
            f"sglhw: {who} lost the device of its process ({error}): 2 device tests after it not run",
            "sglhw: with isolated_device a test loses the device of its own process alone",
        ]
    )


def test_a_loss_that_cost_nothing_is_named(pytester):
    """It was the last device test, and to fail: the run is green and says so."""
    pytester.makepyfile(test_it=LOSES_ITS_DEVICE.format(mark="@pytest.mark.xfail", after=0))
    result = run(pytester, "--sglhw-fake", "cuda")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["sglhw: test_it.py::test_bad lost the device*: 0 device tests after it not run"])


def test_the_devices_that_a_worker_took_itself_are_shown(pytester):
    """A remote worker tells them when it ends; it shared nothing, so nothing is suggested."""
    pytester.makepyfile(test_it="def test_a(): pass\ndef test_b(): pass\n")
    specs = [f"--tx=popen//env:SGLHW_PIN_SELF=auto;1;{slot}" for slot in range(2)]
    args = (*specs, "--dist", "load", "--sglhw-fake", "cuda*3", "--sglhw-report", "report.jsonl")
    result = run(pytester, *args)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["sglhw: devices of the workers: *=*"])
    result.stdout.no_fnmatch_line("*workers shared*")
    end = records_of(pytester)[-1]
    assert end["worker_devices"] == {"gw0": "0", "gw1": "1"}


def test_a_fake_with_more_devices_than_the_mask_shows(pytester, monkeypatch):
    """A worker holds its share of the fake, not all of it."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3,7")
    pytester.makepyfile("""
        from pytest_sglhw import sglhw

        @sglhw(min_devices=2)
        def test_two():
            pass
    """)
    result = run(pytester, "--sglhw-fake", "cuda:sm90*8", "--sglhw-devices", "auto", "-n", "2", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*2 devices needed, this worker holds 1 of 8*"])


def test_a_report_that_xdist_would_copy_is_refused(pytester, tmp_path):
    """It takes an argument that names a file for one that workers in another folder need, and breaks on it."""
    pytester.makepyfile(test_it="def test_a(): pass")
    args = ("--tx", f"popen//chdir={tmp_path}", "--dist", "load", "--rsyncdir", str(pytester.path))
    result = run(pytester, *args, "--sglhw-report", "report.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert (
        "ERROR: the argument 'report.jsonl' is a file by now, so that xdist wants to copy it to workers that have a "
        "folder of their own. Write --sglhw-report=report.jsonl in one, or set SGLHW_REPORT."
    ) in result.stderr.lines
    run(pytester, *args, "--sglhw-report=report.jsonl").assert_outcomes(passed=1)
