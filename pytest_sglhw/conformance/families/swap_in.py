"""HiSparse swap-in: bring the tokens that a request selects from the host cache into its hot buffer on the device.

Each request owns ``hot`` slots of the device buffer, an order of those slots from the least to the most recently used,
and one more slot for its newest token. The rule, for one request:

* padding behind ``num_real_reqs``: every selected location is -1, nothing else changes;
* ``seq_len <= hot``: token ``t`` stands in slot ``t``; nothing is loaded and the order does not change;
* else the newest token (``seq_len - 1``) is in its own slot; a selected token that is resident is a hit; every other is
  loaded, in the order of the selection, into the least recently used slot that no hit occupies. Afterwards the order
  is: slots that were left alone, slots just loaded, hits.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_sglhw.conformance.checks import LAWS
from pytest_sglhw.conformance.families.pages import C4
from pytest_sglhw.conformance.families.runs import INDEX_DTYPES, Area, Rows, RowsWorkload, Run, RunTrial
from pytest_sglhw.conformance.families.values import Filled
from pytest_sglhw.conformance.family import Kernel, Trial, Workload
from pytest_sglhw.conformance.pools import Buffer, Windows

if TYPE_CHECKING:
    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.devices import Place
    from pytest_sglhw.conformance.family import Draw, KernelFunction


class Request(NamedTuple):
    """One request before the swap-in."""

    seq_len: int
    selected: tuple[int, ...]
    """Selected tokens; -1 selects nothing."""
    resident: tuple[int, ...]
    """The token in each hot slot; -1 is an empty slot."""
    order: tuple[int, ...]
    """Hot slots, the least recently used first."""


class Outcome(NamedTuple):
    """One request after the swap-in."""

    slots: tuple[int, ...]
    """The slot of each selected token; -1 where there is none."""
    resident: tuple[int, ...]
    order: tuple[int, ...]
    misses: tuple[tuple[int, int], ...]
    """(token, slot) of everything that is loaded, in order."""


def swap_in(request: Request) -> Outcome:
    """Apply the rule to one real request."""
    hot, newest = len(request.order), request.seq_len - 1
    if request.seq_len <= hot:
        return Outcome(request.selected, request.resident, request.order, ())
    wanted = [token for token in request.selected if token not in (-1, newest)]
    hits = [slot for slot in request.order if request.resident[slot] in wanted]
    free = [slot for slot in request.order if slot not in hits]
    resident = list(request.resident)
    misses = [token for token in wanted if token not in (request.resident[slot] for slot in hits)]
    for token, slot in zip(misses, free, strict=False):
        resident[slot] = token
    places = {token: slot for slot, token in enumerate(resident)} | {newest: hot, -1: -1}
    order = (*free[len(misses) :], *free[: len(misses)], *hits)
    return Outcome(
        tuple(places[token] for token in request.selected),
        tuple(resident),
        order,
        tuple(zip(misses, free, strict=False)),
    )


@dataclass(frozen=True)
class SwapIn:
    """One case: a batch of requests, of which the first ``real`` are not padding."""

    requests: tuple[Request, ...]
    real: int
    item: int
    """Bytes of a token's row."""
    index: str
    seed: int


class SwapTrial(Trial):
    """The state and the caches of one batch."""

    def __init__(self, workload: SwapInWorkload, case: SwapIn, place: Place) -> None:
        self.workload, self.case, self.place = workload, case, place
        windows, rng = Windows(case.seed), random.Random(case.seed)
        requests = case.requests
        longest, slots = max(request.seq_len for request in requests), len(requests[0].order) + 1
        host_rows, device_rows = longest * len(requests) + 7, slots * len(requests) + 7
        self.rows = rng.sample(range(len(requests)), len(requests))
        """Which row of the state each request of the batch owns."""
        self.host_locs = torch.tensor(rng.sample(range(host_rows), longest * len(requests))).view(-1, longest)
        self.device_locs = torch.tensor(rng.sample(range(device_rows), slots * len(requests)), dtype=torch.int32).view(
            -1, slots
        )
        self.buffers = {
            **{
                f"host {part}": Buffer(place, windows, workload.nbytes(case, host_rows), "host")
                for part in workload.parts
            },
            **{f"device {part}": Buffer(place, windows, workload.nbytes(case, device_rows)) for part in workload.parts},
            **{name: Filled(place, windows, values) for name, values in self._state(requests).items()},
        }

    def _state(self, requests: Sequence[Request]) -> dict[str, torch.Tensor]:
        resident = self._by_row([[*request.resident, request.seq_len - 1] for request in requests], torch.int32)
        order = self._by_row([request.order for request in requests], torch.int16)
        slots = torch.full((len(requests), len(requests[0].selected)), 123_456, dtype=torch.int32)
        return {"resident tokens": resident, "slot order": order, "selected locations": slots}

    def _by_row(self, values: Sequence[Sequence[int]], dtype: torch.dtype) -> torch.Tensor:
        table = torch.empty((len(values), len(values[0])), dtype=dtype)
        table[self.rows] = torch.tensor(values, dtype=dtype)
        return table

    def _tensor(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        return self.buffers[name].contents(dtype).view(len(self.case.requests), -1)

    def arguments(self, **variation: Any) -> list[Any]:
        """See :class:`Trial`."""
        case, put = self.case, self.place.put
        lengths = torch.tensor([request.seq_len for request in case.requests], dtype=INDEX_DTYPES[case.index])
        sides = [self.buffers[f"{side} {part}"].contents().view(-1, self.workload.row_bytes(case))
                 for side in ("host", "device") for part in self.workload.parts]  # fmt: skip
        return [
            put(torch.tensor(self.workload.selection(case), dtype=torch.int32)),
            self._tensor("resident tokens", torch.int32),
            put(self.host_locs),
            put(self.device_locs),
            *sides,
            self._tensor("selected locations", torch.int32),
            put(torch.tensor(self.rows, dtype=INDEX_DTYPES[case.index])),
            put(lengths),
            self._tensor("slot order", torch.int16),
            case.item,
            *self.workload.sizes(case),
        ]

    def call(self, function: KernelFunction, arguments: list[Any]) -> Mapping[str, torch.Tensor]:
        """See :class:`Trial`."""
        function(*arguments, num_real_reqs=self.place.put(torch.tensor([self.case.real], dtype=torch.int32)))
        return {}

    def expected(self) -> Mapping[str, torch.Tensor]:
        """See :class:`Trial`."""
        images = {name: buffer.before.clone() for name, buffer in self.buffers.items() if not name.startswith("host")}
        for number, request in enumerate(self.case.requests):
            row = self.rows[number]
            if number >= self.case.real:
                self._write(images, "selected locations", torch.int32, number, [-1] * len(request.selected))
                continue
            outcome = swap_in(request)
            locations = [int(self.device_locs[row, slot]) if slot >= 0 else -1 for slot in outcome.slots]
            self._write(images, "selected locations", torch.int32, number, locations)
            self._write(images, "resident tokens", torch.int32, row, [*outcome.resident, request.seq_len - 1])
            self._write(images, "slot order", torch.int16, row, outcome.order)
            for token, slot in outcome.misses:
                self._load(images, int(self.host_locs[row, token]), int(self.device_locs[row, slot]))
        return images

    def _write(
        self, images: Mapping[str, torch.Tensor], name: str, dtype: torch.dtype, row: int, values: Sequence[int]
    ) -> None:
        data = torch.tensor(values, dtype=dtype).view(torch.uint8)
        start = self.buffers[name].start + row * len(data)
        images[name][start : start + len(data)] = data

    def _load(self, images: Mapping[str, torch.Tensor], source: int, target: int) -> None:
        for part in self.workload.parts:
            host, device = self.buffers[f"host {part}"], self.buffers[f"device {part}"]
            for origin, at, size in self.workload.places(self.case, source, target):
                row = host.before[host.start + origin :][:size]
                images[f"device {part}"][device.start + at :][:size] = row

    def locate(self, buffer: str, byte: int) -> str:
        """See :class:`Trial`."""
        at, width = byte - self.buffers[buffer].start, {"slot order": 2}.get(buffer, 4)
        if buffer.startswith("device"):
            return f"byte {at % self.workload.row_bytes(self.case)} of row {at // self.workload.row_bytes(self.case)}"
        columns = self.buffers[buffer].nbytes // width // len(self.case.requests)
        return f"row {at // width // columns}, column {at // width % columns}"


class SwapInWorkload(Workload):
    """``load_cache_to_device_buffer_mla``; ``paged`` for DeepSeek V4, ``block`` tokens a selected unit for MHA."""

    shapes: Sequence[tuple[int, int]] = ((2, 4), (5, 8), (40, 300))
    """(selected tokens, hot slots): each pair is a kernel to compile."""

    def __init__(self, parts: tuple[str, ...] = ("latent",), *, paged: bool = False, block: int = 0) -> None:
        self.parts, self.paged, self.block = parts, paged, block
        if block:
            self.shapes = tuple((selected * block, hot * block) for selected, hot in self.shapes)

    def factors(self, cell: Cell) -> Mapping[str, Sequence[Any]]:
        """See :class:`Workload`."""
        return {
            "shape": self.shapes,
            "requests": (1, 3),
            "item": (584,) if self.paged else (16, 72, 656),
            "index": ("int64", "int32"),
            "length": ("long", "short", "exact"),
        }

    def draw(self, cell: Cell, draw: Draw) -> SwapIn:
        """See :class:`Workload`."""
        chosen = {name: draw.choice(name, values) for name, values in self.factors(cell).items()}
        rng = draw.random()
        requests = tuple(self._request(chosen["shape"], chosen["length"], rng) for _ in range(chosen["requests"]))
        real = rng.randint(max(len(requests) - 1, 1), len(requests))
        return SwapIn(requests, real, chosen["item"], chosen["index"], rng.randrange(1 << 16))

    def _request(self, shape: tuple[int, int], length: str, rng: random.Random) -> Request:
        selected, hot = shape
        seq_len = {"long": hot + rng.randint(2, 3 * hot), "short": rng.randint(1, hot), "exact": hot + 1}[length]
        order = tuple(rng.sample(range(hot), hot))
        if seq_len <= hot:
            tokens = self._selected(selected, seq_len, range(seq_len), rng)
            return Request(seq_len, tokens, (*range(seq_len), *[-1] * (hot - seq_len)), order)
        resident = [token if rng.random() < 0.9 else -1 for token in rng.sample(range(seq_len - 1), hot)]
        likely = [
            *[token for token in resident if token >= 0],
            seq_len - 1,
            *rng.sample(range(seq_len), min(selected, seq_len)),
        ]
        return Request(seq_len, self._selected(selected, seq_len, likely, rng), tuple(resident), order)

    def _selected(self, count: int, seq_len: int, likely: Sequence[int], rng: random.Random) -> tuple[int, ...]:
        """Draw distinct tokens; units of ``block`` tokens where the kernel selects blocks; -1 where none is left."""
        unit = self.block or 1
        units = list(dict.fromkeys(rng.sample([token // unit for token in likely], len(likely))))
        units += [each for each in range(-(-seq_len // unit)) if each not in units]
        units = [*units, *[-1] * count][: count // unit]
        tokens = [each * unit + at if each >= 0 else -1 for each in units for at in range(unit)]
        return tuple(token if token < seq_len else -1 for token in tokens)

    def build(self, cell: Cell, case: SwapIn, place: Place) -> SwapTrial:
        """See :class:`Workload`."""
        return SwapTrial(self, case, place)

    def smaller(self, cell: Cell, case: SwapIn) -> Iterator[SwapIn]:
        """See :class:`Workload`."""
        for number in range(len(case.requests) if len(case.requests) > 1 else 0):
            rest = case.requests[:number] + case.requests[number + 1 :]
            yield replace(case, requests=rest, real=max(case.real - (number < case.real), 1))
        if case.item > 16 and not self.paged:
            yield replace(case, item=16)

    def selection(self, case: SwapIn) -> list[list[int]]:
        """The kernel's selection: tokens, or the blocks that they make up."""
        rows = [list(request.selected) for request in case.requests]
        if not self.block:
            return rows
        return [[token // self.block if token >= 0 else -1 for token in row[:: self.block]] for row in rows]

    def sizes(self, case: SwapIn) -> tuple[int, ...]:
        """The size arguments behind ``item_size_bytes``."""
        selected, hot = len(case.requests[0].selected), len(case.requests[0].order)
        return (hot, self.block) if self.block else (selected, hot)

    def row_bytes(self, case: SwapIn) -> int:
        """The bytes of the second axis of a cache tensor: a row, or a page of C4."""
        return C4.nbytes if self.paged else case.item

    def nbytes(self, case: SwapIn, rows: int) -> int:
        """Bytes of a cache of that many tokens."""
        return -(-rows // C4.tokens) * C4.nbytes if self.paged else rows * case.item

    def places(self, case: SwapIn, source: int, target: int) -> list[tuple[int, int, int]]:
        """(host offset, device offset, bytes) of each run of one token."""
        if not self.paged:
            return [(source * case.item, target * case.item, case.item)]
        pairs = zip(C4.places(source), C4.places(target), strict=True)
        return [(origin, at, size) for (_, origin, size), (_, at, _) in pairs]


class PlannedCopy(RowsWorkload):
    """``copy_cache_planned_mla``: replay recorded misses (source rows int64, target rows int32) of several requests."""

    layers = (1, 3)
    """Here: requests."""
    widths = ((16, 16), (72, 72), (656, 656))
    counts = (1, 2, 5, 33, 0)
    indices = ("int64",)
    bases = (0,)

    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """See :class:`RowsWorkload`."""
        width = case.widths[0]
        return {
            "host cache": Area(case.source_rows * width, where="host"),
            "device buffer": Area(case.target_rows * width, target=True),
        }

    def runs(self, cell: Cell, case: Rows) -> Iterator[Run]:
        """See :class:`RowsWorkload`."""
        width = case.widths[0]
        for source, target in case.pairs:
            yield Run("device buffer", target * width, "host cache", source * width, width, f"host row {source}")

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        return []

    def keywords(self, trial: RunTrial, case: Rows) -> Mapping[str, Any]:
        """See :class:`RowsWorkload`: item ``n`` is a miss of request ``n % requests``; behind a count is nothing."""
        plans = [case.pairs[number :: case.layers] for number in range(case.layers)]
        longest = max(map(len, plans)) + 1
        sources, targets = (
            torch.tensor([[pair[side] for pair in plan] + [0] * (longest - len(plan)) for plan in plans])
            for side in (0, 1)
        )
        counts = torch.tensor([len(plan) for plan in plans], dtype=torch.int32)
        put, width = trial.place.put, case.widths[0]
        return {
            "miss_src": put(sources),
            "miss_dst": put(targets.to(torch.int32)),
            "miss_count": put(counts),
            "num_real_reqs": put(torch.tensor([case.layers], dtype=torch.int32)),
            "host_cache": trial.view("host cache", torch.uint8, -1, width),
            "device_buffer": trial.view("device buffer", torch.uint8, -1, width),
            "item_size_bytes": width,
        }


def _row(name: str, workload: Workload) -> Kernel:
    return Kernel(name, "swap_in", ("hot_buffer",), workload, (LAWS["repeat"],), ("uint8",), (1,))


KERNELS: tuple[Kernel, ...] = (
    _row("load_cache_to_device_buffer_mla", SwapInWorkload()),
    _row("load_cache_to_device_buffer_dsv4_mla", SwapInWorkload(paged=True)),
    _row("load_blocks_to_device_buffer_mha", SwapInWorkload(("K", "V"), block=4)),
    _row("copy_cache_planned_mla", PlannedCopy()),
)
