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


def attach(report: Any, facts: Mapping[str, Any]) -> None:
    """Hang the facts about a test on its report: a plain attribute survives the trip from an xdist worker."""
    report.sglhw = facts
