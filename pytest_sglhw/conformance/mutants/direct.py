"""Faults in the three transfer kernels that take lists of tensors and a page size."""

# ruff: noqa: ARG005 (every change and every formula is called alike)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.mutants.launched import LOST, MISPLACED
from pytest_sglhw.conformance.mutants.planting import Given, Mutant, changing, items, read_as_packed, remembering

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_sglhw.conformance.family import KernelFunction
    from pytest_sglhw.conformance.mutants.planting import Fault


RUNS = ("transfer_kv_direct",)
LOAD = ("transfer_kv_per_layer_direct_pf_lf",)
STORE = ("transfer_kv_all_layer_direct_lf_pf",)
DIRECT = RUNS + LOAD + STORE
ANYWHERE = (*MISPLACED, "vacuous", "IndexError", "split", "round_trip")


def _sources(change: Callable[[list[torch.Tensor]], list[torch.Tensor]]) -> Callable[[], Fault]:
    def fault(kernel: KernelFunction, given: Given) -> Any:
        name = next(iter(given))
        return kernel(**{**given, name: change(given[name])})

    return lambda: fault


def _each_source(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Fault]:
    return _sources(lambda tensors: [change(tensor) for tensor in tensors])


def _through_float(values: torch.Tensor) -> torch.Tensor:
    return values.double().to(values.dtype) if values.dtype.is_floating_point else values


def _packed(values: torch.Tensor) -> torch.Tensor:
    strides = torch.empty(values.shape, device="meta").stride()
    return values.as_strided(values.shape, strides)


def _run_of_first(indices: torch.Tensor, given: Given) -> torch.Tensor:
    """The slots that follow the first one of each page."""
    size = given["page_size"]
    return (indices[::size, None] + torch.arange(size)).flatten()


def _in_page(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor, Given], torch.Tensor]:
    return lambda indices, given: change(indices.view(-1, given["page_size"])).flatten()


def _as_wide_as_k(kernel: KernelFunction, given: Given) -> None:
    lists = [name for name, value in given.items() if isinstance(value, list)]
    narrow = {}
    for name in lists:
        width = given[name][0].shape[-1]
        narrow[name] = [tensor[..., : min(width, tensor.shape[-1])] for tensor in given[name]]
    kernel(**{**given, **narrow})


def _at_the_stride_of_k(kernel: KernelFunction, given: Given) -> None:
    name = next(iter(given))
    stride = given[name][0].stride()
    moved = [tensor.as_strided(tensor.shape, stride, tensor.storage_offset()) for tensor in given[name]]
    kernel(**{**given, name: moved})


def _layer_of_the_first(kernel: KernelFunction, given: Given) -> None:
    sources, destinations = given["src_ptrs"], given["dst_ptrs"]
    span = len(destinations) // len(sources)
    for at in range(span):
        kernel(**{**given, "dst_ptrs": destinations[at::span]})


def _last_page(indices: torch.Tensor, given: Given) -> torch.Tensor:
    return indices[: -given["page_size"]]


def _first_tokens(kernel: KernelFunction, given: Given) -> None:
    firsts = {name: given[name][:: given["page_size"]] for name in ("src_indices", "dst_indices")}
    kernel(**{**given, **firsts, "page_size": 1})


def _seen(before: Given, given: Given) -> Given | None:
    """Drop a call like the one before, if its pages are more than a split leaves as they were."""
    same = all(torch.equal(before[name], given[name]) for name in ("src_indices", "dst_indices"))
    first = next(iter(given))
    addresses = [tensor.data_ptr() for tensor in given[first]] == [tensor.data_ptr() for tensor in before[first]]
    return {} if same and addresses and len(given["src_indices"]) > given["page_size"] else None


MUTANTS = (
    Mutant("first index of each page only", RUNS, LOST, "the rest of the page is left out", lambda: _first_tokens),
    Mutant(
        "pages taken to be runs",
        RUNS,
        ANYWHERE,
        "sglang #31218: a page's slots are computed from its first",
        items(_run_of_first),
    ),
    Mutant(
        "destination taken to be a run",
        RUNS,
        ANYWHERE,
        "runs are joined by the source alone",
        changing(dst_indices=lambda given: _run_of_first(given["dst_indices"], given)),
    ),
    Mutant(
        "first of equal destinations stays",
        RUNS,
        ("reference",),
        "copies are issued back to front",
        items(lambda indices, given: indices.flip(0)),
    ),
    Mutant(
        "pages back to front inside",
        RUNS,
        ANYWHERE,
        "a page's slots are counted down",
        changing(src_indices=lambda given: _in_page(lambda pages: pages.flip(1))(given["src_indices"], given)),
    ),
    Mutant(
        "last index of each page counts",
        LOAD + STORE,
        ANYWHERE,
        "the page is that of its last index",
        items(_in_page(lambda pages: pages.flip(1))),
    ),
    Mutant(
        "page taken for the slot",
        LOAD,
        ANYWHERE,
        "sglang #31218: page numbers where slots are meant",
        changing(src_indices=lambda given: given["src_indices"] // given["page_size"]),
    ),
    Mutant(
        "page taken for the slot of the destination",
        STORE,
        ANYWHERE,
        "sglang #31218: page numbers where slots are meant",
        changing(dst_indices=lambda given: given["dst_indices"] // given["page_size"]),
    ),
    Mutant(
        "strided indices read as packed",
        DIRECT,
        ANYWHERE,
        "indices are read by address, one behind the other, whatever their stride is",
        items(read_as_packed),
    ),
    Mutant("last page left out", DIRECT, LOST, "a loop that ends one page early", items(_last_page)),
    Mutant(
        "indices crossed",
        DIRECT,
        ANYWHERE,
        "source slots are written, destination slots read",
        changing(src_indices=lambda given: given["dst_indices"], dst_indices=lambda given: given["src_indices"]),
    ),
    Mutant(
        "V as wide as K",
        DIRECT,
        (*LOST, "RuntimeError"),
        "sglang #26734: V is copied with K's width",
        lambda: _as_wide_as_k,
    ),
    Mutant(
        "V at the stride of K",
        DIRECT,
        MISPLACED,
        "sglang #26734: V is read at K's row stride",
        lambda: _at_the_stride_of_k,
    ),
    Mutant(
        "sources back to front",
        RUNS + STORE,
        (*MISPLACED, "RuntimeError"),
        "the list of layers is reversed",
        _sources(lambda tensors: tensors[::-1]),
    ),
    Mutant(
        "K and V in turn",
        RUNS,
        (*MISPLACED, "RuntimeError"),
        "the list is K of all layers, then V",
        _sources(lambda tensors: [*tensors[::2], *tensors[1::2]]),
    ),
    Mutant(
        "one source for all",
        RUNS + STORE,
        (*MISPLACED, "RuntimeError"),
        "the list of sources is not advanced",
        _sources(lambda tensors: tensors[:1] * len(tensors)),
    ),
    Mutant(
        "layer of the first for all",
        LOAD,
        LOST,
        "the layer is not counted up along the list",
        lambda: _layer_of_the_first,
    ),
    Mutant("layer ignored", LOAD, LOST, "sglang #8915, in the copies by page", changing(layer_id=lambda given: 0)),
    Mutant(
        "values for bytes", DIRECT, MISPLACED, "NaN payloads do not survive a conversion", _each_source(_through_float)
    ),
    Mutant(
        "strides ignored",
        RUNS,
        MISPLACED,
        "LMCache #2403: a view of a wider pool is read as if packed",
        _each_source(_packed),
    ),
    Mutant(
        "pool's offset ignored",
        DIRECT,
        MISPLACED,
        "a view is read from the start of its storage",
        _each_source(lambda tensor: tensor.as_strided(tensor.shape, tensor.stride(), 0)),
    ),
    Mutant("nothing written", DIRECT, ("vacuous",), "an empty batch of copies", lambda: lambda kernel, given: None),
    Mutant(
        "same call dropped",
        LOAD + STORE,
        ("repeat", "keywords"),
        "LMCache: a transfer that was made is not made again",
        remembering(_seen),
    ),
)
