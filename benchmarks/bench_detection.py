"""What detection costs: a platform that static facts settle against the import of torch.

What an idle run costs is measured by ``bench_gates.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys

ROUNDS = 9
BOUND = 0.05

#: Installed packages are compiled; a checkout may be forbidden to write what it compiled.
ENVIRON = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

SETTLED = "import pytest_sglhw; environment = pytest_sglhw.probe_environment(()); assert environment.platform == 'cpu'"


def inside(code: str) -> float:
    """Seconds that ``code`` takes in a new process, without the start of Python."""
    timed = f"import time; t = time.perf_counter()\n{code}\nprint(time.perf_counter() - t)"
    return float(subprocess.check_output([sys.executable, "-c", timed], text=True, env=ENVIRON))


def main() -> int:
    """Measure in turns, print the ratio of the cheapest with its bound, and return 1 if it is missed."""
    taken = [(inside(SETTLED), inside("import torch")) for _ in range(ROUNDS + 1)][1:]
    settled, torch = map(min, zip(*taken, strict=True))
    print(f"platform settled without torch: {settled / torch:.1%} of torch's import (bound: {BOUND:.0%})")
    return int(settled / torch > BOUND)


if __name__ == "__main__":
    sys.exit(main())
