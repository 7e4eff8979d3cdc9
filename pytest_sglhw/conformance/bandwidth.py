"""How fast a kernel moves bytes, beside one plain copy of the same bytes the same way: information, never a test.

The copy is contiguous, from pinned memory where the host's is meant. Kernel and copy alternate on one stream; on a
device they are timed by its events. Payload counts once each byte that has to arrive; GB are decimal. What a kernel
reaches is bounded by the blocks that it may use (``quota``), on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.devices import Place
    from pytest_sglhw.conformance.family import Bulk, Kernel
    from pytest_sglhw.conformance.providers import FoundProvider

ROUNDS, WARM_UP = 7, 2
DEVICE_BYTES, CPU_BYTES = 1 << 26, 1 << 23


class Bandwidth(NamedTuple):
    """What was measured of one kernel in one way; ``problem`` where it could not be."""

    cell: Cell
    way: str
    """Direction and launch, in words: ``host to device, quota 2``."""
    nbytes: int = 0
    gb_per_s: float = 0.0
    copy_gb_per_s: float = 0.0
    ratio: float = 0.0
    """The median of the ratios of neighbouring rounds."""
    problem: str | None = None

    def record(self, provider: str) -> dict[str, Any]:
        """The facts for a report."""
        facts = self._asdict()
        del facts["cell"]
        return {"provider": provider, **self.cell._asdict(), **facts}


def measure_all(found: FoundProvider, kernels: Mapping[str, Kernel], cells: Sequence[Cell]) -> Iterator[Bandwidth]:
    """Measure one cell of each kernel and layout of a provider, in each way that its workload offers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for cell in _one_of_each(cells):
            yield from measure(found, kernels[cell.kernel], cell)
    finally:
        torch.set_num_threads(threads)


def _one_of_each(cells: Sequence[Cell]) -> Iterator[Cell]:
    """Of each kernel and layout the cell with pages nearest to 16 tokens, bfloat16 where it is among them."""
    best: dict[tuple[str, str], Cell] = {}
    for cell in sorted(cells, key=lambda cell: (abs(cell.page_size - 16), cell.dtype != "bfloat16")):
        best.setdefault((cell.kernel, cell.layout), cell)
    order = dict.fromkeys((cell.kernel, cell.layout) for cell in cells)
    return (best[key] for key in order)


def measure(found: FoundProvider, kernel: Kernel, cell: Cell) -> Iterator[Bandwidth]:
    """Measure one kernel in one cell."""
    place = found.place()
    for bulk in kernel.workload.bulk(cell, CPU_BYTES if place.is_cpu else DEVICE_BYTES):
        try:
            yield _measured(found, kernel, cell, bulk, place)
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises is its line of the table
            yield Bandwidth(cell, bulk.way, problem=f"{type(error).__name__}: {error}".splitlines()[0])


def _measured(found: FoundProvider, kernel: Kernel, cell: Cell, bulk: Bulk, place: Place) -> Bandwidth:
    trial = kernel.workload.build(cell, bulk.case, place)
    function, arguments = getattr(found.kernels, kernel.name), trial.arguments()
    source, target = (place.empty(bulk.nbytes, where) for where in (bulk.source, bulk.target))

    def copy() -> None:
        target.copy_(source, non_blocking=True)

    rounds = []
    for _ in range(WARM_UP + ROUNDS):
        rounds.append((place.seconds(trial.call, function, arguments), place.seconds(copy)))
    seconds, copied = zip(*rounds[WARM_UP:], strict=True)
    return Bandwidth(
        cell,
        bulk.way,
        bulk.nbytes,
        bulk.nbytes / median(seconds) / 1e9,
        bulk.nbytes / median(copied) / 1e9,
        median(plain / mine for mine, plain in rounds[WARM_UP:]),
    )


def table(provider: str, rows: Sequence[Bandwidth]) -> list[list[str]]:
    """The rows as text, one line of headings first."""
    head = [f"bandwidth of {provider}", "way", "page size", "MB", "GB/s", "copy GB/s", "ratio"]
    return [head, *(_line(row) for row in rows)]


def _line(row: Bandwidth) -> list[str]:
    start = [f"{row.cell.kernel} {row.cell.layout}", row.way, str(row.cell.page_size)]
    if row.problem:
        return [*start, "not measured:", row.problem, "", ""]
    return [*start, f"{row.nbytes / 1e6:.1f}", *(f"{rate:.1f}" for rate in row[3:5]), f"{row.ratio:.2f}"]
