"""What the tests of the report share beside fixtures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Records = list[dict[str, Any]]


def read_records(path: Path) -> Records:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def results_of(records: Records) -> dict[str, dict[str, Any]]:
    """The ``test`` records by the test's own name."""
    return {r["nodeid"].partition("::")[2]: r for r in records if r["kind"] == "test"}
