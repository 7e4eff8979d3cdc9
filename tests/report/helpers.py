"""What the tests of the report share beside fixtures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Records = list[dict[str, Any]]


def read_records(path: Path) -> Records:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def results_of(records: Records) -> dict[str, dict[str, Any]]:
    """The ``test`` records by the test's own name."""
    return {r["nodeid"].partition("::")[2]: r for r in records if r["kind"] == "test"}


def session(lane: str | None = "cuda", **facts: Any) -> dict[str, Any]:
    """A ``session`` record of a lane on a machine of its name."""
    machine = {"platform": lane or "cpu", "devices": [{"index": 0, "arch": "sm90"}], "versions": {"runtime": "12.8"}}
    record = {"kind": "session", "schema": "1.0", "run_id": f"run-{lane}", "time": 1000.0, "attempt": 1, "lane": lane}
    return record | {"shard": None, "promise": None, "fake": None, "environment": machine} | facts


def result(nodeid: str, outcome: str = "passed", **facts: Any) -> dict[str, Any]:
    return {
        "kind": "test",
        "nodeid": nodeid,
        "outcome": outcome,
        "duration": 0.5,
        "attempt": 1,
        "phase": "call",
    } | facts


def start(nodeid: str) -> dict[str, Any]:
    return {"kind": "start", "nodeid": nodeid, "time": 1001.0}


def collect(nodeid: str, outcome: str, reason: str = "") -> dict[str, Any]:
    return {"kind": "collect", "nodeid": nodeid, "outcome": outcome, "reason": reason}


def end(exit_status: int = 0, **facts: Any) -> dict[str, Any]:
    return {"kind": "end", "exit_status": exit_status, "counts": {}} | facts


def write(path: Path, records: Iterable[dict[str, Any]]) -> str:
    """Write records as a report and return its path."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "ascii")
    return str(path)


def lane(path: Path, name: str | None, *results: dict[str, Any], exit_status: int = 0, **facts: Any) -> str:
    """Write the whole report of one lane."""
    return write(path / f"{facts.get('run_id', name)}.jsonl", [session(name, **facts), *results, end(exit_status)])
