"""Address arithmetic beyond 2 and 4 GiB.

On a CPU pools of several GiB stand in reserved address space: an anonymous mapping of which only the pages exist that
rows are written to. A device reserves nothing that it does not allocate, so there the memory is really taken: in the
``deep`` profile, once for each cell, where there is room. Either begins 2 GiB before the pool, so that an offset which
wraps to a negative 32-bit number stays in it and ends as a wrong byte instead of a crash.
"""

# ruff: noqa: ARG002 (a sparse buffer takes what a buffer takes)

from __future__ import annotations

import mmap
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.failures import BrokenLawError
from pytest_sglhw.conformance.family import Law
from pytest_sglhw.conformance.layouts import is_paged, strides
from pytest_sglhw.conformance.pools import Buffer, Windows
from pytest_sglhw.conformance.transfer_trials import Pool, TransferTrial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_sglhw.conformance.bench import Bench
    from pytest_sglhw.conformance.devices import Place
    from pytest_sglhw.conformance.family import Trial
    from pytest_sglhw.conformance.transfer_cases import TransferCase

_WRAP = 1 << 31
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)

#: How far the offsets of a case reach: past the wrap of unsigned 32-bit numbers too.
_REACH = (1 << 32) + (1 << 28)
_LAYERS = 2


class SparseBuffer(Buffer):
    """A buffer in reserved address space. It reads as zeros where nothing has been written."""

    def __init__(self, place: Place, windows: Windows, nbytes: int, where: str = "device", base: int = 0) -> None:
        self.start, self.nbytes = _WRAP + base, nbytes
        memory = mmap.mmap(-1, self.start + nbytes + mmap.PAGESIZE, flags=_FLAGS)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        self.storage = torch.frombuffer(memory, dtype=torch.uint8)


class LargeBuffer(Buffer):
    """A buffer that takes its gigabytes from the device, or from pinned memory of its host.

    :raises MemoryError: it would take more than half of what is free, which others have a use for too.
    """

    def __init__(self, place: Place, windows: Windows, nbytes: int, where: str = "device", base: int = 0) -> None:
        self.start, self.nbytes = _WRAP + base, nbytes
        whole, free = self.start + nbytes + mmap.PAGESIZE, place.free(where)
        if whole > free // 2:
            raise MemoryError(f"{whole} bytes on the {where}, where {free} are free")
        self.storage = place.empty(whole, where)


def check_addresses(bench: Bench, trial: Trial) -> None:
    """Hold: rows that lie beyond 2 and 4 GiB of their pool are moved like any other."""
    assert isinstance(trial, TransferTrial)
    if bench.place.is_cpu:
        _hold(bench, trial, SparseBuffer)
        return
    if not bench.large_trials:
        bench.reject("addresses: on a device it takes gigabytes, once for each cell of the profile deep")
    bench.large_trials -= 1
    try:
        _hold(bench, trial, LargeBuffer)
    finally:
        bench.place.release()


def _hold(bench: Bench, trial: TransferTrial, buffers: type[Buffer]) -> None:
    try:
        wide = TransferTrial(trial.facts, trial.cell, _wide(trial), trial.place, buffers=buffers)
    except (MemoryError, OSError, RuntimeError) as error:
        bench.reject(f"addresses: this machine has no room for a large pool ({error})")
    layers, reads, writes = wide.moves()
    windows, rows = Windows(wide.case.seed), {}
    for part, pool in wide.sources.items():
        shape = (len(layers), len(reads), pool.extents.heads, pool.extents.head_bytes)
        rows[part] = windows.take(torch.Size(shape).numel()).view(shape)
        _write(pool, layers, reads, rows[part])
    for part, pool in wide.destinations.items():  # memory that was used before may hold the right bytes already
        _write(pool, layers, writes, torch.zeros_like(rows[part]))
    bench.place.call(wide.call, bench.function(), wide.arguments())
    bench.calls += 1
    for part, pool in wide.destinations.items():
        got = pool.view(pool.buffer.storage).read(layers, writes).cpu()
        if not torch.equal(got, rows[part]):
            raise BrokenLawError("addresses", *_describe(part, pool, wide, got, rows[part]))


def _write(pool: Pool, layers: Sequence[int], tokens: torch.Tensor, rows: torch.Tensor) -> None:
    storage = pool.buffer.storage
    pool.view(storage).write(layers, tokens, rows.to(storage.device))


def _wide(trial: TransferTrial) -> TransferCase:
    """Make a case whose rows stand around the wraps of 32-bit offsets, on both sides in another order."""
    every = trial.facts.all_layers
    case: TransferCase = replace(
        trial.case,
        layers=_LAYERS,
        layer_id=0 if every else 1,
        span=_LAYERS if every else 1,
        rotation=min(trial.case.rotation, _LAYERS),
        v_head_bytes=trial.case.head_bytes,
        gap_heads=0,
        pattern="ends",
    )
    sides = []
    for side, layout in (("source", trial.facts.source), ("destination", trial.facts.destination)):
        step = case.heads * case.head_bytes * (1 if layout == "layer_first" else _LAYERS)
        size = trial.cell.page_size
        pages = _REACH // step // size + 2
        near = [offset // step // size for offset in (0, 1 << 31, (1 << 31) + step * size, 1 << 32, _REACH)]
        tokens: dict[str, Any] = {f"{side}_tokens": pages * size}
        case = replace(case, **tokens)
        sides.append([page * size + slot for page in near for slot in range(size if trial.facts.direct else 1)])
    reads, writes = sides
    turn = trial.cell.page_size if trial.facts.direct else 1
    return replace(case, source_indices=tuple(reads[turn:] + reads[:turn]), destination_indices=tuple(writes))


def _describe(part: str, pool: Pool, wide: TransferTrial, got: torch.Tensor, want: torch.Tensor) -> list[str]:
    layers, reads, writes = wide.moves()
    layer, row, head, byte = (int(number) for number in (got != want).nonzero()[0])
    step = strides(pool.layout, pool.stored)
    token = int(writes[row])
    per_token = step["page"] // wide.cell.page_size if is_paged(pool.layout) else step["token"]
    where = f"layer {layers[layer]}, token {token}, head {head}, byte {byte}"
    distance = f"{token * per_token / (1 << 30):.2f} GiB into the pool"
    return [
        f"{part} destination: wrong row at {where}, about {distance} (source token {int(reads[row])})",
        f"got      {bytes(got[layer, row, head, byte : byte + 8].tolist()).hex(' ')}",
        f"expected {bytes(want[layer, row, head, byte : byte + 8].tolist()).hex(' ')}",
    ]


ADDRESSES = Law("addresses", "rows beyond 2 and 4 GiB of their pool are moved like any other", check_addresses)
