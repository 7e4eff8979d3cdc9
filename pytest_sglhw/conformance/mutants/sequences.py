"""Faults in what kernels keep between calls: each call by itself is right, and only a sequence of them shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.mutants.planting import Given, Mutant, sides

if TYPE_CHECKING:
    from pytest_sglhw.conformance.family import KernelFunction
    from pytest_sglhw.conformance.mutants.planting import Fault

_T = "transfer_kv"
LOADS = tuple(f"{_T}_per_layer{name}" for name in ("", "_pf_lf", "_ph_lf", "_mla", "_mla_pf_lf"))
BACKUPS = tuple(f"{_T}_all_layer{name}" for name in ("", "_lf_pf", "_lf_ph", "_mla", "_mla_lf_pf"))
DIRECT_LOADS = (f"{_T}_per_layer_direct_pf_lf",)
MOVES = ("copy_all_layer_kv_cache_cpu",)
KERNEL_POOLS = ("host_pool_mha_kernel", "host_pool_mla_kernel")
EVERY_POOL = (*KERNEL_POOLS, "host_pool_mha_direct", "host_pool_mla_direct")


def _address(pool: Any) -> int:
    """What tells one pool (or layer, or table of layers, or list) from another."""
    first = pool[0] if isinstance(pool, list) else pool
    return int(first[0]) if first.dtype == torch.uint64 else int(first.data_ptr())


def _pairs(given: Given) -> list[tuple[int, int]]:
    return list(zip(given["src_indices"].tolist(), given["dst_indices"].tolist(), strict=True))


def _with_pairs(given: Given, pairs: list[tuple[int, int]]) -> Given:
    reads, writes = ([pair[side] for pair in pairs] for side in (0, 1))
    return {**given, "src_indices": torch.tensor(reads).long(), "dst_indices": torch.tensor(writes).long()}


def _once_each() -> Fault:
    """Leave out what was moved before between the same slots of the same pools."""
    seen: set[tuple[int, ...]] = set()

    def fault(kernel: KernelFunction, given: Given) -> None:
        ends = [_address(given[name]) for pair in sides(given) for name in pair][:2]
        kept = [pair for pair in _pairs(given) if (*ends, *pair) not in seen]
        seen.update((*ends, *pair) for pair in kept)
        kernel(**_with_pairs(given, kept))

    return fault


def _pages_once() -> Fault:
    """Like :func:`_once_each`, for a kernel that takes lists and whole pages."""
    seen: set[tuple[int, ...]] = set()

    def fault(kernel: KernelFunction, given: Given) -> None:
        size, pairs = given["page_size"], _pairs(given)
        ends = (_address(given["src_ptrs"]), _address(given["dst_ptrs"]), given["layer_id"])
        firsts = [at for at in range(0, len(pairs), size) if (*ends, *pairs[at]) not in seen]
        seen.update((*ends, *pairs[at]) for at in firsts)
        kernel(**_with_pairs(given, [pair for at in firsts for pair in pairs[at : at + size]]))

    return fault


def _rows(given: Given) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Source name, rows of the destination layer as bytes, slots written."""
    for source, destination in sides(given):
        yield source, given[destination].view(torch.uint8).flatten(1), given["dst_indices"]


def _host_row_kept() -> Fault:
    """Serve a host row that was loaded before from a copy of what it was then."""
    copies: dict[tuple[int, ...], torch.Tensor] = {}

    def fault(kernel: KernelFunction, given: Given) -> None:
        kernel(**given)
        for source, rows, _ in _rows(given):
            for read, write in _pairs(given):
                key = (_address(given[source]), given.get("layer_id", 0), read)
                rows[write] = copies.setdefault(key, rows[write].clone())

    return fault


def _late_load() -> Fault:
    """Finish the load before this one a second time, whatever its slots are used for by now."""
    before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def fault(kernel: KernelFunction, given: Given) -> None:
        for _, rows, _ in _rows(given):
            if rows.data_ptr() in before:
                slots, kept = before[rows.data_ptr()]
                rows[slots] = kept
        kernel(**given)
        before.update({rows.data_ptr(): (slots, rows[slots].clone()) for _, rows, slots in _rows(given)})

    return fault


def _moves_not_followed() -> Fault:
    """Back up the slot from which a row was moved away, as if it still stood there."""
    moved: dict[int, dict[int, int]] = {}

    def fault(kernel: KernelFunction, given: Given) -> None:
        origin = moved.setdefault(_address(next(iter(given.values()))), {})
        if "tgt_loc" in given:
            kernel(**given)
            origin.update(zip(given["tgt_loc"].tolist(), given["src_loc"].tolist(), strict=True))
        else:
            kernel(**_with_pairs(given, [(origin.pop(read, read), write) for read, write in _pairs(given)]))

    return fault


def _one_by_one(kernel: KernelFunction, given: Given) -> None:
    for target, source in zip(given["tgt_loc"].split(1), given["src_loc"].split(1), strict=True):
        kernel(**{**given, "tgt_loc": target, "src_loc": source})


def _mutant(name: str, rows: tuple[str, ...], within: tuple[str, ...], why: str, make: Any) -> Mutant:
    return Mutant(name, rows, ("sequence",), why, make, within)


MUTANTS = (
    _mutant(
        "eviction forgotten by loads",
        KERNEL_POOLS,
        LOADS,
        "a page that was loaded is taken to be there still, though its slot was given up and used again",
        _once_each,
    ),
    _mutant(
        "eviction forgotten by page loads",
        EVERY_POOL[2:],
        DIRECT_LOADS,
        "a page that was loaded is taken to be there still, though its slot was given up and used again",
        _pages_once,
    ),
    _mutant(
        "backup taken to be current",
        KERNEL_POOLS,
        BACKUPS,
        "a page that was backed up once is never dirty again",
        _once_each,
    ),
    _mutant(
        "stale copy of a host page",
        KERNEL_POOLS,
        LOADS,
        "a staging buffer keeps a host page that another backup has overwritten since",
        _host_row_kept,
    ),
    _mutant(
        "load finished late",
        KERNEL_POOLS,
        LOADS,
        "sglang #20611: a load that nobody waits for writes into slots that have a new owner",
        _late_load,
    ),
    _mutant(
        "moves not followed",
        KERNEL_POOLS,
        (*BACKUPS, *MOVES),
        "a move does not reach the slots that a later backup reads",
        _moves_not_followed,
    ),
    _mutant(
        "overlapping moves one by one",
        EVERY_POOL,
        MOVES,
        "writes before all reads where targets are sources",
        lambda: _one_by_one,
    ),
)
