"""A test that must raise, from setup to its report: judged on the reports, as pytest does with ``xfail``.

The reports are the only place that sees every kind of test alike: a ``unittest.TestCase`` keeps its errors to itself
until its report is made, and a subtest has a report of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.gates.expected import did_not_raise, is_documented, is_warning, not_documented, watched_warnings
from pytest_sglhw.gates.reports import add_hint, attach

if TYPE_CHECKING:
    from pytest_sglhw.gates.verdict import Verdict

_OTHER_SUBTEST = "a subtest ended in an error that is not the documented one\n"


class Trial:
    """What has been seen of one test that must raise."""

    def __init__(self, item: pytest.Item, verdict: Verdict) -> None:
        self._item = item
        self._verdict = verdict
        self._warns = any(map(is_warning, verdict.expected))
        self._in_call = False
        self._raised = ""
        self._other = False

    @contextmanager
    def watching(self, *, call: bool) -> Iterator[None]:
        """Look out for documented warnings; reports that are made inside ``call`` are those of subtests."""
        self._in_call = call
        try:
            if not self._warns:
                yield
                return
            with watched_warnings(self._verdict.expected) as found:
                yield
            if found:
                self._raised = _named(found[0])
        finally:
            self._in_call = False

    def judge(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Turn the report of a phase into what it means for a test that must raise."""
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
        elif call.when == "call" and not self._in_call:
            self._end(report)

    def _settle(self, report: pytest.TestReport) -> None:
        report.outcome, report.longrepr = "passed", None
        if self._in_call:
            return
        if report.when == "setup":
            # The test ends here, and only a skipped setup keeps pytest from calling it.
            report.outcome = "skipped"
            line = (self._item.location[1] or 0) + 1
            report.longrepr = (os.fspath(self._item.path), line, f"Skipped: raised as documented: {self._raised}")
        self._attach(report)

    def _end(self, report: pytest.TestReport) -> None:
        if self._other:
            report.outcome, report.longrepr = "failed", _OTHER_SUBTEST + did_not_raise(self._verdict)
        elif self._raised:
            self._attach(report)
        else:
            report.outcome, report.longrepr = "failed", did_not_raise(self._verdict)

    def _attach(self, report: pytest.TestReport) -> None:
        attach(report, {**self._verdict.facts, "outcome": "raised", "raised": self._raised})


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
