"""Where the choices of a case come from: Hypothesis, or a seeded generator with the covering row's choices pinned.

Hypothesis draws what has a simplest value and boundary values (the factors, the law) and one number from which a
generator derives the rest. That keeps an example at a few draws, which is most of what an example costs.
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.family import Draw, Kernel, Law, Workload

T = TypeVar("T")

_SEEDS = st.integers(0, (1 << 32) - 1)


@lru_cache(maxsize=4096)
def _sampled(values: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


class HypothesisDraw:
    """Choices drawn by Hypothesis."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.chosen: dict[str, Any] = {}
        """The value of each factor: what coverage is counted by."""

    def choice(self, name: str, values: Sequence[T]) -> T:
        """Draw one of ``values``."""
        value = self.chosen[name] = values[0] if len(values) == 1 else self._draw(_sampled(tuple(values)))
        return value

    def random(self) -> random.Random:
        """Draw the seed of a generator."""
        return random.Random(self._draw(_SEEDS))


class PinnedDraw:
    """Choices of a seeded generator, those of a covering row pinned."""

    def __init__(self, seed: int, pins: Mapping[str, Any]) -> None:
        self._random = random.Random(seed)
        self._pins = pins
        self.chosen: dict[str, Any] = {}
        """The value of each factor: what coverage is counted by."""

    def choice(self, name: str, values: Sequence[T]) -> T:
        """Choose the pinned value where there is one."""
        value = self.chosen[name] = self._pins[name] if name in self._pins else self._random.choice(values)
        return value

    def random(self) -> random.Random:
        """Give the generator itself."""
        return self._random


def choose_factors(workload: Workload, cell: Cell, draw: Draw) -> dict[str, Any]:
    """Choose a value for every factor, each among those that can stand with what is chosen already."""
    chosen: dict[str, Any] = {}
    for name, values in workload.factors(cell).items():
        fitting = [value for value in values if workload.feasible(cell, {**chosen, name: value})]
        chosen[name] = draw.choice(name, fitting)
    return chosen


class Example(NamedTuple):
    """What one example runs: a case, and the law that it is held to beyond the common ones."""

    law: Law | None
    case: Any
    chosen: dict[str, Any]


@st.composite
def examples(draw: st.DrawFn, kernel: Kernel, cell: Cell, laws: Sequence[Law]) -> Example:
    """Draw a law of the kernel and a case of the cell."""
    law = draw(_sampled(tuple(laws))) if laws else None
    source = HypothesisDraw(draw)
    return Example(law, kernel.workload.draw(cell, source), source.chosen)
