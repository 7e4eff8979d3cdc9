"""What the gates cost: suites with our marks against the same suite without plugin and marks.

CPU seconds of the whole run, its workers included. The runs alternate, so that a machine that gets busy slows all; a
ratio is the median of those of runs that follow each other. What loading costs is a few milliseconds in 300, less than
a busy machine adds to a run: there the cheapest runs are compared, since nothing makes a run cheaper than it is.
``python benchmarks/bench_gates.py [ROUNDS]``.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROUNDS = 9
BOUND = 1.05
LOAD_BOUND = 5.0  # milliseconds over an empty plugin
MEMORY_BOUND = 3.0  # MiB over the bare run, for 2,000 tests: a mark on a test is itself some memory

SKIPIF = "@pytest.mark.skipif(not torch.cuda.is_available(), reason='no cuda')\n"


class Case(NamedTuple):
    """One kind of run: the suite's file and pytest's options."""

    name: str
    suite: str
    options: tuple[str, ...] = ()


class Cost(NamedTuple):
    """What one run cost: CPU seconds with all children, and the peak memory of its main process in MiB."""

    seconds: float
    memory: float


def suite(tests: int, mark: str = "", imports: str = "") -> str:
    """Write a suite of trivial tests, each with ``mark``."""
    return imports + "".join(f"{mark}def test_{i}():\n    assert True\n" for i in range(tests))


SUITES = {
    "bare": suite(2_000),
    "cuda_only": suite(2_000, "@pytest.mark.cuda_only\n", "import pytest\n"),
    "cpu_only": suite(2_000, "@pytest.mark.cpu_only\n", "import pytest\n"),
    "stacked": suite(2_000, "@requires_kvcacheio('transfer_kv_direct')\n@sglhw(min_memory='40GiB')\n",
                     "from pytest_sglhw import requires_kvcacheio, sglhw\n"),
    "many_bare": suite(10_000),
    "many": suite(10_000, "@pytest.mark.cpu_only\n", "import pytest\n"),
    "one": suite(1),
    "skipif": suite(2_000, SKIPIF, "import pytest, torch\n"),
    "pytest_torch": suite(2_000, "@pytest.mark.torch_requires(cuda=True)\n", "import pytest\n"),
}  # fmt: skip
#: Other ways to skip where there is no GPU: measured beside ours, held to nothing.
COMPARED = {"skipif": "skipif(not torch.cuda...)", "pytest_torch": "pytest-torch's torch_requires(cuda=True)"}
PLUGIN = ("-p", "sglhw")
WORKERS = ("-p", "xdist", "-n", "2")


def run(folder: Path, case: Case) -> Cost:
    """Run one case in a process of its own and give its cost."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *case.options, f"test_{case.suite}.py"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SGLHW_", "PYTEST_"))}
    # An installed plugin has its bytecode: without it, every run would measure the compiler.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (case.name, process.returncode)
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def measure(folder: Path, cases: list[Case], rounds: int) -> list[list[Cost]]:
    """Run all cases in turn, ``rounds`` times after one that warms the caches; give the costs of each round."""
    return [[run(folder, case) for case in cases] for _ in range(rounds + 1)][1:]


def compare(folder: Path, base: Case, cases: list[Case], rounds: int) -> list[str]:
    """Print the ratio of each case to ``base``; give those that missed the bound."""
    found = measure(folder, [base, *cases], rounds)
    missed = []
    for at, case in enumerate(cases, start=1):
        ratio = statistics.median(costs[at].seconds / costs[0].seconds for costs in found)
        memory = statistics.median(costs[at].memory - costs[0].memory for costs in found)
        bounded = case.suite not in COMPARED
        too_big = memory > MEMORY_BOUND and case.suite != "many"
        print(
            f"{case.name:44} {ratio:6.3f} times the bare cpu time, {memory:+6.1f} MiB"
            + ("" if bounded else " (for comparison)")
        )
        if bounded and (ratio > BOUND or too_big):
            missed.append(case.name)
    return missed


def install_empty(folder: Path) -> None:
    """Install a plugin that is an empty file, the way ours is: pytest names each installed plugin in its header."""
    folder.joinpath("empty_plugin.py").touch()
    info = folder / "empty_plugin-1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: empty-plugin\nVersion: 1.0\n")
    info.joinpath("entry_points.txt").write_text("[pytest11]\nempty = empty_plugin\n")


def load_cost(folder: Path, rounds: int) -> list[str]:
    """Print what loading the plugin costs a run without our marks, over a plugin that is an empty file."""
    missed = []
    for name, options in (("loading the plugin, no marks", ()), ("the same with -q: no header", ("-q",))):
        cases = [Case("empty", "one", ("-p", "empty", *options)), Case("ours", "one", (*PLUGIN, *options))]
        found = measure(folder, cases, 3 * rounds)
        cheapest = [min(cost.seconds for cost in costs) for costs in zip(*found, strict=True)]
        milliseconds = (cheapest[1] - cheapest[0]) * 1e3
        print(f"{name:44} {milliseconds:6.1f} ms over an empty plugin (bound {LOAD_BOUND})")
        if milliseconds > LOAD_BOUND:
            missed.append(name)
    return missed


def main(rounds: int) -> int:
    """Measure and print; exit 1 if a bound is missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install_empty(folder)
        for stem, text in SUITES.items():
            (folder / f"test_{stem}.py").write_text(text)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), name]))
        marked = [Case(f"2,000 tests, {stem}", stem, PLUGIN) for stem in ("cuda_only", "cpu_only", "stacked")]
        if importlib.util.find_spec("torch"):
            marked.append(Case(f"2,000 tests, {COMPARED['skipif']}", "skipif"))
            if importlib.util.find_spec("pytest_torch"):
                marked.append(Case(f"2,000 tests, {COMPARED['pytest_torch']}", "pytest_torch", ("-p", "pytest_torch")))
        missed = load_cost(folder, rounds)
        missed += compare(folder, Case("bare", "bare"), marked, rounds)
        if importlib.util.find_spec("xdist"):
            distributed = [
                Case(f"2,000 tests, -n 2, {stem}", stem, PLUGIN + WORKERS) for stem in ("cuda_only", "cpu_only")
            ]
            missed += compare(folder, Case("bare", "bare", WORKERS), distributed, rounds)
        missed += compare(
            folder, Case("bare", "many_bare"), [Case("10,000 tests, cpu_only", "many", PLUGIN)], max(3, rounds // 2)
        )
    print(f"missed the bound: {', '.join(missed)}" if missed else f"all within {BOUND} times and {MEMORY_BOUND} MiB")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
