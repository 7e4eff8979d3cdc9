"""Judge a test with a known gap: it must fail until the gap is closed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.gates.judge import Judge
from pytest_sglhw.gates.known_gap import Gap, expired
from pytest_sglhw.gates.reports import add_hint, attach, fail

if TYPE_CHECKING:
    from pytest_sglhw.gates.policy import LanePolicy


class GapJudge(Judge):
    """Expect one test to fail, and say so where it does not or should no longer."""

    def __init__(self, gap: Gap, policy: LanePolicy | None, sglang: Callable[[], str | None]) -> None:
        self._gap = gap
        self._policy = policy
        self._sglang = sglang
        self._failed = False

    def judge(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Make an expected failure of a failure, and a failure of a pass, a missing issue or a gap that is overdue."""
        if call.when == "teardown" or report.skipped or hasattr(report, "wasxfail"):
            return
        error = call.excinfo.value if call.excinfo else None
        if report.failed and self._gap.raises and not isinstance(error, self._gap.raises):
            names = " or ".join(cls.__name__ for cls in self._gap.raises)
            add_hint(report, "sglhw", f"{self._gap.text} expects {names}, so this is another failure.")
        elif report.failed or (call.when == "call" and not self.in_call):
            self._decide(report)

    def _decide(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed
        overdue = expired(self._gap, dt.date.today(), self._sglang())
        if self._gap.issue is None:
            fail(report, f"{self._gap.text}: a known gap needs issue=, the URL where it will be closed.")
        elif not self._failed:
            fail(report, f"{self._gap.text}: passed, so the gap is closed. Remove the mark and close the issue.")
        elif overdue and self._policy:
            fail(report, f"{self._gap.text}: still fails, but {overdue}. Close the gap or set a new date.")
        else:
            report.outcome = "skipped"
            report.wasxfail = self._gap.wording
            if overdue:
                attach(report, {"stale": f"{self._gap.text}: {overdue}"})
