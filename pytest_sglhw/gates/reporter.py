"""Say on the reports of tests what became of them."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.gates.reports import attach, release
from pytest_sglhw.gates.runtime import JUDGES, VERDICT, GateSkip

if TYPE_CHECKING:
    from types import TracebackType


class Reporter:
    """Say on the reports what became of a test, and let its judges speak.

    Registered with the first test that does more than run, or where somebody reads the facts of those that run too:
    most of the tests of most runs have nothing to say.
    """

    def __init__(self) -> None:
        self._spent: TracebackType | None = None

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the facts, and let the judges speak."""
        report = yield
        if self._spent is not None:
            release(self._spent)
            self._spent = None
        verdict = item.stash.get(VERDICT, None)
        if verdict is None:
            return report
        if call.when == "setup":
            if call.excinfo is not None and isinstance(call.excinfo.value, GateSkip):
                report.longrepr = (os.fspath(item.path), (item.location[1] or 0) + 1, f"Skipped: {verdict.reason}")
                self._spent = call.excinfo.tb
            attach(report, verdict.facts)
        if report.skipped and _is_own_skip(report, call):
            attach(report, {"reason_code": None, "reason": ""})
        for judge in item.stash.get(JUDGES, ()):
            judge.judge(report, call)
        return report


def _is_own_skip(report: pytest.TestReport, call: pytest.CallInfo[None]) -> bool:
    """Whether the test skips itself, or pytest skips it: then no verdict of ours is the reason."""
    return not hasattr(report, "wasxfail") and not (call.excinfo and isinstance(call.excinfo.value, GateSkip))
