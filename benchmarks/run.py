"""Run every benchmark beside this file, or those named; exit 1 if one missed its bound.

A benchmark is a file ``bench_<what>.py`` that measures a ratio, prints it with its bound, and exits 1 if it is missed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main(wanted: list[str]) -> int:
    """Run the benchmarks whose names are in ``wanted`` (all if empty), one after the other: they measure time."""
    found = {path.stem.removeprefix("bench_"): path for path in sorted(HERE.glob("bench_*.py"))}
    unknown = [name for name in wanted if name not in found]
    if unknown:
        print(f"No benchmark named {', '.join(unknown)}. Valid: {', '.join(found)}.", file=sys.stderr)
        return 2
    missed = [name for name in wanted or found if not fine(name, found[name])]
    print(f"\nmissed its bound: {', '.join(missed)}" if missed else "\nevery bound is met")
    return 1 if missed else 0


def fine(name: str, path: Path) -> bool:
    """Run one benchmark in a process of its own."""
    print(f"\n== {name}", flush=True)
    return subprocess.run([sys.executable, str(path)], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
