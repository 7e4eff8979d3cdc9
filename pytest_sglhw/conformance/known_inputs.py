"""Inputs on which a released kernel is known to fail, while everything else in their cells has to hold.

The cells of such a kernel leave these inputs out: they would end the process, lose the device, spoil other memory, or
hide what else is wrong. Each row has a test item of its own, which runs one such input in a child process and must see
it fail with the ``sign`` that the row names. If it passes, the item fails: remove the row.

What the rows say was read in the sources of sglang-kernel 0.4.10 and sglang 0.5.23; only a GPU can show it.
"""

# ruff: noqa: ARG001 (what covers an input is asked in one way for all)

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_sglhw.conformance.families.selection import machine_of, tma_kernel
from pytest_sglhw.conformance.families.swap_in import SwapIn, swap_in
from pytest_sglhw.conformance.strategies import PinnedDraw

if TYPE_CHECKING:
    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.devices import Place
    from pytest_sglhw.conformance.family import Kernel


class KnownInput(NamedTuple):
    """A kind of input to one kernel of one provider, and how the kernel fails on it."""

    provider: str
    kernel: str
    name: str
    """What the inputs have in common, as part of a test id."""
    covers: Callable[[Cell, Any, Place], bool]
    """Whether a case of a cell is such an input on this machine."""
    sign: str
    """What the failure says of itself: a signal, the name of a broken law, or a text of the runtime."""
    reason: str
    platforms: tuple[str, ...] = ()
    """Where it fails, by :attr:`Place.platform`; everywhere if empty."""

    def examples(self, kernel: Kernel, cell: Cell, place: Place) -> Iterator[Any]:
        """Yield cases of a cell that are such inputs."""
        drawn = (kernel.workload.draw(cell, PinnedDraw(seed, {})) for seed in range(10_000))
        return islice((case for case in drawn if self.covers(cell, case, place)), _TRIED)


_TRIED = 5
"""How many such inputs an item tries: each of them may fail, not every one has to."""


def _is_empty(cell: Cell, case: Any, place: Place) -> bool:
    return not case.source_indices


def _has_no_blocks(cell: Cell, case: Any, place: Place) -> bool:
    """Whether the register kernel gets nothing to do; the TMA kernel returns then."""
    return not case.pairs and not tma_kernel(case.widths[0], cell.page_size, machine_of(place))


def _has_own_v_width(cell: Cell, case: Any, place: Place) -> bool:
    return "V" in case.parts and bool(case.source_indices) and bool(case.v_head_bytes != case.head_bytes)


def _has_strided_indices(cell: Cell, case: Any, place: Place) -> bool:
    """Whether reading the indices as packed would move other rows."""
    return bool(case.index_stride > 1 and len(set(case.source_indices)) > 1)


def _is_off_16(cell: Cell, case: Any, place: Place) -> bool:
    """Whether rows are loaded that stand where no vector of 16 bytes may be loaded from."""
    if isinstance(case, SwapIn):
        return bool(case.item % 16) and any(swap_in(request).misses for request in case.requests[: case.real])
    return bool(case.widths[0] % 16) and bool(case.pairs)


_DIVIDES = "no indices at all: the launcher divides by the number of items per warp, which is 0 then"
_NO_BLOCKS = "no indices at all: the register kernel is launched with a grid of 0 blocks, which CUDA refuses"
_K_WIDTH = "sizes and strides of a batched copy are taken from K alone, so V rows of another width arrive spoiled"
_PACKED = "index tensors are read as packed, whatever their stride is, so other rows are moved"
_VECTORS = "rows are loaded in vectors of 16 bytes, and rows of another size do not all begin where that is allowed"

_LAUNCHED = ("per_layer", "per_layer_pf_lf", "per_layer_ph_lf", "all_layer", "all_layer_lf_pf", "all_layer_lf_ph",
             "per_layer_mla", "per_layer_mla_pf_lf", "all_layer_mla", "all_layer_mla_lf_pf")  # fmt: skip
_BATCHED = ("transfer_kv_per_layer_direct_pf_lf", "transfer_kv_all_layer_direct_lf_pf")
_HICACHE = ("transfer_hicache_one_layer", "transfer_hicache_one_layer_mla",
            "transfer_hicache_all_layer", "transfer_hicache_all_layer_mla")  # fmt: skip
_SWAPPED = ("load_cache_to_device_buffer_mla", "load_blocks_to_device_buffer_mha", "copy_cache_planned_mla")

INPUTS: tuple[KnownInput, ...] = (
    *(KnownInput("sgl_kernel", f"transfer_kv_{name}", "empty", _is_empty, "SIGFPE", _DIVIDES) for name in _LAUNCHED),
    *(
        KnownInput("sgl_kernel", name, "own_v_width", _has_own_v_width, "V destination", _K_WIDTH, ("cuda",))
        for name in _BATCHED
    ),
    *(
        KnownInput("sgl_kernel", name, "strided", _has_strided_indices, "is broken", _PACKED)
        for name in (*(f"transfer_kv_{name}" for name in _LAUNCHED), "transfer_kv_direct", *_BATCHED)
    ),
    *(
        KnownInput("sglang_jit", name, "empty", _has_no_blocks, "invalid configuration", _NO_BLOCKS)
        for name in _HICACHE
    ),
    *(
        KnownInput("sglang_jit", name, "off_16", _is_off_16, "misaligned address", _VECTORS, ("cuda",))
        for name in _SWAPPED
    ),
)


def known_in(provider: str, kernel: str, platform: str) -> tuple[KnownInput, ...]:
    """The rows of a kernel of a provider on a platform."""
    return tuple(
        row
        for row in INPUTS
        if (row.provider, row.kernel) == (provider, kernel) and (not row.platforms or platform in row.platforms)
    )
