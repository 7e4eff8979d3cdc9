"""Run a suite of gates in a pytest of its own and read each test's outcome from the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GATES = Path(__file__).parent / "gates"


@dataclass(frozen=True)
class SuiteRun:
    """What one run of a suite said: the report's record of each test by its id, and what the terminal showed."""

    tests: dict[str, dict[str, Any]]
    text: str

    def outcomes(self) -> dict[str, str]:
        """Give the outcome word of each test."""
        return {name: record["outcome"] for name, record in self.tests.items()}


def run_suite(directory: Path, *arguments: str, **environment: str) -> SuiteRun:
    """Run pytest over the gates named in ``arguments``; importing SGLang once serves all of them."""
    report = directory / "report.jsonl"
    command = [
        *(sys.executable, "-m", "pytest", "-p", "sglhw", "-p", "no:cacheprovider", "-o", "filterwarnings=default"),
        "--tb=native",  # Python 3.11 can fail to parse, for a pretty traceback, sources that it has run
        *("--disable-warnings", "--sglhw-report", str(report), *arguments),
    ]
    # A test of SGLang's Triton kernels may have set TRITON_INTERPRET for this process: it opens Triton's gate.
    ours = ("PYTEST_", "SGLHW_", "TRITON_")
    outer = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        command,
        cwd=GATES,
        env={**outer, "SGLHW_UPSTREAM": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout
    records = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    tests = {r["nodeid"].rpartition("/")[2]: r for r in records if r["kind"] == "test"}
    assert tests, done.stdout
    return SuiteRun(tests, done.stdout)
