"""Sequences as cells of the matrix: their geometry, programs drawn without a machine, and how one is reduced."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_sglhw.conformance.family import Sequences
from pytest_sglhw.conformance.stateful.machine import PoolMachine
from pytest_sglhw.conformance.stateful.player import Player
from pytest_sglhw.conformance.stateful.program import PAGES, SIDES, VERBS, Author, Program, fewer_numbers, without_each
from pytest_sglhw.conformance.stateful.routes import movers
from pytest_sglhw.conformance.strategies import choose_factors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_sglhw.conformance.bench import Bench
    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.family import Attempt, Draw, Finished
    from pytest_sglhw.conformance.stateful.routes import Mover, Route

#: Steps of a program that is drawn without a machine (a row of the covering design).
ROW_STEPS = 12

#: Bytes that one pool may have: every step compares all of them.
POOL_BYTES = 1 << 19


class SequenceWorkload(Sequences):
    """Backups, loads, moves and evictions of a device pool and a host pool.

    :param routes: the kernels for each layout of the host pool.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = {route.host_layout: route for route in routes}

    def needs(self, cell: Cell) -> tuple[str, ...]:
        """See :class:`Workload`: a kernel for each way; moves are made by whatever the provider has for them."""
        route = self.routes[cell.layout]
        return tuple(dict.fromkeys((route.backup, route.load)))

    def factors(self, cell: Cell) -> Mapping[str, Sequence[Any]]:
        """See :class:`Workload`."""
        return {
            "layers": (1, 2, 3, 5),
            "heads": (1, 2, 4),
            "row_bytes": self.routes[cell.layout].row_bytes,
            "device_pages": PAGES,
            "host_pages": PAGES,
        }

    def feasible(self, cell: Cell, chosen: Mapping[str, Any]) -> bool:
        """Rows divide into heads (of whole words in ``page_head``), and pools stay small."""
        heads, row, layers = (chosen.get(name, 1) for name in ("heads", "row_bytes", "layers"))
        unit = self._unit(cell)
        pages = max(chosen.get("device_pages", PAGES[0]), chosen.get("host_pages", PAGES[0]))
        if "row_bytes" not in chosen:
            row = max(self.routes[cell.layout].row_bytes[0], heads * unit)
        return bool(row % (heads * unit) == 0 and row * layers * pages * cell.page_size <= POOL_BYTES)

    def geometry(self, cell: Cell, draw: Draw) -> Program:
        """Draw a program without steps."""
        chosen = choose_factors(self, cell, draw)
        rng = draw.random()
        row, heads, layers = chosen.pop("row_bytes"), chosen["heads"], chosen["layers"]
        head = v_head = row // heads
        if self.routes[cell.layout].is_direct and cell.layout == "layer_first":
            v_head = rng.choice((head, cell.itemsize, head + cell.itemsize))
        bases = [rng.choice((0, 8, 72)) for _ in range(2)] if row % 128 else [0, 128]
        return Program(
            head_bytes=head,
            v_head_bytes=v_head,
            device_base=bases[0],
            host_base=bases[1],
            rotation=rng.randrange(layers + 1),
            quota=rng.choice((1, 2, 16)),
            warps=rng.choice((1, 4, 32)),
            seed=rng.randrange(1 << 30),
            **chosen,
        )

    def draw(self, cell: Cell, draw: Draw) -> Program:
        """See :class:`Workload`: a program whose verbs are chosen by chance."""
        program = self.geometry(cell, draw)
        rng, author = draw.random(), self.author(cell, program)
        return replace(program, steps=tuple(author.step(rng.choice(VERBS), rng) for _ in range(ROW_STEPS)))

    def author(self, cell: Cell, program: Program) -> Author:
        """Who chooses the steps of a program."""
        return Author(program, cell.page_size, by_page=self.routes[cell.layout].is_direct)

    def movers(self, bench: Bench) -> list[Mover]:
        """The kernels of the provider that move slots inside the device pool."""
        return movers(bench, self.routes[bench.cell.layout])

    def player(self, bench: Bench, program: Program) -> Player:
        """Who plays them."""
        return Player(bench, self.routes[bench.cell.layout], program)

    def play(self, bench: Bench, program: Program) -> None:
        """See :class:`Sequences`."""
        player = self.player(bench, program)
        for step in program.steps:
            player.play(step)

    def machine(self, bench: Bench, attempt: Attempt, finished: Finished) -> PoolMachine:
        """See :class:`Sequences`."""
        return PoolMachine(bench, self, attempt, finished)

    def smaller(self, cell: Cell, case: Program) -> Iterator[Program]:
        """See :class:`Workload`: fewer steps, then fewer rows in a step, then each number by itself."""
        yield from (replace(case, steps=steps) for steps in without_each(case.steps))
        for at, step in enumerate(case.steps):
            for fewer in fewer_numbers(step):
                yield replace(case, steps=(*case.steps[:at], fewer, *case.steps[at + 1 :]))
        for changes in self._simpler_values(cell, case):
            simpler = replace(case, **changes)
            if simpler != case:
                yield simpler

    def _simpler_values(self, cell: Cell, case: Program) -> Iterator[dict[str, Any]]:
        for side in SIDES:
            yield {f"{side}_pages": min(case.pages(side), case.used_pages(side, cell.page_size))}
        yield from ({"device_base": 0}, {"host_base": 0}, {"rotation": 0}, {"quota": 1}, {"warps": 1})
        if case.layers > 1:
            yield {"layers": case.layers - 1, "rotation": min(case.rotation, case.layers - 1)}
        yield {"v_head_bytes": case.head_bytes}
        unit = self._unit(cell)
        for row in self.routes[cell.layout].row_bytes:
            for heads in range(1, case.heads + 1):
                if row % (heads * unit) == 0 and (heads, row // heads) < (case.heads, case.head_bytes):
                    yield {"heads": heads, "head_bytes": row // heads, "v_head_bytes": row // heads}

    def _unit(self, cell: Cell) -> int:
        """What the bytes of a head must be a multiple of: words where rows are split by heads, else elements."""
        return 8 if cell.layout == "page_head" else cell.itemsize
