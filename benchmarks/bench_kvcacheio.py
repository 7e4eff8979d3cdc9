"""Compare the CPU kernels with ``Tensor.copy_`` of the same bytes and with a Python loop over tokens, on one thread.

Ratios of two measurements that alternate in one process, each the best of several rounds, in CPU time of the thread:
other processes then disturb it least. ``copy_`` moves the tokens in one piece for each layer, between the layouts of
the op (bounded) and, for information, between contiguous tensors. The bounds are for rows of 1 KiB; those of page_head
are one head of a token and have none.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from pytest_sglhw import kvcacheio

TOKENS, LAYERS, ROW, PAGE, HEADS, ROUNDS = 4096, 16, 1024, 16, 8, 11

Call = Callable[[], object]


class Case(NamedTuple):
    """An op that moves all tokens of all layers once, and the ``copy_`` that does the same between the same layouts."""

    name: str
    call: Call
    copy: Call


def best(*calls: Call) -> list[float]:
    """Return the CPU seconds of the fastest round of each call; the rounds of the calls alternate."""
    seconds = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for i, call in enumerate(calls):
            call()  # so that no call finds the caches as another kind of call left them
            start = time.thread_time()
            call()
            seconds[i] = min(seconds[i], time.thread_time() - start)
    return seconds


def pages() -> torch.Tensor:
    """Return the slots of all pages, the pages in random order."""
    return (torch.randperm(TOKENS // PAGE)[:, None] * PAGE + torch.arange(PAGE)).flatten()


def scattered() -> torch.Tensor:
    """Return all slots in random order."""
    return torch.randperm(TOKENS)


def pool(*shape: int) -> torch.Tensor:
    """Return a pool of random bytes."""
    return torch.randint(0, 256, shape, dtype=torch.uint8)


def table(layers: torch.Tensor) -> torch.Tensor:
    """Return the addresses of layers."""
    return torch.tensor([layer.data_ptr() for layer in layers], dtype=torch.uint64)


def each_layer(call: Callable[[int], object]) -> Call:
    """Return a call that does this for each layer."""

    def calls() -> None:
        for layer in range(LAYERS):
            call(layer)

    return calls


def layer_first_cases(src_slots: torch.Tensor, dst_slots: torch.Tensor) -> Iterator[Case]:
    """Return the ops between layers."""
    src, dst = pool(LAYERS, TOKENS, ROW), pool(LAYERS, TOKENS, ROW)
    copy = each_layer(lambda layer: dst[layer].copy_(src[layer]))
    tables, layers = (table(src), table(dst)), (list(src), list(dst))

    def one(layer: int) -> None:
        kvcacheio.transfer_kv_per_layer_mla(src[layer], dst[layer], src_slots, dst_slots, ROW)

    yield Case("per_layer_mla", each_layer(one), copy)
    yield Case(
        "all_layer_mla", lambda: kvcacheio.transfer_kv_all_layer_mla(*tables, src_slots, dst_slots, ROW, LAYERS), copy
    )
    yield Case("direct", lambda: kvcacheio.transfer_kv_direct(*layers, src_slots, dst_slots, PAGE), copy)


def page_first_cases(src_slots: torch.Tensor, dst_slots: torch.Tensor) -> Iterator[Case]:
    """Return the ops between layers and page_first pools."""
    host, layers = pool(TOKENS, LAYERS, ROW), pool(LAYERS, TOKENS, ROW)
    addresses, dim = table(layers), LAYERS * ROW

    def load(layer: int) -> None:
        kvcacheio.transfer_kv_per_layer_mla_pf_lf(host, layers[layer], src_slots, dst_slots, layer, ROW, dim)

    yield Case("per_layer_mla_pf_lf", each_layer(load), each_layer(lambda layer: layers[layer].copy_(host[:, layer])))
    yield Case(
        "all_layer_mla_lf_pf",
        lambda: kvcacheio.transfer_kv_all_layer_mla_lf_pf(addresses, host, src_slots, dst_slots, ROW, dim, LAYERS),
        each_layer(lambda layer: host[:, layer].copy_(layers[layer])),
    )


def page_head_cases(src_slots: torch.Tensor, dst_slots: torch.Tensor) -> Iterator[Case]:
    """Return the ops between layers and page_head pools; a row is a head, an eighth of a token."""
    host, layers = pool(TOKENS // PAGE, HEADS, PAGE, LAYERS, ROW // HEADS // 2), pool(LAYERS, TOKENS, ROW // 2)
    half, addresses = ROW // 2, table(layers)
    tail = (half, LAYERS * half, LAYERS, PAGE, HEADS)
    paged = layers.view(LAYERS, TOKENS // PAGE, PAGE, HEADS, half // HEADS).transpose(2, 3)

    def load(layer: int) -> None:
        one = layers[layer]
        kvcacheio.transfer_kv_per_layer_ph_lf(
            host, one, host, one, src_slots, dst_slots, layer, half, LAYERS * half, PAGE, HEADS
        )

    def store() -> None:
        kvcacheio.transfer_kv_all_layer_lf_ph(addresses, host, addresses, host, src_slots, dst_slots, *tail)

    def copy_back(layer: int) -> None:
        for _ in "kv":
            paged[layer].copy_(host[..., layer, :])

    def copy_out(layer: int) -> None:
        for _ in "kv":
            host[..., layer, :].copy_(paged[layer])

    yield Case("per_layer_ph_lf", each_layer(load), each_layer(copy_back))
    yield Case("all_layer_lf_ph", store, each_layer(copy_out))


def page_first_direct_cases(src_slots: torch.Tensor, dst_slots: torch.Tensor) -> Iterator[Case]:
    """Return the ops between layers and page_first_direct pools."""
    host, layers = pool(TOKENS // PAGE, LAYERS, PAGE, ROW), pool(LAYERS, TOKENS, ROW)
    paged, listed = layers.view(LAYERS, -1, PAGE, ROW), list(layers)
    yield Case(
        "per_layer_direct_pf_lf",
        lambda: kvcacheio.transfer_kv_per_layer_direct_pf_lf([host], listed, src_slots, dst_slots, 0, PAGE),
        each_layer(lambda layer: paged[layer].copy_(host[:, layer])),
    )
    yield Case(
        "all_layer_direct_lf_pf",
        lambda: kvcacheio.transfer_kv_all_layer_direct_lf_pf(listed, [host], src_slots, dst_slots, PAGE),
        each_layer(lambda layer: host[:, layer].copy_(paged[layer])),
    )


def against_copy() -> Iterator[bool]:
    """Compare each op with ``copy_``; say of each whether the bound is met."""
    src, dst = pool(LAYERS, TOKENS, ROW), pool(LAYERS, TOKENS, ROW)
    contiguous = each_layer(lambda layer: dst[layer].copy_(src[layer]))
    families = (layer_first_cases, page_first_cases, page_head_cases)
    for slots, bound in ((pages, 0.5), (scattered, 0.3)):
        for family in (*families, page_first_direct_cases) if slots is pages else families:
            for case in family(slots(), slots()):
                mine, same_layout, plain = best(case.call, case.copy, contiguous)
                limit = None if family is page_head_cases else bound
                yield report(f"{case.name}, {slots.__name__}", same_layout / mine, limit, plain / mine)


def against_loop(row: int = 64, bound: float = 50) -> bool:
    """Compare narrow rows with assignments token by token."""
    src, dst = pool(LAYERS, TOKENS, row), pool(LAYERS, TOKENS, row)
    src_slots, dst_slots, tables = scattered(), scattered(), (table(src), table(dst))
    pairs = list(zip(src_slots.tolist(), dst_slots.tolist(), strict=True))

    def loop(layer: int) -> None:
        one, other = src[layer], dst[layer]
        for s, d in pairs:
            other[d] = one[s]

    op = lambda: kvcacheio.transfer_kv_all_layer_mla(*tables, src_slots, dst_slots, row, LAYERS)  # noqa: E731
    mine, looped = best(op, lambda: loop(0))
    return report(f"all_layer_mla, scattered, rows of {row} B, loop", looped * LAYERS / mine, bound)


def report(what: str, ratio: float, bound: float | None, plain: float | None = None) -> bool:
    """Print one line of the table and say whether the bound is met."""
    met = bound is None or ratio >= bound
    columns = (
        "-" if bound is None else f"{bound:.2f}",
        "ok" if met else "MISSED",
        "" if plain is None else f"{plain:.2f}",
    )
    print(f"{what:<48} {ratio:>7.2f} {columns[0]:>6}  {columns[1]:<7} {columns[2]}", flush=True)
    return met


def main() -> int:
    """Print the table; 1 if a bound is missed."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{TOKENS} tokens x {LAYERS} layers, {ROW} B per token and layer, pages of {PAGE}, one thread")
    print(f"{'times the speed of copy_ (or of the loop)':<48} {'ratio':>7} {'bound':>6}  {'':<7} contiguous copy_")
    return int(not all([*against_copy(), against_loop()]))


if __name__ == "__main__":
    sys.exit(main())
