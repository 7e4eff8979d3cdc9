"""What the faults of the kernels over addresses do."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.mutants.planting import Given, items, sides

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_sglhw.conformance.family import KernelFunction
    from pytest_sglhw.conformance.mutants.planting import Fault, Geometry


def layers(given: Given) -> int:
    name = next(name for name in given if name.endswith("layout_dim"))
    return int(given[name] // given["item_size"])


def tables(change: Callable[[torch.Tensor], torch.Tensor], **numbers: Callable[[Given], Any]) -> Callable[[], Fault]:
    """Give the kernel other tables of layers."""

    def fault(kernel: KernelFunction, given: Given) -> Any:
        tables = {name: change(value) for name, value in given.items() if name.endswith("layers") and _many(value)}
        return kernel(**{**given, **tables, **{name: number(given) for name, number in numbers.items()}})

    return lambda: fault


def _many(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and len(value) > 1


def kv(source: str, destination: str) -> Callable[[], Fault]:
    """Give V the pools of K (``k``) or its own (``v``), one letter for each side."""

    def fault(kernel: KernelFunction, given: Given) -> Any:
        (k_source, k_destination), (v_source, v_destination) = sides(given)
        takes = {v_source: k_source if source == "k" else v_source}
        takes[v_destination] = k_destination if destination == "k" else v_destination
        return kernel(**{**given, **{name: given[other] for name, other in takes.items()}})

    return lambda: fault


def crossed(given_names: int) -> Callable[[], Fault]:
    """Exchange the pools of K and V on one side: 0 the sources, 1 the destinations."""

    def fault(kernel: KernelFunction, given: Given) -> Any:
        k, v = (pair[given_names] for pair in sides(given))
        return kernel(**{**given, k: given[v], v: given[k]})

    return lambda: fault


def v_from_layer_1(kernel: KernelFunction, given: Given) -> Any:
    (k, _), (v, _) = sides(given)
    return kernel(**{**given, k: torch.tensor([*given[k].tolist()[:1], *given[v].tolist()[1:]], dtype=torch.uint64)})


def _address(given: Given, name: str) -> int:
    pool = given[name]
    return int(pool[0]) if name.endswith("layers") else int(pool.data_ptr())


def _flip(given: Given, name: str, byte: int) -> None:
    """Spoil one byte of a pool (of its first layer)."""
    at = ctypes.c_uint8.from_address(_address(given, name) + byte)
    at.value ^= 1


def after_the_last(given: Given) -> None:
    if given["dst_indices"].numel():
        name = next(sides(given))[1]
        _flip(given, name, (int(given["dst_indices"].max()) + 1) * given["item_size"])


def before_the_pool(given: Given) -> None:
    _flip(given, next(sides(given))[1], -1)


def exchanged(given: Given) -> None:
    for source, _ in sides(given):
        for token in given["src_indices"].tolist()[:1]:
            _flip(given, source, token * given["item_size"])


def row_0_of_nothing(kernel: KernelFunction, given: Given) -> None:
    zero = torch.zeros(1, dtype=torch.int64)
    nothing = given["src_indices"].numel() == 0
    kernel(**{**given, **({"src_indices": zero, "dst_indices": zero} if nothing else {})})


def divides_by_nothing(kernel: KernelFunction, given: Given) -> None:
    1 // given["src_indices"].numel()
    kernel(**given)


def _unlike(values: torch.Tensor) -> torch.Tensor:
    """Where each value of a list stands first."""
    first: dict[int, int] = {}
    for at, value in enumerate(values.tolist()):
        first.setdefault(value, at)
    return torch.tensor(list(first.values()), dtype=torch.int64)


def each_source_once(kernel: KernelFunction, given: Given) -> None:
    keep = _unlike(given["src_indices"])
    kernel(**{**given, **{name: given[name][keep] for name in ("src_indices", "dst_indices")}})


def converted(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Fault]:
    """Give the kernel sources whose floating point values have gone through arithmetic."""

    def fault(kernel: KernelFunction, given: Given) -> Any:
        changed = {name: change(given[name]) for name, _ in sides(given) if given[name].dtype.is_floating_point}
        return kernel(**{**given, **changed})

    return lambda: fault


def through_float(values: torch.Tensor) -> torch.Tensor:
    return values.double().to(values.dtype)


def plus_zero(values: torch.Tensor) -> torch.Tensor:
    return values + 0.0 if values.itemsize > 1 else values


def without_slot_0(kernel: KernelFunction, given: Given) -> None:
    keep = given["src_indices"] != 0
    kernel(**{**given, **{name: given[name][keep] for name in ("src_indices", "dst_indices")}})


def pages_of_layers(at: Geometry, layer: int, token: int, head: int) -> int:  # noqa: ARG001 - a formula's arguments
    page, slot = divmod(token, 2)
    return ((page * at.layers + layer) * 2 + slot) * at.item


def layer_first(at: Geometry, layer: int, token: int, head: int) -> int:  # noqa: ARG001 - a formula's arguments
    return (layer * at.tokens + token) * at.item


def layers_before_slots(at: Geometry, layer: int, token: int, head: int) -> int:
    page, slot = divmod(token, at.page)
    return (((page * at.heads + head) * at.layers + layer) * at.page + slot) * at.head


def written_to_a_copy(kernel: KernelFunction, given: Given) -> None:
    kernel(**{**given, **{name: given[name].clone() for _, name in sides(given)}})


def nothing(kernel: KernelFunction, given: Given) -> None:  # noqa: ARG001 - that is the fault
    return


def warps(given: Given) -> int:
    """The warps of a block: the default where a call names none, as for the blocks."""
    return int(given.get("num_warps_per_block", 32))


def launch(given: Given) -> int:
    return int(given.get("block_quota") or 2) * warps(given)


def all_but_last_if(is_lost: Callable[[Given], bool]) -> Callable[[], Fault]:
    return items(lambda indices, given: indices[:-1] if is_lost(given) else indices)


def cached_indices(before: Given, given: Given) -> Given | None:
    same = all(_same_pool(before[name], given[name]) for pair in sides(given) for name in pair)
    return {name: before[name][: len(given[name])] for name in ("src_indices", "dst_indices")} if same else None


def _same_pool(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(one.data_ptr() == other.data_ptr() and one.shape == other.shape)


def way_back(before: Given, given: Given) -> Given | None:
    source, destination = next(sides(given))
    return {} if _same_pool(before[destination], given[source]) else None
