"""The state machine: Hypothesis chooses the rules, one step each, and every step is played as soon as it is chosen."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from pytest_sglhw.conformance.strategies import HypothesisDraw

if TYPE_CHECKING:
    from pytest_sglhw.conformance.bench import Bench
    from pytest_sglhw.conformance.family import Attempt, Finished
    from pytest_sglhw.conformance.stateful.player import Player
    from pytest_sglhw.conformance.stateful.program import Author, Program
    from pytest_sglhw.conformance.stateful.workload import SequenceWorkload

_SEEDS = st.integers(0, (1 << 32) - 1)


class PoolMachine(RuleBasedStateMachine):
    """A device pool and a host pool. Its rules are the verbs of a program.

    :param attempt: see :data:`~pytest_sglhw.conformance.family.Attempt`.
    :param finished: see :data:`~pytest_sglhw.conformance.family.Finished`.
    """

    def __init__(self, bench: Bench, workload: SequenceWorkload, attempt: Attempt, finished: Finished) -> None:
        super().__init__()
        self._bench, self._workload = bench, workload
        self._attempt, self._finished = attempt, finished
        self._movers = workload.movers(bench)
        self._program: Program | None = None
        self._player: Player
        self._author: Author
        self._chosen: dict[str, Any] = {}

    @initialize(data=st.data())
    def make_pools(self, data: st.DataObject) -> None:
        """Choose the geometry, make both pools."""
        draw = HypothesisDraw(cast("st.DrawFn", data.draw))
        program = self._workload.geometry(self._bench.cell, draw)
        self._chosen = draw.chosen
        self._author = self._workload.author(self._bench.cell, program)
        self._attempt(program, lambda: setattr(self, "_player", self._workload.player(self._bench, program)))
        self._program = program

    @rule(seed=_SEEDS)
    def write(self, seed: int) -> None:
        """Compute new rows in the device pool."""
        self._do("write", seed)

    @rule(seed=_SEEDS)
    def backup(self, seed: int) -> None:
        """Move rows to the host pool."""
        self._do("backup", seed)

    @rule(seed=_SEEDS)
    def load(self, seed: int) -> None:
        """Move rows to the device pool."""
        self._do("load", seed)

    @precondition(lambda self: bool(self._movers))
    @rule(seed=_SEEDS)
    def move(self, seed: int) -> None:
        """Move rows inside the device pool, onto each other where a kernel of the provider provides for that."""
        self._do("move", seed, overlap=any(mover.overlaps for mover in self._movers) and seed % 3 > 0)

    @rule(seed=_SEEDS)
    def evict(self, seed: int) -> None:
        """Give pages up to somebody else."""
        self._do("evict", seed)

    def _do(self, verb: str, seed: int, **options: Any) -> None:
        assert self._program
        step = self._author.step(verb, random.Random(seed), **options)
        self._program = replace(self._program, steps=(*self._program.steps, step))
        self._attempt(self._program, lambda: self._player.play(step))

    def teardown(self) -> None:
        """Count the program."""
        if self._program:
            self._finished(self._chosen)
