"""What a report costs: the CPU time of a run of 2,000 tests that writes one, against the same run without."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = 2_000
BOUND = 1.10
ROUNDS = 7

SUITE = f"""
import pytest

@pytest.mark.parametrize("number", range({TESTS}))
def test_number(number):
    assert number >= 0
"""


def seconds(folder: Path, *options: str) -> float:
    """Give the CPU seconds of one run of the suite in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "sglhw", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SGLHW_", "PYTEST_"))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed plugin has its bytecode
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # what else is installed would be in both runs
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Measure and print; exit 1 if the bound is missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_many.py").write_text(SUITE)
        seconds(folder)
        # One after the other, so that a machine that gets busy slows both; of such pairs the middle one counts.
        pairs = [(seconds(folder, "--sglhw-report", "r.jsonl"), seconds(folder)) for _ in range(ROUNDS)]
    ratio = statistics.median(with_report / bare for with_report, bare in pairs)
    print(f"{TESTS} tests with a report: {ratio:.3f} times the bare run (bound {BOUND})")
    return int(ratio > BOUND)


if __name__ == "__main__":
    sys.exit(main())
