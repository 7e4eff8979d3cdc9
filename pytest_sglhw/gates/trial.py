"""A test that must raise: judged on its reports, as pytest does with ``xfail``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.gates.expected import did_not_raise, is_documented, is_warning, not_documented, watched_warnings
from pytest_sglhw.gates.judge import Judge
from pytest_sglhw.gates.reports import add_hint, attach, fail

if TYPE_CHECKING:
    from pytest_sglhw.gates.verdict import Verdict

_OTHER_SUBTEST = "a subtest ended in an error that is not the documented one\n"


class Trial(Judge):
    """Demand the documented error of one test."""

    def __init__(self, item: pytest.Item, verdict: Verdict) -> None:
        self._item = item
        self._verdict = verdict
        self._warns = any(map(is_warning, verdict.expected))
        self._raised = ""
        self._other = False

    @contextmanager
    def watching(self, *, call: bool) -> Iterator[None]:
        """Watch one phase, and look out for documented warnings."""
        with super().watching(call=call):
            if not self._warns:
                yield
                return
            with watched_warnings(self._verdict.expected) as found:
                yield
            if found:
                self._raised = _named(found[0])

    def judge(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Make ``raised`` of the documented error and a failure of everything else."""
        error = call.excinfo.value if call.excinfo else None
        if call.when == "teardown" or isinstance(error, (pytest.skip.Exception, pytest.xfail.Exception)):
            return
        if error is not None and is_documented(error, self._verdict.expected):
            self._raised = _named(error)
            call.excinfo = None
            self._settle(report)
        elif error is not None:
            self._other = True
            add_hint(report, "sglhw", not_documented(error, self._verdict))
        elif call.when == "call" and not self.in_call:
            self._end(report)

    def _settle(self, report: pytest.TestReport) -> None:
        report.outcome, report.longrepr = "passed", None
        if self.in_call:
            return
        if report.when == "setup":
            # The test ends here, and only a skipped setup keeps pytest from calling it.
            report.outcome = "skipped"
            line = (self._item.location[1] or 0) + 1
            report.longrepr = (os.fspath(self._item.path), line, f"Skipped: raised as documented: {self._raised}")
        self._attach(report)

    def _end(self, report: pytest.TestReport) -> None:
        if self._other:
            fail(report, _OTHER_SUBTEST + did_not_raise(self._verdict))
        elif self._raised:
            self._attach(report)
        else:
            fail(report, did_not_raise(self._verdict))

    def _attach(self, report: pytest.TestReport) -> None:
        attach(report, {**self._verdict.facts, "outcome": "raised", "raised": self._raised})


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
