"""What a file collected: refuse marks that mean nothing, before any test runs."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

# With strict markers, or with warnings as errors, pytest itself refuses an unknown name before we see it.
_REFUSED = re.compile(
    r"'(\w+)' not found in `markers` configuration option|PytestUnknownMarkWarning: Unknown pytest\.mark\.(\w+)"
)


def refuse(report: pytest.CollectReport, problems: Iterable[tuple[str, str]]) -> None:
    """Turn the report of a file into a collection error that lists its problems as ``(node id, text)``."""
    first: dict[str, str] = {}
    for nodeid, text in problems:
        first.setdefault(text, nodeid)
    report.outcome = "failed"
    report.longrepr = "\n".join(f"{nodeid}: {text}" for text, nodeid in first.items())
    report.result = []


def refused_name(report: pytest.CollectReport) -> str | None:
    """Give the mark name that pytest itself refused in this file, if that is why it failed."""
    found = _REFUSED.search(str(report.longrepr))
    return found and (found[1] or found[2])
