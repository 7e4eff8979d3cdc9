"""A worker that dies takes one test with it."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

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
        "-p", "sglhw", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-q", "-n", "2", "--tb=no",
        "--max-worker-restart", str(CRASHES), "--sglhw-report", "report.jsonl",
    )  # fmt: skip
    records = [json.loads(line) for line in pytester.path.joinpath("report.jsonl").read_text().splitlines()]
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
