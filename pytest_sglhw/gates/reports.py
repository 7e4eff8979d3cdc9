"""What the gates write on pytest's reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def add_hint(report: Any, title: str, text: str) -> None:
    """Show ``text`` below the error of a report, wherever that error is shown."""
    if hasattr(report.longrepr, "addsection"):
        report.longrepr.addsection(title, text)
    else:
        report.longrepr = f"{report.longrepr}\n{title}: {text}"


def fail(report: Any, text: str) -> None:
    """Make a failure of a report, or say ``text`` below the error that it has."""
    if report.failed:
        add_hint(report, "sglhw", text)
    else:
        report.outcome, report.longrepr = "failed", text


def attach(report: Any, facts: Mapping[str, Any]) -> None:
    """Hang facts about a test on its report: a plain attribute survives the trip from an xdist worker."""
    before = getattr(report, "sglhw", None)
    report.sglhw = {**before, **facts} if before else facts  # one dict for all tests of a verdict: pytest keeps reports
