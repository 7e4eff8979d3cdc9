"""Programs: the geometry of two pools, and the steps that are done to them. Plain values, complete in themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

SIDES = ("device", "host")

#: What a step may do, and how often a program does it.
VERBS = ("write", "backup", "load", "move", "evict")

#: Pages of one pool: few, so that slots are used again and again.
PAGES = (4, 5, 7)


class Step(NamedTuple):
    """One step.

    ``write``: new rows are computed into ``targets`` of the device pool. ``backup``: device to host. ``load``: host to
    device. ``move``: inside the device pool, all sources read before a target is written. ``evict``: ``targets`` of
    ``side`` are given up, and whoever gets their memory scribbles over them.
    """

    verb: str
    unit: str
    """What the numbers count: ``page`` or ``token``."""
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    side: str = "device"

    def __repr__(self) -> str:
        """As a plain tuple: what a program in a snippet is written with."""
        return repr(tuple(self))

    def words(self) -> str:
        """Say it."""
        unit = self.unit + ("s" if len(self.targets) > 1 else "")
        sources, targets = (", ".join(map(str, numbers)) for numbers in (self.sources, self.targets))
        if self.verb in {"write", "evict"}:
            return f"{self.verb} {self.side} {unit} {targets}"
        start, end = ends(self.verb)
        return f"{self.verb} {start} {unit} {sources} to {end} {unit} {targets}"


def ends(verb: str) -> tuple[str, str]:
    """The sides that a backup, a load or a move reads and writes."""
    return {"backup": ("device", "host"), "load": ("host", "device"), "move": ("device", "device")}[verb]


@dataclass(frozen=True)
class Program:
    """Two pools of the same rows, and what is done to them in order."""

    layers: int
    heads: int
    head_bytes: int
    v_head_bytes: int
    device_pages: int
    host_pages: int
    device_base: int
    host_base: int
    rotation: int
    quota: int
    warps: int
    seed: int
    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        """Take steps as plain tuples too."""
        object.__setattr__(self, "steps", tuple(Step(*step) for step in self.steps))

    def pages(self, side: str) -> int:
        """Pages of one side's pool."""
        return self.device_pages if side == "device" else self.host_pages

    def used_pages(self, side: str, page_size: int) -> int:
        """Pages that a side's pool must have for the steps."""
        most = 0
        for step in self.steps:
            start, end = (step.side,) * 2 if step.verb in {"write", "evict"} else ends(step.verb)
            numbers = (step.sources if start == side else ()) + (step.targets if end == side else ())
            most = max(most, *(number if step.unit == "page" else number // page_size for number in numbers), 0)
        return most + 1

    def base(self, side: str) -> int:
        """Bytes by which one side's pools start off their allocations."""
        return self.device_base if side == "device" else self.host_base


class Author:
    """Chooses steps that make sense: what is live is backed up and evicted, what is free is written.

    A third of the steps goes where a step of the same kind went before: slots that are used a second time are what
    shows kernels that remember.

    :param by_page: whether the transfers move whole pages only.
    """

    def __init__(self, program: Program, page_size: int, *, by_page: bool) -> None:
        self._program, self._page_size, self._by_page = program, page_size, by_page
        self._live: dict[str, set[int]] = {side: set() for side in SIDES}
        self._past: list[Step] = []

    def step(self, verb: str, rng: Random, *, overlap: bool = False) -> Step:
        """Choose a step; ``overlap`` lets the targets of a move be its sources."""
        before = [step for step in self._past if step.verb == verb]
        if verb != "move" and before and rng.random() < 1 / 3:
            step = rng.choice(before)
        elif verb == "move":
            step = self._move(rng, overlap)
        elif verb in {"backup", "load"}:
            step = self._transfer(verb, rng)
        else:
            step = self._harness(verb, rng)
        self._note(step)
        return step

    def _transfer(self, verb: str, rng: Random) -> Step:
        start, end = ends(verb)
        count = rng.randint(1, 3)
        if self._by_page or rng.random() < 1 / 2:
            return Step(verb, "page", self._pages(rng, start, count, live=True), self._pages(rng, end, count))
        slots = [range(self._program.pages(side) * self._page_size) for side in (start, end)]
        count = rng.randint(1, min(12, *map(len, slots)))
        sources, targets = (tuple(rng.sample(tokens, count)) for tokens in slots)
        return Step(verb, "token", sources, targets)

    def _move(self, rng: Random, overlap: bool) -> Step:
        tokens = self._program.device_pages * self._page_size
        count = rng.randint(1, min(12, tokens // 2))
        if not overlap:
            slots = rng.sample(range(tokens), 2 * count)
            return Step("move", "token", tuple(slots[:count]), tuple(slots[count:]))
        if rng.random() < 1 / 2:  # a run of slots, each to its successor
            first = rng.randrange(tokens - count)
            return Step("move", "token", tuple(range(first, first + count)), tuple(range(first + 1, first + count + 1)))
        slots = rng.sample(range(tokens), count)
        return Step("move", "token", tuple(slots), (*slots[1:], slots[0]))

    def _harness(self, verb: str, rng: Random) -> Step:
        side = "device" if verb == "write" else rng.choice(SIDES)
        return Step(verb, "page", (), self._pages(rng, side, rng.randint(1, 2), live=verb == "evict"), side)

    def _pages(self, rng: Random, side: str, count: int, *, live: bool = False) -> tuple[int, ...]:
        """Different pages of a side: those that are live (or free) first, then any."""
        pages = list(range(self._program.pages(side)))
        rng.shuffle(pages)
        pages.sort(key=lambda page: (page in self._live[side]) != live)
        return tuple(pages[:count])

    def _note(self, step: Step) -> None:
        self._past.append(step)
        if step.unit != "page":
            return
        if step.verb == "evict":
            self._live[step.side] -= set(step.targets)
        else:
            self._live["host" if step.verb == "backup" else "device"] |= set(step.targets)


def without_each(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    """Every way to leave out a part of the steps: halves first, single steps last."""
    result, size = [], len(steps) // 2
    while size:
        result += [(*steps[:start], *steps[start + size :]) for start in range(0, len(steps), size)]
        size //= 2
    return [kept for kept in result if kept]


def fewer_numbers(step: Step) -> list[Step]:
    """The step with one of its pages or tokens left out."""
    if len(step.targets) == 1:
        return []
    places = range(len(step.targets))
    return [step._replace(sources=_without(step.sources, at), targets=_without(step.targets, at)) for at in places]


def _without(numbers: tuple[int, ...], at: int) -> tuple[int, ...]:
    return numbers[:at] + numbers[at + 1 :]
