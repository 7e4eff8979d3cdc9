"""What most KV kernels have in common: their truth is a list of byte runs, each copied from one buffer to another.

A kernel is described by the buffers that it sees, by the runs that it must make (plain index arithmetic), and by its
arguments. The runs give the expected image (all sources are read before anything is written), the words in which a
difference is told, and where wrong bytes really come from.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_sglhw.conformance.family import Bulk, Trial, Workload
from pytest_sglhw.conformance.pools import Buffer, Windows

if TYPE_CHECKING:
    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.devices import Place
    from pytest_sglhw.conformance.family import Draw, KernelFunction

INDEX_DTYPES = {"int64": torch.int64, "int32": torch.int32}
STRIDED = " strided"


class Run(NamedTuple):
    """``size`` bytes that have to be copied from ``source`` at ``origin`` to ``target`` at ``at``."""

    target: str
    at: int
    source: str
    origin: int
    size: int
    what: str


class Area(NamedTuple):
    """The size of a buffer, where it lives, and whether the kernel may write it."""

    nbytes: int
    target: bool = False
    where: str = "device"
    base: int = 0


@dataclass(frozen=True)
class Rows:
    """One case: which rows of which buffers go where. Units: bytes and rows (or pages, where a kernel counts pages)."""

    layers: int
    layer: int
    widths: tuple[int, int]
    """Bytes of a K row and of a V row."""
    pairs: tuple[tuple[int, int], ...]
    """(source row, target row) of each item."""
    source_rows: int
    target_rows: int
    index: str
    option: str
    base: int
    seed: int

    @property
    def sources(self) -> list[int]:
        """Source row of each item."""
        return [source for source, _ in self.pairs]

    @property
    def targets(self) -> list[int]:
        """Target row of each item."""
        return [target for _, target in self.pairs]

    @property
    def span(self) -> slice:
        """The source rows of a case whose items come in order, one behind the other."""
        first = self.pairs[0][0] if self.pairs else 0
        return slice(first, first + len(self.pairs))

    @property
    def index_dtype(self) -> torch.dtype:
        """The dtype of the index tensors."""
        return INDEX_DTYPES[self.index.removesuffix(STRIDED)]

    @property
    def index_stride(self) -> int:
        """Elements from one index to the next, of the index tensors that the kernel takes with a stride."""
        return 2 if self.index.endswith(STRIDED) else 1


def moves(count: int, option: str, rows: int, rng: random.Random) -> list[tuple[int, int]]:
    """Draw ``count`` moves inside one pool of at least ``2 * count`` rows.

    ``shifted``: a run of slots, each to its successor; ``permuted``: one cycle (no move is its own inverse, but for two
    slots); ``disjoint``: no target is a source.
    """
    if option == "shifted":
        first = rng.randint(0, rows - count - 1)
        return [(slot, slot + 1) for slot in range(first, first + count)]
    slots = rng.sample(range(rows), 2 * count)
    targets = slots[count:] if option == "disjoint" else [*slots[1:count], *slots[: min(count, 1)]]
    return list(zip(slots[:count], targets, strict=True))


class RunTrial(Trial):
    """The buffers of one case of a :class:`RowsWorkload`."""

    def __init__(self, workload: RowsWorkload, cell: Cell, case: Rows, place: Place) -> None:
        self.workload, self.cell, self.case, self.place = workload, cell, case, place
        windows, areas = Windows(case.seed), workload.areas(cell, case)
        self.targets = [name for name, area in areas.items() if area.target]
        self.buffers = {
            name: Buffer(place, windows, area.nbytes, area.where, area.base) for name, area in areas.items()
        }

    @cached_property
    def runs(self) -> list[Run]:
        """Every run that the kernel must make."""
        return list(self.workload.runs(self.cell, self.case))

    def arguments(self, **variation: Any) -> list[Any]:
        """See :class:`Trial`."""
        return self.workload.arguments(self, replace(self.case, **variation) if variation else self.case)

    def ways(self, law: str) -> Sequence[Sequence[Mapping[str, Any]]]:
        """See :class:`Trial`."""
        pairs, middle = self.case.pairs, len(self.case.pairs) // 2
        if law == "split" and middle:
            return [[{"pairs": pairs[:middle]}, {"pairs": pairs[middle:]}]]
        return [[{}]] if law == "repeat" else []

    def call(self, function: KernelFunction, arguments: list[Any]) -> Mapping[str, torch.Tensor]:
        """See :class:`Trial`."""
        function(*arguments, **self.workload.keywords(self, self.case))
        return {}

    def kept(self, arguments: Sequence[Any]) -> Mapping[str, Any]:
        """See :class:`Trial`."""
        return {name: arguments[at] for name, at in self.workload.kept.items()}

    def expected(self) -> Mapping[str, torch.Tensor]:
        """See :class:`Trial`: apply the runs to the first bytes, all reads before all writes."""
        images = {name: self.buffers[name].before.clone() for name in self.targets}
        for run in self.runs:
            start = self.buffers[run.target].start + run.at
            images[run.target][start : start + run.size] = self._first(run.source, run.origin, run.size)
        return images

    def locate(self, buffer: str, byte: int) -> str:
        """See :class:`Trial`."""
        at = byte - self.buffers[buffer].start
        if not 0 <= at < self.buffers[buffer].nbytes:
            return f"guard byte {at}" if at < 0 else f"guard byte {at - self.buffers[buffer].nbytes} behind the end"
        for run in self.runs:
            if run.target == buffer and run.at <= at < run.at + run.size:
                return f"byte {at - run.at} of {run.what} (byte {at} of the buffer)"
        return f"byte {at}, which is not selected"

    def origin(self, buffer: str, byte: int, image: torch.Tensor) -> str | None:
        """See :class:`Trial`."""
        got = image[byte : byte + 8]
        for run in self.runs:
            if run.size >= 8 and torch.equal(self._first(run.source, run.origin, 8), got):
                return f"the first bytes of {run.what}"
        return None

    def _first(self, name: str, at: int, size: int) -> torch.Tensor:
        buffer = self.buffers[name]
        return buffer.before[buffer.start + at : buffer.start + at + size]

    def view(self, name: str, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        """A buffer as a tensor of ``dtype`` and ``shape``."""
        return self.buffers[name].contents(dtype).view(shape)

    def table(self, names: Iterable[str]) -> torch.Tensor:
        """A uint64 table of the addresses of buffers."""
        return self.place.put(torch.tensor([self.buffers[name].address() for name in names], dtype=torch.uint64))

    def index(self, rows: Sequence[int], dtype: torch.dtype = torch.int64, stride: int = 1) -> torch.Tensor:
        """An index tensor on the device; between the elements of a strided one stand negative numbers."""
        table = torch.full((len(rows), stride), -7, dtype=dtype)
        table[:, 0] = torch.tensor(rows, dtype=dtype)
        return self.place.put(table)[:, 0]


class RowsWorkload(Workload):
    """A kernel whose cases are :class:`Rows`. Class attributes are the factors, the simplest value first."""

    layers: Sequence[int] = (1, 3)
    widths: Sequence[tuple[int, int]] = ((16, 16), (24, 72), (80, 8))
    counts: Sequence[int] = (1, 2, 5, 17, 0)
    options: Sequence[str] = ("",)
    indices: Sequence[str] = ("int64", "int32")
    bases: Sequence[int] = (0, 16)
    in_order = False
    """Whether item ``n`` of a case is source row ``n`` (rows that were just computed)."""

    def factors(self, cell: Cell) -> Mapping[str, Sequence[Any]]:
        """See :class:`Workload`."""
        return {
            "layers": self.layers,
            "widths": [widths for widths in self.widths if all(width % cell.itemsize == 0 for width in widths)],
            "count": self.counts,
            "option": self.options,
            "index": self.indices,
            "base": self.bases,
        }

    def draw(self, cell: Cell, draw: Draw) -> Rows:
        """See :class:`Workload`."""
        chosen = {name: draw.choice(name, values) for name, values in self.factors(cell).items()}
        rng = draw.random()
        count, layers = chosen.pop("count"), chosen["layers"]
        pairs, source_rows, target_rows = self.pairs(cell, count, chosen["option"], rng)
        return Rows(
            layer=rng.randrange(layers),
            pairs=tuple(pairs),
            source_rows=source_rows,
            target_rows=target_rows,
            seed=rng.randrange(1 << 16),
            **chosen,
        )

    def pairs(self, cell: Cell, count: int, option: str, rng: random.Random) -> tuple[list[tuple[int, int]], int, int]:
        """Draw (source, target) rows and the two pool lengths; here: scattered, every target once."""
        source_rows, target_rows = count + rng.randint(1, 9), count + rng.randint(1, 9)
        sources = [rng.randrange(source_rows) for _ in range(count)]
        return list(zip(sources, rng.sample(range(target_rows), count), strict=True)), source_rows, target_rows

    def bulk(self, cell: Cell, nbytes: int) -> Iterator[Bulk]:
        """See :class:`Workload`: the widest rows up to 1 KiB, all layers, the first option, as many items as needed."""
        widths = [each for each in self.factors(cell)["widths"] if max(each) <= 1024] or self.widths[:1]
        one = self._bulk_case(cell, widths[-1], 1)
        runs = list(self.runs(cell, one))
        size = sum(run.size for run in runs)
        count, areas = max(1, nbytes // size), self.areas(cell, one)
        source, target = (areas[name].where for name in (runs[0].source, runs[0].target))
        yield Bulk(self._bulk_case(cell, widths[-1], count), f"{source} to {target}", source, target, count * size)

    def _bulk_case(self, cell: Cell, widths: tuple[int, int], count: int) -> Rows:
        rng, option = random.Random(0), self.factors(cell)["option"][0]
        pairs, source_rows, target_rows = self.bulk_pairs(cell, count, option, rng)
        layers = self.layers[-1]
        return Rows(layers, layers - 1, widths, tuple(pairs), source_rows, target_rows, "int64", option, 0, 0)

    def bulk_pairs(
        self, cell: Cell, count: int, option: str, rng: random.Random
    ) -> tuple[list[tuple[int, int]], int, int]:
        """Choose the items of a large case; here: as any other's."""
        return self.pairs(cell, count, option, rng)

    def build(self, cell: Cell, case: Rows, place: Place) -> RunTrial:
        """See :class:`Workload`."""
        return RunTrial(self, cell, case, place)

    def smaller(self, cell: Cell, case: Rows) -> Iterator[Rows]:
        """See :class:`Workload`: fewer items, fewer layers, the simplest value of each factor."""
        count = len(case.pairs)
        for size in (count // 2, count // 4, 1):
            for start in range(0, count, size) if 0 < size < count else ():
                pairs = case.pairs[:start] + case.pairs[start + size :]
                yield replace(case, pairs=tuple(enumerate(to for _, to in pairs)) if self.in_order else pairs)
        if case.layers > 1:
            yield replace(case, layers=case.layers - 1, layer=min(case.layer, case.layers - 2))
        if case.layer:
            yield replace(case, layer=0)
        factors = self.factors(cell)
        for name in ("widths", "index", "base"):
            if getattr(case, name) != factors[name][0]:
                yield replace(case, **{name: factors[name][0]})

    @abstractmethod
    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """The buffers of a case."""

    @abstractmethod
    def runs(self, cell: Cell, case: Rows) -> Iterable[Run]:
        """The runs that the kernel must make."""

    @abstractmethod
    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """The positional arguments of one call."""

    @property
    def kept(self) -> Mapping[str, int]:
        """Positions of the arguments that the kernel may not change, by name, see :meth:`Trial.kept`."""
        return {}

    def keywords(self, trial: RunTrial, case: Rows) -> Mapping[str, Any]:
        """The keyword arguments of one call."""
        return {}
