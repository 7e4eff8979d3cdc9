"""Faults in what the 13 transfer kernels refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.mutants.direct import DIRECT
from pytest_sglhw.conformance.mutants.launched import ALL_LAYERS, EVERY, LAYER
from pytest_sglhw.conformance.mutants.planting import Given, Mutant, changing, is_regular

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_sglhw.conformance.family import KernelFunction
    from pytest_sglhw.conformance.mutants.planting import Fault


def _any(kernel: KernelFunction, given: Given, **instead: Any) -> None:
    kernel(**{**given, **instead})


def _int32_taken(kernel: KernelFunction, given: Given) -> None:
    _any(kernel, given, src_indices=given["src_indices"].long(), dst_indices=given["dst_indices"].long())


def _shorter_taken(kernel: KernelFunction, given: Given) -> None:
    least = min(len(given["src_indices"]), len(given["dst_indices"]))
    _any(kernel, given, src_indices=given["src_indices"][:least], dst_indices=given["dst_indices"][:least])


def _other_error(error: type[Exception] | None, text: str | None) -> Callable[[], Fault]:
    def fault(kernel: KernelFunction, given: Given) -> None:
        try:
            kernel(**given)
        except RuntimeError as refusal:
            if error:
                raise error(text or str(refusal)) from None

    return lambda: fault


def _written_first(kernel: KernelFunction, given: Given) -> None:
    if not is_regular(given) and given["src_indices"].shape != given["dst_indices"].shape:
        _any(kernel, given, dst_indices=given["src_indices"])
    kernel(**given)


def _fewer_layers_taken(kernel: KernelFunction, given: Given) -> None:
    tables = [value for name, value in given.items() if name.endswith("_layers") and name != "num_layers"]
    _any(kernel, given, num_layers=min(given["num_layers"], *(len(table) for table in tables)))


def _int64_table_taken(kernel: KernelFunction, given: Given) -> None:
    tables = {name: value.view(torch.uint64) for name, value in given.items()
              if isinstance(value, torch.Tensor) and name.endswith("_layers")}  # fmt: skip
    _any(kernel, given, **tables)


MUTANTS = (
    Mutant(
        "int32 indices taken", EVERY + DIRECT, ("errors",), "indices of 4 bytes are read as 8", lambda: _int32_taken
    ),
    Mutant("unequal index sets taken", EVERY + DIRECT, ("errors",), "the longer side is cut", lambda: _shorter_taken),
    Mutant(
        "rows of 4 modulo 8 bytes taken",
        EVERY,
        ("errors",),
        "the size is rounded down to words",
        changing(item_size=lambda given: given["item_size"] // 8 * 8),
    ),
    Mutant(
        "layers beyond the table",
        ALL_LAYERS,
        ("errors",),
        "the number of layers is not compared with the table",
        lambda: _fewer_layers_taken,
    ),
    Mutant("int64 table taken", ALL_LAYERS, ("errors",), "addresses of any 64-bit type", lambda: _int64_table_taken),
    Mutant(
        "page size 0 is 1",
        DIRECT,
        ("errors",),
        "the page size is clamped",
        changing(page_size=lambda given: given["page_size"] if given["page_size"] > 0 else 1),
    ),
    Mutant(
        "another class of error",
        EVERY + DIRECT,
        ("errors",),
        "a Python check in front of the kernel",
        _other_error(ValueError, None),
    ),
    Mutant(
        "another text",
        EVERY + DIRECT,
        ("errors",),
        "sglang #28534: callers match the text",
        _other_error(RuntimeError, "invalid argument"),
    ),
    Mutant(
        "error swallowed",
        EVERY + DIRECT,
        ("errors",),
        "sglang #26301: the return code is not read",
        _other_error(None, None),
    ),
    Mutant("refused after writing", LAYER, ("errors",), "a check behind the launch", lambda: _written_first),
)
