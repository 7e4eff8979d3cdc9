"""Faults that show only off the beaten track: what callers keep, refusals from the other side, sizes seldom met."""

# ruff: noqa: ARG005 (every change and every formula is called alike)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.mutants.direct import DIRECT
from pytest_sglhw.conformance.mutants.launched import (
    ALL_LAYERS,
    EVERY,
    HEADS,
    LAYER,
    LOST,
    PAGES,
    TABLES,
)
from pytest_sglhw.conformance.mutants.planting import (
    Given,
    Mutant,
    after,
    by_address,
    is_regular,
    items,
    wrapped_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_sglhw.conformance.family import KernelFunction
    from pytest_sglhw.conformance.mutants.planting import Fault

ROWS = LAYER + TABLES + PAGES


def _skipped_if(is_skipped: Callable[[Given], bool]) -> Callable[[], Fault]:
    def fault(kernel: KernelFunction, given: Given) -> Any:
        return None if is_skipped(given) else kernel(**given)

    return lambda: fault


def _tables(given: Given) -> list[str]:
    return [name for name in given if name.endswith("_layers") and name != "num_layers"]


def _zero_tables(given: Given) -> None:
    for name in _tables(given):
        given[name].view(torch.int64).zero_()


def _longer_source_taken(kernel: KernelFunction, given: Given) -> None:
    kernel(**{**given, "src_indices": given["src_indices"][: max(1, len(given["dst_indices"]))]})


def _other_int64_tables_taken(kernel: KernelFunction, given: Given) -> None:
    first, *others = _tables(given)
    kernel(**{**given, **{name: given[name].view(torch.uint64) for name in others}, first: given[first]})


def _longer_tables_taken(kernel: KernelFunction, given: Given) -> None:
    kernel(**{**given, **{name: given[name][: max(1, given["num_layers"])] for name in _tables(given)}})


def _rest_of_a_page_dropped(kernel: KernelFunction, given: Given) -> None:
    size, count = given["page_size"], len(given["src_indices"])
    whole = count // size * size if not is_regular(given) and 0 < size < count else count
    kernel(**{**given, **{name: given[name][:whole] for name in ("src_indices", "dst_indices")}})


def _first(tokens: int) -> Callable[[], Fault]:
    """Move the whole pages among so many first tokens."""
    return items(lambda indices, given: indices[: tokens // given.get("page_size", 1) * given.get("page_size", 1)])


MUTANTS = (
    # --- what the caller keeps ---
    Mutant(
        "indices sorted in place",
        EVERY + DIRECT,
        ("source",),
        "the caller's index tensor is scratch memory",
        after(lambda given: given["dst_indices"].copy_(given["dst_indices"].sort().values)),
    ),
    Mutant("tables zeroed", ALL_LAYERS, ("source",), "tables are taken for the call's own", after(_zero_tables)),
    Mutant(
        "list consumed",
        DIRECT,
        ("source",),
        "the caller's list of tensors is popped from",
        after(lambda given: given[next(iter(given))].pop()),
    ),
    # --- refusals from the other side ---
    Mutant(
        "longer source taken",
        EVERY + DIRECT,
        ("errors",),
        "only a longer destination is refused",
        lambda: _longer_source_taken,
    ),
    Mutant(
        "int64 tables taken behind the first",
        ("transfer_kv_all_layer", "transfer_kv_all_layer_mla", "transfer_kv_all_layer_lf_pf"),
        ("errors",),
        "only the first table is looked at",
        lambda: _other_int64_tables_taken,
    ),
    Mutant(
        "fewer layers than the table has",
        ALL_LAYERS,
        ("errors",),
        "the number of layers is compared one way only",
        lambda: _longer_tables_taken,
    ),
    Mutant(
        "rest of a page dropped",
        DIRECT,
        ("errors",),
        "indices that fill no page are cut off, not refused",
        lambda: _rest_of_a_page_dropped,
    ),
    # --- many tokens ---
    Mutant("first 1024 tokens", EVERY + DIRECT, LOST, "no loop beyond the threads of a block", _first(1 << 10)),
    Mutant(
        "first 65535 tokens",
        ("transfer_kv_per_layer_mla", "transfer_kv_direct"),
        LOST,
        "tokens are counted in 16 bits",
        _first((1 << 16) - 1),
    ),
    Mutant(
        "first 64 pages",
        DIRECT,
        LOST,
        "pages are kept in a mask of 64 bits",
        items(lambda indices, given: indices[: 64 * given["page_size"]]),
    ),
    # --- heads and rows ---
    Mutant("16 heads", HEADS, LOST, "no launch for so many heads", _skipped_if(lambda given: given["head_num"] > 8)),
    Mutant("6 heads", HEADS, LOST, "no instance for this number", _skipped_if(lambda given: given["head_num"] == 6)),
    Mutant(
        "rows of 512 bytes",
        ROWS,
        LOST,
        "the tail of a row that fills a warp's lanes exactly",
        by_address(width=lambda size: size - 8 * (size == 512)),
    ),
    Mutant(
        "rows of whole KiB",
        ROWS,
        LOST,
        "the tail of a row that fills several passes of a warp",
        by_address(width=lambda size: size - 8 * (size % 1024 == 0 and size != 2048)),
    ),
    Mutant(
        "rows above 8 KiB",
        ROWS,
        LOST,
        "a fixed number of passes over a row",
        by_address(width=lambda size: min(size, 8192)),
    ),
    # --- other ways to call ---
    Mutant(
        "nothing on the default quota",
        EVERY,
        ("keywords",),
        "the default is a quota of no blocks",
        _skipped_if(lambda given: "block_quota" not in given),
    ),
    Mutant(
        "nothing on several threads",
        EVERY + DIRECT,
        ("repeat",),
        "work is dealt to threads, and that of the others is lost",
        _skipped_if(lambda given: torch.get_num_threads() > 1),
    ),
    # --- addresses ---
    Mutant(
        "offsets of signed 32 bits in words",
        LAYER,
        ("addresses",),
        "slot x row wraps at 16 GiB where it counts words of 8 bytes",
        wrapped_offsets(signed=True, word=8),
    ),
    Mutant(
        "offsets of unsigned 32 bits in words",
        LAYER,
        ("addresses",),
        "slot x row wraps at 32 GiB where it counts words of 8 bytes",
        wrapped_offsets(signed=False, word=8),
    ),
)
