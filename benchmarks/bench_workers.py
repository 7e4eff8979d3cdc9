"""Compare one worker with two on the transfer matrix, and say how long profile ``quick`` takes.

The ratio is of CPU time: what one process takes, against what two cores need for the run with two workers (the busier
worker, or half of everything including the controller, whichever is more). On two idle cores that is the ratio of the
times on the clock, which are printed too; where other programs run, only the former can be compared.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS, BOUND, QUICK_SECONDS = 3, 1.7, 90.0

#: Each process of a run says at its end how much CPU time it took.
PLUGIN = """
import os, pathlib, time
def pytest_unconfigure(config):
    name = os.environ.get("PYTEST_XDIST_WORKER", "controller")
    pathlib.Path(os.environ["BENCH_FOLDER"], name + ".seconds").write_text(str(time.process_time()))
"""


def run(profile: str, *arguments: str) -> tuple[float, dict[str, float]]:
    """Run the matrix of the provider ``torch``; return seconds on the clock, and of CPU time by process."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "bench_cpu_time.py").write_text(PLUGIN)
        path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "pytest_sglhw", "conformance", "--kernels=torch", f"--profile={profile}"]
        options = ["-q", "-p", "bench_cpu_time", "-p", "no:cacheprovider", *arguments]
        began = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": path, "BENCH_FOLDER": folder}
        subprocess.run([*command, *options], env=environment, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        clock = time.perf_counter() - began
        return clock, {each.stem: float(each.read_text()) for each in Path(folder).glob("*.seconds")}


def on_two_cores(seconds: dict[str, float]) -> float:
    workers = [value for name, value in seconds.items() if name != "controller"]
    return max(*workers, sum(seconds.values()) / 2)


def main() -> int:
    ratios = []
    for _ in range(ROUNDS):
        (one_clock, one), (two_clock, two) = run("ci"), run("ci", "-n2")
        ratios.append(one["controller"] / on_two_cores(two))
        words = ", ".join(f"{name} {value:.1f}" for name, value in sorted(two.items()))
        print(
            f"ci: one process {one['controller']:.1f} s of CPU time; two workers: {words}; ratio {ratios[-1]:.2f}",
            end="",
        )
        print(f" (on the clock {one_clock:.0f} s and {two_clock:.0f} s, {one_clock / two_clock:.2f})", flush=True)
    quick, _ = run("quick", "-n2")
    ratio = sorted(ratios)[ROUNDS // 2]
    fine = ratio >= BOUND and quick < QUICK_SECONDS
    print(f"two workers: {ratio:.2f} times as fast as one, bound {BOUND}; ", end="")
    print(f"quick: {quick:.0f} s, bound {QUICK_SECONDS:g} s: {'ok' if fine else 'MISSED'}")
    return int(not fine)


if __name__ == "__main__":
    sys.exit(main())
