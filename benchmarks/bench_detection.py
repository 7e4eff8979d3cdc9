"""What detection costs: a settled platform against torch's import, an idle plugin against an empty one."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 25

#: Installed packages are compiled; a checkout may be forbidden to write what it compiled.
ENVIRON = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

IDLE = """
import sys
def pytest_unconfigure():
    loaded = [name for name in ("torch", "numpy", "hypothesis") if name in sys.modules]
    assert not loaded, loaded
"""


def inside(code: str) -> float:
    """Seconds that ``code`` takes in a new process, without the start of Python; the best of some."""
    timed = f"import time; t = time.perf_counter()\n{code}\nprint(time.perf_counter() - t)"
    return min(float(subprocess.check_output([sys.executable, "-c", timed], text=True, env=ENVIRON)) for _ in range(3))


def pytest_runs(folder: Path) -> tuple[float, float]:
    """Processor seconds of a run with an empty plugin and with ours, taken in turns."""
    folder.joinpath("empty_plugin.py").write_text("")
    folder.joinpath("test_nothing.py").write_text("def test_nothing(): pass\n")
    folder.joinpath("conftest.py").write_text(IDLE)
    times: dict[str, list[float]] = {"empty_plugin": [], "sglhw": []}
    environ = {**ENVIRON, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for _ in range(ROUNDS):
        for plugin, taken in times.items():
            before = cpu_of_children()
            command = [sys.executable, "-m", "pytest", "-q", "-p", plugin]
            subprocess.run(command, cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
            taken.append(cpu_of_children() - before)
    return min(times["empty_plugin"]), min(times["sglhw"])


def cpu_of_children() -> float:
    """Processor seconds of all children so far: wall time tells more of the neighbours than of the plugin."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure, print each value with its bound, and return 1 if one is missed."""
    share = inside("import pytest_sglhw; pytest_sglhw.probe_environment(())") / inside("import torch")
    print(f"platform settled without torch: {share:.1%} of torch's import (bound: 5%)")
    with tempfile.TemporaryDirectory() as folder:
        empty, ours = pytest_runs(Path(folder))
    extra = (ours - empty) * 1000
    print(f"idle plugin: {extra:+.1f} ms over an empty one (bound: 5 ms; {ours / empty:.3f} of its run)")
    return int(share > 0.05 or extra > 5)


if __name__ == "__main__":
    sys.exit(main())
