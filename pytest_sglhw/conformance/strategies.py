"""Where the choices of a case come from: Hypothesis, or a seeded generator with the covering row's choices pinned.

Hypothesis draws what has a simplest value and boundary values (the factors, the law) and one number from which a
generator derives the rest. A draw of Hypothesis costs as much as an example, so it stands for a block of them: the one
that was drawn, and others that follow from what was drawn.
"""

from __future__ import annotations

import itertools
import random
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.family import Draw, Kernel, Law, Workload

T = TypeVar("T")

#: Hypothesis draws evenly from 24 bits; from more it draws mostly small numbers.
_SEEDS = st.integers(0, (1 << 24) - 1)


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
        chosen[name] = draw.choice(name, fitting(workload, cell, tuple(chosen.items()), name, tuple(values)))
    return chosen


@lru_cache(maxsize=1 << 14)
def fitting(
    workload: Workload, cell: Cell, chosen: tuple[tuple[str, Any], ...], name: str, values: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The values of one factor that can stand with what is chosen."""
    return tuple(value for value in values if workload.feasible(cell, {**dict(chosen), name: value}))


class Example(NamedTuple):
    """What one example runs: a case, and the law that it is held to beyond the common ones."""

    law: Law | None
    case: Any
    chosen: dict[str, Any]


class Block:
    """The examples that one draw stands for, without end: the one that was drawn, then those that follow from it.

    They meet the laws in turn.
    """

    def __init__(self, kernel: Kernel, cell: Cell, drawn: Example, seed: int) -> None:
        self._kernel, self._cell, self._drawn, self._seed = kernel, cell, drawn, seed

    def __iter__(self) -> Iterator[Example]:
        """Give the drawn example, then derive one after the other."""
        yield self._drawn
        laws = self._kernel.laws
        for number in itertools.count(self._seed << 16):
            source = PinnedDraw(number, {})
            case = self._kernel.workload.draw(self._cell, source)
            yield Example(laws[number % len(laws)] if laws else None, case, source.chosen)


@st.composite
def blocks(draw: st.DrawFn, kernel: Kernel, cell: Cell, run_seed: int) -> Block:
    """Draw a law of the kernel, a case of the cell, and what is derived from them."""
    law = draw(_sampled(kernel.laws)) if kernel.laws else None
    source = HypothesisDraw(draw)
    drawn = Example(law, kernel.workload.draw(cell, source), source.chosen)
    return Block(kernel, cell, drawn, (run_seed << 24) + draw(_SEEDS))
