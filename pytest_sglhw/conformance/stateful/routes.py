"""Which kernels a provider's pools are moved by: backup and load between device and host, moves inside the device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch

from pytest_sglhw.conformance.families.kvcacheio import FACTS
from pytest_sglhw.conformance.transfer_cases import TransferCase
from pytest_sglhw.conformance.transfer_trials import TransferTrial

if TYPE_CHECKING:
    from pytest_sglhw.conformance.bench import Bench
    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.devices import Place
    from pytest_sglhw.conformance.stateful.program import Program
    from pytest_sglhw.conformance.transfer_trials import Pool

Pools = Mapping[str, "Pool"]


class Call(NamedTuple):
    """One call of a kernel."""

    kernel: str
    arguments: list[Any]
    keywords: dict[str, Any]


class Ends(NamedTuple):
    """What a step moves: pools by part (``K``, ``V``) on both sides, and the tokens in order."""

    direction: str
    """``device_to_host``, ``host_to_device`` or ``device_to_device``."""
    sources: Pools
    targets: Pools
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True)
class Route(ABC):
    """The pair of kernels that moves rows between a device pool and a host pool of one layout."""

    backup: str
    load: str
    host_layout: str
    parts: tuple[str, ...]

    row_bytes: ClassVar[Sequence[int]] = (8, 24, 80, 576)

    @property
    def is_direct(self) -> bool:
        """Whether whole pages are moved, by lists of tensors."""
        return False

    @abstractmethod
    def calls(self, cell: Cell, program: Program, place: Place, ends: Ends) -> Iterator[Call]:
        """The calls that make one backup or load."""


def transfer_case(program: Program, page_size: int, ends: Ends) -> TransferCase:
    """The program's geometry, and the tokens of a step, as a case of a transfer kernel."""
    start, _, end = ends.direction.partition("_to_")
    return TransferCase(
        layers=program.layers,
        layer_id=0,
        span=program.layers,
        heads=program.heads,
        head_bytes=program.head_bytes,
        v_head_bytes=program.v_head_bytes,
        parts=tuple(ends.sources),
        direction=ends.direction,
        source_tokens=program.pages(start) * page_size,
        destination_tokens=program.pages(end) * page_size,
        source_base=program.base(start),
        destination_base=program.base(end),
        rotation=program.rotation,
        gap_heads=0,
        quota=program.quota,
        warps=program.warps,
        pattern="pages",
        source_indices=ends.reads,
        destination_indices=ends.writes,
        index_stride=1,
        seed=program.seed,
    )


def transfer_calls(kernel: str, cell: Cell, program: Program, place: Place, ends: Ends) -> Iterator[Call]:
    """Call a kernel of ``sgl_kernel.kvcacheio`` for all layers, at once or one by one."""
    facts = FACTS[kernel]
    trial = TransferTrial(facts, cell, transfer_case(program, cell.page_size, ends), place, ends.sources, ends.targets)
    if facts.all_layers:
        yield Call(kernel, trial.arguments(), {})
    else:
        yield from (Call(kernel, trial.arguments(layer_id=at, span=1), {}) for at in range(program.layers))


class Kvcacheio(Route):
    """Kernels of ``sgl_kernel.kvcacheio``."""

    @property
    def is_direct(self) -> bool:
        """See :class:`Route`."""
        return FACTS[self.backup].direct

    def calls(self, cell: Cell, program: Program, place: Place, ends: Ends) -> Iterator[Call]:
        """See :class:`Route`."""
        kernel = self.backup if ends.direction == "device_to_host" else self.load
        return transfer_calls(kernel, cell, program, place, ends)


class Hicache(Route):
    """SGLang's JIT kernels ``transfer_hicache_*``: targets come first, rows have the widths that they are built for."""

    row_bytes: ClassVar[Sequence[int]] = (128, 256, 1024)

    def calls(self, cell: Cell, program: Program, place: Place, ends: Ends) -> Iterator[Call]:
        """See :class:`Route`."""
        reads, writes = (place.put(torch.tensor(tokens)) for tokens in (ends.reads, ends.writes))
        row = program.heads * program.head_bytes
        if ends.direction == "device_to_host":
            tables = [[place.put(_table(pool)) for pool in pools.values()] for pools in (ends.targets, ends.sources)]
            prefix = "kv_cache" if len(self.parts) == 2 else "cache"
            strides = {f"{prefix}_src_stride_bytes": row, f"{prefix}_dst_stride_bytes": self._stride(program)}
            sizes = {"element_size": row, "page_size": cell.page_size}
            yield Call(self.backup, [*tables[0], writes, *tables[1], reads], {**strides, **sizes})
            return
        numbers = {"element_dim": row // cell.itemsize, "page_size": cell.page_size}
        for layer in range(program.layers):
            targets, sources = (
                [_layer(pool, layer, cell.torch_dtype()) for pool in pools.values()]
                for pools in (ends.targets, ends.sources)
            )
            yield Call(self.load, [*targets, writes, *sources, reads], numbers)

    def _stride(self, program: Program) -> int:
        row = program.heads * program.head_bytes
        return row * program.layers if self.host_layout == "page_first" else row


class MovesOnly(Route):
    """Nothing but a kernel that moves slots (both ways are named by it): rows come and go by other means."""

    row_bytes: ClassVar[Sequence[int]] = (16, 24, 136, 264)

    def calls(self, cell: Cell, program: Program, place: Place, ends: Ends) -> Iterator[Call]:  # noqa: ARG002 - none
        """See :class:`Route`: none."""
        return iter(())


def _layer(pool: Pool, number: int, dtype: torch.dtype) -> torch.Tensor:
    """The rows of one layer, ``[token, row]``; those of a page-first pool are strided."""
    if pool.layout == "layer_first":
        return pool.layer(number, dtype).flatten(1)
    return pool.whole(dtype)[:, number].flatten(1)


def _table(pool: Pool) -> torch.Tensor:
    layers = range(pool.extents.layers)
    addresses = [_layer(pool, number, torch.uint8).data_ptr() for number in layers]
    return torch.tensor(addresses, dtype=torch.uint64)


class Mover(NamedTuple):
    """A kernel that moves slots inside the device pool."""

    kernel: str
    overlaps: bool
    """Whether targets may be sources: everything is read before anything is written."""
    calls: Callable[[Cell, Program, Place, Ends], Iterator[Call]]


def _by_tables(kernel: str) -> Mover:
    def calls(cell: Cell, program: Program, place: Place, ends: Ends) -> Iterator[Call]:  # noqa: ARG001 - as all do
        tables = torch.cat([pool.table() for pool in ends.sources.values()])
        strides = [pool.extents.row_bytes for pool in ends.sources.values() for _ in range(program.layers)]
        slots = [place.put(torch.tensor(tokens)) for tokens in (ends.writes, ends.reads)]
        yield Call(kernel, [place.put(tables), place.put(torch.tensor(strides)), *slots], {})

    return Mover(kernel, True, calls)


def _move_kv_cache(cell: Cell, program: Program, place: Place, ends: Ends) -> Iterator[Call]:
    parts = [pool.layers(range(program.layers), cell.torch_dtype()) for pool in ends.sources.values()]
    slots = [place.put(torch.tensor(tokens)) for tokens in (ends.writes, ends.reads)]
    yield Call("move_kv_cache", [*parts, *slots], {})


def _by_transfer(kernel: str) -> Mover:
    def calls(cell: Cell, program: Program, place: Place, ends: Ends) -> Iterator[Call]:
        """Move tokens one by one, also by a kernel that counts pages."""
        return transfer_calls(kernel, cell._replace(page_size=1), program, place, ends)

    return Mover(kernel, False, calls)


def movers(bench: Bench, route: Route) -> list[Mover]:
    """The kernels of the provider that can move this route's slots."""
    both = len(route.parts) == 2
    every = [_by_tables("copy_all_layer_kv_cache_cpu"), _by_tables("copy_all_layer_kv_cache_tiled")]
    every += [Mover("move_kv_cache", True, _move_kv_cache)] if both else []
    if route.is_direct:
        every.append(_by_transfer("transfer_kv_direct"))
    else:
        every.append(_by_transfer("transfer_kv_per_layer" if both else "transfer_kv_per_layer_mla"))
    return [mover for mover in every if bench.has(mover.kernel)]
