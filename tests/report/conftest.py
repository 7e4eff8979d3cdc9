"""What the report's tests share: run pytest on a small suite and read the records it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .helpers import Records, read_records

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def report(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Records]:
    """Run pytest in a subprocess with a report and return its records; the exit status is in the last one."""
    monkeypatch.delenv("SGLHW_OUTER_PYTEST", raising=False)
    monkeypatch.delenv("GITHUB_RUN_ATTEMPT", raising=False)

    def run(*args: str) -> Records:
        pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-report", "r.jsonl", *args, timeout=60)
        return read_records(pytester.path / "r.jsonl")

    return run
