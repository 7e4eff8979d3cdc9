"""What the tests of the workers share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

Records = list[dict[str, Any]]

#: A conftest.
RUNS_AGAIN = """
    from _pytest.runner import runtestprotocol

    def pytest_runtest_protocol(item, nextitem):
        # As plugins do that run a failed test again: the reports of an attempt that failed are told as "rerun".
        for attempt in range(3):
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            failed = [report for report in reports if report.failed]
            for report in reports:
                if report.failed and attempt < 2:
                    report.outcome = "rerun"
                item.ihook.pytest_runtest_logreport(report=report)
            item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            if not failed:
                break
        return True
"""


def read_records(path: Path) -> Records:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def records_of(pytester: pytest.Pytester) -> Records:
    """What the last run in this folder reported."""
    return read_records(pytester.path / "report.jsonl")


def run_reporting(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """Run pytest in a process of its own, for :func:`records_of`."""
    options = ("-p", "sglhw", "-p", "xdist", "-p", "no:cacheprovider", "--sglhw-report", "report.jsonl")
    return pytester.runpytest_subprocess(*options, *args, timeout=120)


def named(records: Records) -> dict[str, dict[str, Any]]:
    """The ``test`` records by the test's own name."""
    return {r["nodeid"].partition("::")[2]: r for r in records if r["kind"] == "test"}
