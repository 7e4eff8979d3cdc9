"""What the gates write on pytest's reports."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType


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


def release(spent: TracebackType) -> None:
    """Let go of what holds the error of a phase whose report is made and handed on.

    The frame that keeps the call's error is the one that the error's own frames return to: a circle of some 50 objects
    for each skip, so that thousands of skips would have the garbage collector run twice as often.
    """
    keeper = spent.tb_frame.f_back
    traceback.clear_frames(spent)
    if keeper is not None:
        with suppress(RuntimeError):  # whoever runs tests in another way may not have returned from it yet
            keeper.clear()
