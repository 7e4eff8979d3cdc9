"""The dictionary model: which rows every slot of both pools must hold, and where they were written first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_sglhw.conformance.stateful.program import SIDES, Step, ends

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_sglhw.conformance.pools import Windows
    from pytest_sglhw.conformance.reference import LogicalView
    from pytest_sglhw.conformance.transfer_trials import Pool

Slot = tuple[str, int]
"""A side and a token slot of its pool."""


class Birth(NamedTuple):
    """Rows that came into being together."""

    words: str
    """``written to device page 2 in step 3``."""
    rows: Mapping[str, torch.Tensor]
    """For each part ``[layer, token, head, byte]``, on the CPU."""


class Content(NamedTuple):
    """What one slot holds: a token of a birth, in all layers and parts."""

    birth: int
    token: int


class Model:
    """The dictionary, and the images of every buffer that follow from it.

    :param pools: by side, then by part; filled, and not touched since.
    """

    def __init__(self, pools: Mapping[str, Mapping[str, Pool]], page_size: int, windows: Windows) -> None:
        self._pools, self._page_size, self._windows = pools, page_size, windows
        self._births: list[Birth] = []
        self.slots: dict[Slot, Content] = {}
        self.images = {side: {part: pool.buffer.before.clone() for part, pool in pools[side].items()} for side in SIDES}
        for side in SIDES:
            rows = {part: self._view(side, part).read(*self._everything(pool)) for part, pool in pools[side].items()}
            self._bear(f"that stood in the {side} pool at first", rows, self._all_slots(side))

    def tokens(self, step: Step, numbers: Sequence[int]) -> tuple[int, ...]:
        """The token slots that the numbers of a step stand for."""
        if step.unit == "token":
            return tuple(numbers)
        size = self._page_size
        return tuple(page * size + slot for page in numbers for slot in range(size))

    def do(self, number: int, step: Step) -> None:
        """Make the dictionary and the images what they must be after a step."""
        targets = self.tokens(step, step.targets)
        if step.verb in {"write", "evict"}:
            words = "written to" if step.verb == "write" else "scribbled over"
            pages = ", ".join(map(str, step.targets))
            rows = {part: self._new_rows(pool, len(targets)) for part, pool in self._pools[step.side].items()}
            self._bear(
                f"{words} {step.side} page {pages} in step {number}", rows, [(step.side, token) for token in targets]
            )
            return
        start, end = ends(step.verb)
        sources = self.tokens(step, step.sources)
        self._put({(end, to): self.slots[start, at] for at, to in zip(sources, targets, strict=True)})

    def origin(self, part: str, needle: bytes) -> str | None:
        """Say which rows hold these bytes, the youngest first."""
        for birth in reversed(self._births):
            others = sorted(birth.rows, key=lambda name: name != part)
            for name in others:
                rows = birth.rows[name]
                at = rows.numpy().tobytes().find(needle)
                if at >= 0:
                    layer, token = divmod(at // rows[0, 0].numel(), rows.shape[1])
                    return f"{name}, layer {layer}, token {token} of the rows {birth.words}"
        return None

    def _bear(self, words: str, rows: Mapping[str, torch.Tensor], slots: Iterable[Slot]) -> None:
        self._births.append(Birth(words, rows))
        self._put({slot: Content(len(self._births) - 1, token) for token, slot in enumerate(slots)})

    def _put(self, changes: Mapping[Slot, Content]) -> None:
        self.slots.update(changes)
        for side in SIDES:
            tokens = [token for where, token in changes if where == side]
            for part, pool in self._pools[side].items() if tokens else ():
                contents = [changes[side, token] for token in tokens]
                rows = torch.stack([self._births[birth].rows[part][:, at] for birth, at in contents], dim=1)
                self._view(side, part).write(range(pool.extents.layers), torch.tensor(tokens), rows)

    def _new_rows(self, pool: Pool, tokens: int) -> torch.Tensor:
        shape = (pool.extents.layers, tokens, pool.extents.heads, pool.extents.head_bytes)
        return self._windows.take(torch.Size(shape).numel()).view(shape)

    def _view(self, side: str, part: str) -> LogicalView:
        return self._pools[side][part].view(self.images[side][part])

    def _everything(self, pool: Pool) -> tuple[range, torch.Tensor]:
        return range(pool.extents.layers), torch.arange(pool.extents.tokens)

    def _all_slots(self, side: str) -> list[Slot]:
        pool = next(iter(self._pools[side].values()))
        return [(side, token) for token in range(pool.extents.tokens)]
