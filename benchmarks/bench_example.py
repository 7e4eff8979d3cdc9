"""Say where the CPU time of one example of the transfer matrix goes, stage by stage.

A sample of the cells of the provider ``torch`` runs as profile ``deep`` would run it, with fewer draws, on one thread.
Every stage is charged for what it does itself. Bounds: the time of an example against that of the calls of kernels in
it, and the share of the largest stage that is this project's (the kernels under test and Hypothesis are not).
"""

from __future__ import annotations

import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch

from pytest_sglhw.conformance import checks, covering, devices, pools, providers, runner
from pytest_sglhw.conformance.bench import Bench
from pytest_sglhw.conformance.families.kvcacheio import FACTS, TransferWorkload
from pytest_sglhw.conformance.kernels import all_kernels
from pytest_sglhw.conformance.transfer_trials import TransferTrial

CELLS, ROUNDS = 60, 5
EFFORT = runner.Effort(8, 40)
MOST_TIMES, MOST_SHARE = 4.0, 0.25
NOT_OURS = ("Hypothesis", "kernel")


class Stages:
    """Seconds by stage; a stage that another one interrupts does not count what the other takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open = ["runner"]
        self._since = time.thread_time()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.turn()
        self._open.append(name)
        try:
            yield
        finally:
            self.turn()
            self._open.pop()

    def turn(self) -> None:
        now = time.thread_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def charge(self, owner: Any, attribute: str, name: str) -> None:
        """Charge every call of ``owner.attribute`` to the stage ``name``."""
        function: Callable[..., Any] = getattr(owner, attribute)

        @wraps(function)
        def charged(*arguments: Any, **keywords: Any) -> Any:
            with self.stage(name):
                return function(*arguments, **keywords)

        setattr(owner, attribute, charged)


def charged() -> Stages:
    stages = Stages()
    stages.charge(runner.CellRun, "_run_draws", "Hypothesis")
    stages.charge(runner.CellRun, "_drawn", "runner")
    stages.charge(runner, "examine", "laws")
    stages.charge(TransferWorkload, "draw", "drawing a case")
    stages.charge(TransferWorkload, "build", "pools")
    stages.charge(pools.Buffer, "restore", "pools")
    stages.charge(TransferTrial, "arguments", "arguments")
    stages.charge(TransferTrial, "expected", "reference")
    stages.charge(devices.Place, "call", "kernel")
    stages.charge(checks, "same_bytes", "compare")
    return stages


def measure(stages: Stages) -> tuple[float, dict[str, float]]:
    """Run the sample; return milliseconds of an example, all in all and by stage."""
    found, examples = providers.resolve("torch"), 0
    cells = [cell for name in FACTS for cell in all_kernels()[name].cells()]
    stages.turn()
    stages.seconds.clear()
    for cell in random.Random(1).sample(cells, CELLS):
        bench = Bench(all_kernels()[cell.kernel], cell, found.kernels, found.place(), found.name)
        examples += runner.CellRun(bench, EFFORT).run().examples
    stages.turn()
    by_stage = {name: 1e3 * seconds / examples for name, seconds in stages.seconds.items()}
    return sum(by_stage.values()), by_stage


def main() -> int:
    torch.set_num_threads(1)
    pools.bank()
    for name in FACTS:
        covering.rows(all_kernels()[name], EFFORT.rows)
    stages = charged()
    total, by_stage = min((measure(stages) for _ in range(ROUNDS)), key=lambda measured: measured[0])
    for name, milliseconds in sorted(by_stage.items(), key=lambda stage: -stage[1]):
        print(f"{name:16} {milliseconds:6.3f} ms  {100 * milliseconds / total:5.1f} %")
    share = max(value for name, value in by_stage.items() if name not in NOT_OURS) / total
    times = total / by_stage["kernel"]
    fine = times <= MOST_TIMES and share <= MOST_SHARE
    print(f"an example: {total:.2f} ms, {times:.1f} times its calls of kernels, bound {MOST_TIMES:g}; ", end="")
    print(f"largest share of ours: {100 * share:.0f} %, bound {100 * MOST_SHARE:.0f} %: {'ok' if fine else 'MISSED'}")
    return int(not fine)


if __name__ == "__main__":
    sys.exit(main())
