"""Merging 10 lanes of 20,000 tests, against decoding the same bytes; and memory by the number of tests."""

from __future__ import annotations

import json
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from pytest_sglhw.report import terminal
from pytest_sglhw.report.findings import find
from pytest_sglhw.report.matrix import build
from pytest_sglhw.report.merge import merge
from pytest_sglhw.report.reader import read_file

LANES = 10
TESTS = 20_000
BOUND = 4.0
#: Memory for each test may grow by this much from a tenth of the tests to all of them.
MEMORY_BOUND = 1.2
ROUNDS = 3


def write_lane(path: Path, lane: int, tests: int) -> str:
    """Write the report of one lane as a run writes it."""
    environment = {"platform": "cuda", "devices": [{"arch": f"sm{lane}"}], "versions": {"runtime": "12.8"}}
    records = [
        {"kind": "session", "schema": "1.0", "run_id": str(lane), "lane": f"lane{lane}", "environment": environment}
    ]
    for test in range(tests):
        nodeid = f"tests/kv/test_module_{test // 40}.py::TestTransfer::test_roundtrip[page_first-float16-{test}]"
        outcome = ("skipped", "passed", "passed", "raised")[(test + lane) % 4]
        skipped = outcome == "skipped"
        records.append({"kind": "start", "nodeid": nodeid, "time": 1_800_000_000.123})
        records.append({
            "kind": "test", "nodeid": nodeid, "outcome": outcome, "duration": 0.012345, "platform": "cuda",
            "worker": "gw0", "attempt": 1, "requirement": "requires_kv4",
            "state": "unavailable" if skipped else "available",
            "reason_code": "capability:kv4" if skipped else None, "reason": "kv4 is not for sm90" if skipped else "",
            "phase": "call", "marks": ["requires_kv4"], "lane": f"lane{lane}",
        })  # fmt: skip
    records.append({"kind": "end", "exit_status": 0, "counts": {}})
    target = path / f"lane{lane}.jsonl"
    target.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
    return str(target)


def decode(paths: list[str]) -> None:
    """Decode every record and keep none: the least that any reader does."""
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                json.loads(line)


def merged(paths: list[str]) -> object:
    """Do what ``sglhw merge`` does: read, merge, lay out, find, render."""
    seen: dict[object, object] = {}
    matrix = build(merge(*(read_file(path, seen).runs for path in paths)))
    terminal.render(matrix, find(matrix))
    return matrix


def best(function: Callable[[list[str]], object], paths: list[str]) -> float:
    """Processor seconds of the fastest of several rounds."""
    times = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        function(paths)
        times.append(time.process_time() - begun)
    return min(times)


def bytes_per_test(folder: Path, tests: int) -> float:
    """Memory that a merged matrix of so many tests holds, for each of them."""
    paths = [write_lane(folder, lane, tests) for lane in range(LANES)]
    tracemalloc.start()
    matrix = merged(paths)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del matrix
    return held / tests


def main() -> int:
    """Measure and print; exit 1 if a bound is missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = (bytes_per_test(folder, tests) for tests in (TESTS // 10, TESTS))
        paths = [write_lane(folder, lane, TESTS) for lane in range(LANES)]
        ratio = best(merged, paths) / best(decode, paths)
    growth = many / few
    print(f"merge of {LANES} x {TESTS} tests: {ratio:.2f} times json.loads of the same bytes (bound {BOUND})")
    print(f"memory for each test: {few:.0f} bytes of {TESTS // 10} tests, {many:.0f} of {TESTS}: "
          f"{growth:.2f} times (bound {MEMORY_BOUND})")  # fmt: skip
    return int(ratio > BOUND or growth > MEMORY_BOUND)


if __name__ == "__main__":
    sys.exit(main())
