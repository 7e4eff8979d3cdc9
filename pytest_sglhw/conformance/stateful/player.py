"""Play a program on a provider's kernels: after every step both pools hold exactly what the model says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_sglhw.conformance.checks import SEQUENCE
from pytest_sglhw.conformance.failures import BrokenLawError, describe
from pytest_sglhw.conformance.layouts import Extents
from pytest_sglhw.conformance.pools import Windows
from pytest_sglhw.conformance.stateful.model import Model
from pytest_sglhw.conformance.stateful.program import SIDES, Program, Step, ends
from pytest_sglhw.conformance.stateful.routes import Call, Ends, Mover, Route, movers
from pytest_sglhw.conformance.tensors import same_bytes
from pytest_sglhw.conformance.transfer_trials import Pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from pytest_sglhw.conformance.bench import Bench


class Player:
    """The pools of one program, their model, and the kernels that move them."""

    def __init__(self, bench: Bench, route: Route, program: Program) -> None:
        self._bench, self._route, self._program = bench, route, program
        windows = Windows(program.seed)
        self.pools = {side: dict(self._make_pools(side, windows)) for side in SIDES}
        self.model = Model(self.pools, bench.cell.page_size, windows)
        self.movers = movers(bench, route)
        self._done = 0

    def _make_pools(self, side: str, windows: Windows) -> Iterator[tuple[str, Pool]]:
        program, page_size = self._program, self._bench.cell.page_size
        layout = self._route.host_layout if side == "host" else "layer_first"
        for part in self._route.parts:
            head = program.v_head_bytes if part == "V" else program.head_bytes
            extents = Extents(program.layers, program.pages(side) * page_size, program.heads, head, page_size)
            yield part, Pool(self._bench.place, windows, side, layout, extents, program.base(side), program.rotation)

    def play(self, step: Step) -> None:
        """Do one step and compare every byte of every pool.

        :raises BrokenLawError: a kernel raised, or a pool differs from the model.
        """
        self._done += 1
        if step.verb == "move" and self._mover(step) is None:
            return
        calls = list(self._calls(step))
        for call in calls:
            self._call(step, call)
        self.model.do(self._done, step)
        if calls:
            self._compare(step, calls)
        else:
            self._write_images()

    def _write_images(self) -> None:
        """Do what no kernel did: bring the pools up to the model."""
        for side in SIDES:
            for part, pool in self.pools[side].items():
                pool.buffer.storage.copy_(self.model.images[side][part])

    def _calls(self, step: Step) -> Iterator[Call]:
        if step.verb in {"write", "evict"}:
            return
        start, end = ends(step.verb)
        reads, writes = (self.model.tokens(step, numbers) for numbers in (step.sources, step.targets))
        moved = Ends(f"{start}_to_{end}", self.pools[start], self.pools[end], reads, writes)
        program, cell, place = self._program, self._bench.cell, self._bench.place
        kernels = self._mover(step) if step.verb == "move" else self._route
        assert kernels
        yield from kernels.calls(cell, program, place, moved)

    def _mover(self, step: Step) -> Mover | None:
        """One of the kernels that can make this move, not always the same; without one the step is left out."""
        able = [mover for mover in self.movers if mover.overlaps or not set(step.sources) & set(step.targets)]
        return able[step.targets[0] % len(able)] if able else None

    def _call(self, step: Step, call: Call) -> None:
        function = self._bench.function(call.kernel)
        try:
            self._bench.place.call(lambda: function(*call.arguments, **call.keywords))
        except Exception as error:
            words = f"{call.kernel} raised {type(error).__name__}: {error}"
            raise BrokenLawError(SEQUENCE, self._where(step), words) from error
        self._bench.calls += 1

    def _compare(self, step: Step, calls: list[Call]) -> None:
        for side in SIDES:
            for part, pool in self.pools[side].items():
                got, want = pool.buffer.image(), self.model.images[side][part]
                if not same_bytes(got, want):
                    kernels = ", ".join(dict.fromkeys(call.kernel for call in calls))
                    lines = describe(self, f"{side} {part}", got, want)
                    raise BrokenLawError(SEQUENCE, f"{self._where(step)} by {kernels}", *lines)

    def _where(self, step: Step) -> str:
        return f"step {self._done} of the sequence: {step.words()}"

    def locate(self, buffer: str, byte: int) -> str:
        """Say what stands at a byte of a buffer's image, for :func:`describe`."""
        side, _, part = buffer.partition(" ")
        return self.pools[side][part].words(byte)

    def origin(self, buffer: str, byte: int, image: torch.Tensor) -> str | None:
        """Say which rows the bytes at ``byte`` of an image are, for :func:`describe`."""
        side, _, part = buffer.partition(" ")
        pool = self.pools[side][part]
        head = pool.extents.head_bytes
        begin = pool.buffer.start + (byte - pool.buffer.start) // head * head
        begin, end = (byte, begin + head) if begin + head - byte >= 8 else (max(begin, byte - 7), begin + head)
        needle = image[begin : min(end, begin + 16)].cpu().numpy().tobytes()
        return self.model.origin(part, needle) if len(needle) >= 4 else None
