"""What all judges of a running test share: they watch setup and call, and then judge its reports.

The reports are the only place that sees every kind of test alike: a ``unittest.TestCase`` keeps its errors to itself
until its report is made, and a subtest has a report of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Judge:
    """Watch one test and judge the reports of its phases."""

    #: True while the test's own code runs: a report that is made then is that of a subtest.
    in_call = False

    @contextmanager
    def watching(self, *, call: bool) -> Iterator[None]:
        """Watch one phase: ``call``, or else ``setup``."""
        self.in_call = call
        try:
            yield
        finally:
            self.in_call = False

    def judge(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Turn the report of a phase, or of a subtest, into what it means."""
        raise NotImplementedError
