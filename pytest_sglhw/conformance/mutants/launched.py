"""Faults in the ten transfer kernels that take addresses and row sizes."""

# ruff: noqa: ARG005 (every change and every formula is called alike)

from __future__ import annotations

import torch

from pytest_sglhw.conformance.mutants import launched_faults as faults
from pytest_sglhw.conformance.mutants.planting import (
    Mutant,
    after,
    by_address,
    changing,
    items,
    page_first,
    page_head,
    read_as_packed,
    remembering,
    wrapped_offsets,
)

LAYER = ("transfer_kv_per_layer", "transfer_kv_per_layer_mla")
LOAD_PAGES = ("transfer_kv_per_layer_pf_lf", "transfer_kv_per_layer_mla_pf_lf")
LOAD_HEADS = ("transfer_kv_per_layer_ph_lf",)
TABLES = ("transfer_kv_all_layer", "transfer_kv_all_layer_mla")
STORE_PAGES = ("transfer_kv_all_layer_lf_pf", "transfer_kv_all_layer_mla_lf_pf")
STORE_HEADS = ("transfer_kv_all_layer_lf_ph",)
PAGES = LOAD_PAGES + STORE_PAGES
HEADS = LOAD_HEADS + STORE_HEADS
ALL_LAYERS = TABLES + STORE_PAGES + STORE_HEADS
ONE_LAYER = LOAD_PAGES + LOAD_HEADS
EVERY = LAYER + TABLES + PAGES + HEADS
K_AND_V = tuple(name for name in EVERY if "_mla" not in name)

#: Rows in the wrong place: which law shows it first depends on which bytes are the more.
MISPLACED = ("reference", "untouched")
#: Bytes that did not come: where they are all that an example moves, nothing was written.
LOST = ("reference", "vacuous")
#: Where a fault depends on the indices or the launch of a call, another call than the first may be what shows it.
BY_CALL = ("quota", "keywords", "split", "round_trip")
ANYWHERE = (*MISPLACED, "vacuous", "IndexError", *BY_CALL)


MUTANTS = (
    # --- layers ---
    Mutant(
        "layer ignored",
        ONE_LAYER,
        LOST,
        "sglang #8915: page-first loads always read layer 0",
        changing(layer_id=lambda given: 0),
    ),
    Mutant(
        "layer one too low",
        ONE_LAYER,
        LOST,
        "a pipeline stage's first layer counted from 1",
        changing(layer_id=lambda given: max(0, given["layer_id"] - 1)),
    ),
    Mutant(
        "layer one too high",
        ONE_LAYER,
        LOST,
        "layer numbers counted from 1",
        changing(layer_id=lambda given: min(faults.layers(given) - 1, given["layer_id"] + 1)),
    ),
    Mutant(
        "last layer left out",
        ALL_LAYERS,
        LOST,
        "a loop that ends one layer early",
        faults.tables(lambda table: table[:-1], num_layers=lambda given: max(1, given["num_layers"] - 1)),
    ),
    Mutant(
        "layer 0 only",
        ALL_LAYERS,
        LOST,
        "the layer axis of the grid is missing",
        faults.tables(lambda table: table[:1], num_layers=lambda given: 1),
    ),
    Mutant(
        "first layer left out",
        TABLES,
        LOST,
        "a loop that begins at layer 1",
        faults.tables(lambda table: table[1:], num_layers=lambda given: max(1, given["num_layers"] - 1)),
    ),
    Mutant(
        "layers in the order of memory",
        ("transfer_kv_all_layer_mla",),
        MISPLACED,
        "the table is ignored: layers are taken to follow each other in memory",
        changing(src_layers=lambda given: torch.tensor(sorted(given["src_layers"].tolist()), dtype=torch.uint64)),
    ),
    Mutant(
        "layers back to front",
        ("transfer_kv_all_layer_mla", "transfer_kv_all_layer_mla_lf_pf"),
        MISPLACED,
        "the table is filled from its end",
        changing(src_layers=lambda given: torch.tensor(given["src_layers"].tolist()[::-1], dtype=torch.uint64)),
    ),
    # --- K and V ---
    Mutant("K and V crossed at the source", K_AND_V, MISPLACED, "pointer tables crossed", faults.crossed(0)),
    Mutant("K and V crossed at the destination", K_AND_V, MISPLACED, "pointer tables crossed", faults.crossed(1)),
    Mutant("V gets K", K_AND_V, MISPLACED, "one source pointer for both parts", faults.kv("k", "v")),
    Mutant(
        "V left out",
        K_AND_V,
        LOST,
        "sglang #38212: the second pool is not transferred with the first",
        faults.kv("k", "k"),
    ),
    Mutant("V overwrites K", K_AND_V, MISPLACED, "one destination pointer for both parts", faults.kv("v", "k")),
    Mutant(
        "K of layer 1 and on is V",
        ("transfer_kv_all_layer", "transfer_kv_all_layer_lf_pf"),
        MISPLACED,
        "sgl-kernel-xpu: the K table is overwritten from layer 1 on",
        lambda: faults.v_from_layer_1,
    ),
    # --- indices ---
    Mutant(
        "indices crossed",
        EVERY,
        ANYWHERE,
        "source slots are written, destination slots read",
        changing(src_indices=lambda given: given["dst_indices"], dst_indices=lambda given: given["src_indices"]),
    ),
    Mutant(
        "destination slots are the source's",
        EVERY,
        ANYWHERE,
        "one index tensor for both sides",
        changing(dst_indices=lambda given: given["src_indices"]),
    ),
    Mutant(
        "source slots are 0, 1, 2, ...",
        EVERY,
        ANYWHERE,
        "the source indices are not read",
        changing(src_indices=lambda given: torch.arange(len(given["src_indices"]))),
    ),
    Mutant(
        "last item left out",
        EVERY,
        LOST,
        "a bound with < where <= is meant",
        items(lambda indices, given: indices[:-1]),
    ),
    Mutant(
        "first item left out",
        EVERY,
        LOST,
        "item 0 is taken for the padding slot",
        items(lambda indices, given: indices[1:]),
    ),
    Mutant(
        "items beyond one launch left out",
        EVERY,
        LOST + BY_CALL,
        "no loop over items where they outnumber quota x warps",
        items(lambda indices, given: indices[: faults.launch(given)]),
    ),
    Mutant(
        "last part of a launch left out",
        EVERY,
        LOST + BY_CALL,
        "the number of items is divided by the warps, rounding down",
        items(lambda indices, given: indices[: len(indices) // faults.warps(given) * faults.warps(given)]),
    ),
    Mutant(
        "strided indices read as packed",
        EVERY,
        ANYWHERE,
        "indices are read by address, one behind the other, whatever their stride is",
        items(read_as_packed),
    ),
    Mutant(
        "each source once",
        LAYER + LOAD_PAGES,
        LOST + BY_CALL,
        "a shared prefix is moved for the first request only",
        lambda: faults.each_source_once,
    ),
    Mutant(
        "indices sorted",
        EVERY,
        ANYWHERE,
        "the pairs are lost where one side is sorted for coalescing",
        changing(src_indices=lambda given: given["src_indices"].sort().values),
    ),
    Mutant(
        "slot 0 left out",
        LAYER + LOAD_PAGES,
        LOST + BY_CALL,
        "sglang #32477: the padding slot of a pool without one",
        lambda: faults.without_slot_0,
    ),
    # --- row sizes ---
    Mutant(
        "elements for bytes",
        LAYER,
        MISPLACED,
        "LMCache #2403: row sizes in elements",
        changing(
            item_size=lambda given: max(
                8, given["item_size"] // next(v.itemsize for k, v in given.items() if k.startswith("src")) // 8 * 8
            )
        ),
    ),
    Mutant(
        "last 8 bytes left out",
        EVERY,
        LOST,
        "a row's words are counted from 0 to n - 1",
        by_address(width=lambda size: size - 8),
    ),
    Mutant(
        "16-byte units only",
        EVERY,
        LOST,
        "rows of 8 modulo 16 bytes lose their tail to a vector load",
        by_address(width=lambda size: size // 16 * 16),
    ),
    Mutant(
        "rows rounded up to 16 bytes",
        LAYER + LOAD_PAGES,
        MISPLACED,
        "a vector store runs over the end of the row",
        by_address(width=lambda size: -(-size // 16) * 16),
    ),
    Mutant(
        "one pass of a warp",
        LAYER + TABLES + PAGES,
        LOST,
        "rows above 32 lanes x 64 bytes: no loop over the row",
        by_address(width=lambda size: min(size, 2048)),
    ),
    Mutant(
        "576 bytes for 656",
        LAYER + TABLES + PAGES,
        LOST,
        "sglang #37534: the host's row is narrower than the packed row of the device",
        by_address(width=lambda size: 576 if size == 656 else size),
    ),
    # --- addresses in paged pools ---
    Mutant(
        "[page, layer, token]",
        PAGES,
        MISPLACED,
        "page_first taken for pages of layers of tokens",
        by_address(faults.pages_of_layers),
    ),
    Mutant("[layer, token]", PAGES, MISPLACED, "page_first taken for layer_first", by_address(faults.layer_first)),
    Mutant(
        "row size for layout size",
        PAGES,
        MISPLACED,
        "tokens are taken to be one layer's row apart",
        by_address(lambda at, layer, token, head: token * at.item + layer * at.item),
    ),
    Mutant(
        "layer offset left out",
        PAGES,
        LOST + MISPLACED,
        "only the token counts in the offset",
        by_address(lambda at, layer, token, head: token * at.dim),
    ),
    Mutant(
        "page not divided",
        HEADS,
        MISPLACED,
        "the slot is taken for the page",
        by_address(
            lambda at, layer, token, head: (
                page_head(at, layer, token, head) + (token - token // at.page) * at.page * at.dim
            )
        ),
    ),
    Mutant(
        "[page, token, head]",
        HEADS,
        MISPLACED,
        "LMCache #2375: heads and tokens exchanged",
        by_address(lambda at, layer, token, head: token * at.dim + (head * at.layers + layer) * at.head),
    ),
    Mutant(
        "[page, head, layer, token]",
        HEADS,
        MISPLACED,
        "layers and tokens exchanged",
        by_address(faults.layers_before_slots),
    ),
    Mutant(
        "page_head taken for page_first",
        HEADS,
        MISPLACED,
        "the head axis stands behind the layers",
        by_address(page_first),
    ),
    Mutant(
        "pages of 16",
        HEADS,
        (*MISPLACED, "vacuous", "IndexError"),
        "a fixed page size",
        changing(page_size=lambda given: 16),
    ),
    Mutant("one head", HEADS, MISPLACED, "all heads are moved as one", changing(head_num=lambda given: 1)),
    Mutant(
        "head 0 everywhere",
        HEADS,
        LOST + MISPLACED,
        "the head axis of the offset is missing",
        by_address(lambda at, layer, token, head: page_head(at, layer, token, 0)),
    ),
    # --- beyond the selection ---
    Mutant(
        "one byte after the last row",
        LAYER + TABLES,
        ("untouched", "reference"),
        "writes behind the selection; behind the last row of a pool that may be the first of the next layer",
        after(faults.after_the_last),
    ),
    Mutant(
        "one byte before the pool",
        EVERY,
        ("untouched", "reference"),
        "sglang #33816: page -1 is written in front of the pool",
        after(faults.before_the_pool),
    ),
    Mutant(
        "no items copy row 0",
        EVERY,
        ("untouched", "reference"),
        "an empty index set is read all the same",
        lambda: faults.row_0_of_nothing,
    ),
    Mutant(
        "no items divide by zero",
        EVERY,
        ("ZeroDivisionError",),
        "upstream's launcher ends in SIGFPE",
        lambda: faults.divides_by_nothing,
    ),
    Mutant("source spoilt", LAYER + TABLES, ("source",), "a move where a copy is meant", after(faults.exchanged)),
    # --- bytes and values ---
    Mutant(
        "values for bytes",
        LAYER,
        MISPLACED,
        "NaN payloads do not survive a conversion",
        faults.converted(faults.through_float),
    ),
    Mutant("-0.0 lost", LAYER, MISPLACED, "values go through an addition", faults.converted(faults.plus_zero)),
    # --- nothing ---
    Mutant("nothing written", EVERY, ("vacuous",), "a kernel that is not launched", lambda: faults.nothing),
    Mutant(
        "written to a copy", LAYER, ("vacuous",), "a .contiguous() of the destination", lambda: faults.written_to_a_copy
    ),
    # --- what only another call shows ---
    Mutant(
        "last item lost in large launches",
        EVERY,
        ("quota",),
        "quota x warps above the device's limit",
        faults.all_but_last_if(lambda given: faults.launch(given) > 1024 and len(given["src_indices"]) > 0),
    ),
    Mutant(
        "indices of the call before",
        LAYER + LOAD_PAGES,
        ("split",),
        "sglang #26728: an index buffer reused before it is written",
        remembering(faults.cached_indices),
    ),
    Mutant(
        "no way back",
        LAYER,
        ("round_trip",),
        "a pool that was just written is taken for up to date",
        remembering(faults.way_back),
    ),
    Mutant(
        "offsets of signed 32 bits",
        LAYER,
        ("addresses",),
        "sglang #39948: slot x row wraps at 2 GiB",
        wrapped_offsets(signed=True),
    ),
    Mutant(
        "offsets of unsigned 32 bits", LAYER, ("addresses",), "slot x row wraps at 4 GiB", wrapped_offsets(signed=False)
    ),
)
