"""A plan of 10,000 tests against ``pytest --collect-only`` of the same: at most 1.2 times the time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BOUND = 1.2
ROUNDS = 5
FILES, TESTS = 100, 100

MARKS = ("", "@pytest.mark.cuda_only\n", "@pytest.mark.requires_kvcacheio\n", "@pytest.mark.sglhw(min_devices=2)\n")
LANES = "".join(f'[lanes.{name}]\nplatform = "{name}"\ncapabilities = []\n' for name in ("cpu", "cuda", "rocm", "xpu"))


def main() -> int:
    """Compare the fastest of several runs of each, taken in turn."""
    with tempfile.TemporaryDirectory() as folder:
        write_suite(Path(folder))
        times: dict[str, list[float]] = {"--collect-only": [], "--sglhw-plan": []}
        for _ in range(ROUNDS):
            for option, seconds in times.items():
                seconds.append(timed(option, Path(folder)))
    collect, plan = (min(seconds) for seconds in times.values())
    print(f"plan of {FILES * TESTS:,} tests: {plan / collect:.2f} x --collect-only (bound: {BOUND})")
    return int(plan / collect > BOUND)


def write_suite(folder: Path) -> None:
    """Write the suite, every kind of mark in every file."""
    (folder / "sglhw.toml").write_text(LANES)
    (folder / "pytest.ini").write_text("[pytest]\n")
    for at in range(FILES):
        tests = "".join(f"{MARKS[n % len(MARKS)]}def test_{n}(): pass\n" for n in range(TESTS))
        (folder / f"test_{at}.py").write_text(f"import pytest\n{tests}")


def timed(option: str, folder: Path) -> float:
    """Time one run."""
    command = [sys.executable, "-m", "pytest", "-p", "sglhw", "-p", "no:cacheprovider", "-o", "addopts=", option]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SGLHW_")}
    environ.update(PYTHONDONTWRITEBYTECODE="1", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode not in (0, 1) or f"{FILES * TESTS} tests collected" not in done.stdout:
        raise SystemExit(done.stdout[-2000:])
    return seconds


if __name__ == "__main__":
    sys.exit(main())
