"""Address arithmetic beyond 2 and 4 GiB; beyond 16, 32 and 64 GiB, too, where it takes no memory.

On a CPU pools of several GiB stand in reserved address space: an anonymous mapping of which only the pages exist that
rows are written to. A device reserves nothing that it does not allocate, so there the memory is really taken: in the
``deep`` profile, once for each cell, where there is room. Either begins so far before the pool that an offset which
wraps to a negative 32-bit number (of words of up to 16 bytes, in reserved address space) stays in it and ends as a
wrong byte instead of a crash.
"""

# ruff: noqa: ARG002 (a sparse buffer takes what a buffer takes)

from __future__ import annotations

import mmap
import platform
import sys
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

#: Linux' number on these machines, for the Pythons that have no name for it.
_NORESERVE = 0x4000 if sys.platform == "linux" and platform.machine() in {"x86_64", "aarch64"} else 0
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", _NORESERVE)

#: Where 32-bit numbers wrap: those of bytes, signed and unsigned, then those of words of 8 and of 16 bytes.
_OF_BYTES = (1 << 31, 1 << 32)
_OF_WORDS = (*_OF_BYTES, 1 << 34, 1 << 35, 1 << 36)
#: How much further the offsets of a case reach.
_BEYOND = 1 << 28
_LAYERS = 2


class SparseBuffer(Buffer):
    """A buffer in reserved address space. It reads as zeros where nothing has been written."""

    wraps: tuple[int, ...] = _OF_WORDS
    lead = 1 << 35
    """Bytes before the pool."""

    def __init__(self, place: Place, windows: Windows, nbytes: int, where: str = "device", base: int = 0) -> None:
        self.start, self.nbytes = self.lead + base, nbytes
        memory = mmap.mmap(-1, self.start + nbytes + mmap.PAGESIZE, flags=_FLAGS)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        self.storage = torch.frombuffer(memory, dtype=torch.uint8)


class NearBuffer(SparseBuffer):
    """A sparse buffer for processes that may reserve some gigabytes only."""

    wraps = _OF_BYTES
    lead = 1 << 31


class LargeBuffer(Buffer):
    """A buffer that takes its gigabytes from the device, or from pinned memory of its host.

    :raises MemoryError: it would take more than half of what is free, which others have a use for too.
    """

    wraps = _OF_BYTES
    lead = 1 << 31

    def __init__(self, place: Place, windows: Windows, nbytes: int, where: str = "device", base: int = 0) -> None:
        self.start, self.nbytes = self.lead + base, nbytes
        whole, free = self.start + nbytes + mmap.PAGESIZE, place.free(where)
        if whole > free // 2:
            raise MemoryError(f"{whole} bytes on the {where}, where {free} are free")
        self.storage = place.empty(whole, where)


def check_addresses(bench: Bench, trial: Trial) -> None:
    """Hold: rows that lie gigabytes into their pool are moved like any other."""
    assert isinstance(trial, TransferTrial)
    if bench.place.is_cpu:
        _hold(bench, trial, SparseBuffer, NearBuffer)
        return
    if not bench.large_trials:
        bench.reject("addresses: on a device it takes gigabytes, once for each cell of the profile deep")
    bench.large_trials -= 1
    try:
        _hold(bench, trial, LargeBuffer)
    finally:
        bench.place.release()


def _wide_trial(bench: Bench, trial: TransferTrial, kinds: Sequence[type[SparseBuffer | LargeBuffer]]) -> TransferTrial:
    """Build the wide case of a trial in the first kind of buffer that there is room for."""
    first, *others = kinds
    try:
        return TransferTrial(trial.facts, trial.cell, _wide(trial, first.wraps), trial.place, buffers=first)
    except (MemoryError, OSError, RuntimeError) as error:
        if not others:
            bench.reject(f"addresses: this machine has no room for a large pool ({error})")
    return _wide_trial(bench, trial, others)


def _hold(bench: Bench, trial: TransferTrial, *kinds: type[SparseBuffer | LargeBuffer]) -> None:
    wide = _wide_trial(bench, trial, kinds)
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


def _wide(trial: TransferTrial, wraps: Sequence[int]) -> TransferCase:
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
        reach = wraps[-1] + _BEYOND
        pages = reach // step // size + 2
        offsets = (0, wraps[0], wraps[0] + step * size, *wraps[1:], reach)
        near = [offset // step // size for offset in offsets]
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


ADDRESSES = Law("addresses", "rows that lie gigabytes into their pool are moved like any other", check_addresses)
