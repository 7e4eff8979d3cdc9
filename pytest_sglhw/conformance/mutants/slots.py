"""Faults in kernels that move and store slots, translate locations, and quantise KV4."""

# ruff: noqa: ARG005 (every change and every formula is called alike)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.families import e2m1
from pytest_sglhw.conformance.mutants.launched import LOST, MISPLACED
from pytest_sglhw.conformance.mutants.planting import Given, Mutant, changing

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_sglhw.conformance.family import KernelFunction
    from pytest_sglhw.conformance.mutants.planting import Fault


def _result(change: Callable[[Any], Any]) -> Callable[[], Fault]:
    return lambda: lambda kernel, given: change(kernel(**given))


def _one_by_one(kernel: KernelFunction, given: Given) -> None:
    for target, source in zip(given["tgt_loc"].split(1), given["src_loc"].split(1), strict=True):
        kernel(**{**given, "tgt_loc": target, "src_loc": source})


def _chunks(size: int) -> Callable[[], Fault]:
    def fault(kernel: KernelFunction, given: Given) -> None:
        for target, source in zip(given["tgt_loc"].split(size), given["src_loc"].split(size), strict=True):
            kernel(**{**given, "tgt_loc": target, "src_loc": source})

    return lambda: fault


def _padding_stored(kernel: KernelFunction, given: Given) -> None:
    kernel(**given)
    for row, slot in enumerate(given["indices"].tolist()):
        if slot == 0:
            for part in "kv":
                given[f"{part}_cache"].view(torch.uint8)[0] = given[part].view(torch.uint8)[row]


def _latent_padding_stored(kernel: KernelFunction, given: Given) -> None:
    kernel(**given)
    width = given["nope"].shape[-1]
    for row, slot in enumerate(given["loc"].tolist()):
        if slot == 0:
            cache = given["kv_buffer"][..., :width]
            cache.view(torch.uint8)[0] = given["nope"].view(torch.uint8)[row]


def _rope_left_out(kernel: KernelFunction, given: Given) -> None:
    width = given["nope"].shape[-1]
    kernel(**{**given, "kv_buffer": given["kv_buffer"][..., :width], "rope": None})


def _last_slot_for_padding(kernel: KernelFunction, given: Given) -> None:
    pages, page = given["key_cache"].shape[:2]
    kernel(
        **{**given, "slots": given["slots"].where(given["slots"] >= 0, pages * page - 1)}
        if given.get("second") is None
        else given
    )


def _packed_indices(kernel: KernelFunction, given: Given) -> None:
    indices = given["indices"]
    kept = indices.as_strided(indices.shape, (1,))
    kernel(**{**given, "indices": kept.where(kept > 0, 0)})


def _ties_away(kernel: KernelFunction, given: Given) -> Any:  # noqa: ARG001 - another rule instead of the right one
    return e2m1.quantize(given["values"], ties="away")


def _nibbles(payload: torch.Tensor) -> torch.Tensor:
    return (payload >> 4) | (payload << 4)


def _zero_unsigned(kernel: KernelFunction, given: Given) -> Any:
    return kernel(values=given["values"].where(given["values"] != 0, 0.0))


def _locations_packed(kernel: KernelFunction, given: Given) -> Any:
    locations = given["locations"]
    packed = locations.as_strided(locations.shape, (1,))
    return kernel(**{**given, "locations": packed})


_SLOTS = (
    Mutant(
        "slots crossed",
        ("copy_all_layer_kv_cache_cpu", "move_kv_cache"),
        (*MISPLACED, "vacuous"),
        "targets and sources exchanged",
        changing(tgt_loc=lambda given: given["src_loc"], src_loc=lambda given: given["tgt_loc"]),
    ),
    Mutant(
        "slots one by one",
        ("copy_all_layer_kv_cache_cpu", "move_kv_cache"),
        (*MISPLACED, "vacuous"),
        "writes before all reads: overlapping moves",
        lambda: _one_by_one,
    ),
    Mutant(
        "chunks of 256 slots",
        ("move_kv_cache",),
        (*MISPLACED, "vacuous"),
        "sglang: not safe for overlap across chunks",
        _chunks(256),
    ),
    Mutant(
        "first row size for all",
        ("copy_all_layer_kv_cache_cpu",),
        (*MISPLACED, "vacuous"),
        "sglang #26734: V moved with K's stride",
        changing(strides=lambda given: given["strides"][:1].repeat(len(given["strides"]))),
    ),
    Mutant(
        "last buffer left out",
        ("copy_all_layer_kv_cache_cpu",),
        LOST,
        "a table that is one too short",
        changing(data_ptrs=lambda given: given["data_ptrs"][:-1], strides=lambda given: given["strides"][:-1]),
    ),
    Mutant(
        "slots of two types taken",
        ("copy_all_layer_kv_cache_cpu",),
        ("errors",),
        "slots of 4 bytes are read as 8",
        changing(src_loc=lambda given: given["src_loc"].to(given["tgt_loc"].dtype)),
    ),
    Mutant(
        "scales stay behind",
        ("move_kv_cache",),
        ("reference",),
        "sglang #15108: FP4 payload moves without its scales",
        changing(k_scales=lambda given: (), v_scales=lambda given: ()),
    ),
    Mutant(
        "V scales stay behind",
        ("move_kv_cache",),
        ("reference",),
        "sglang #15108, for V alone",
        changing(v_scales=lambda given: ()),
    ),
    Mutant(
        "padding stored",
        ("store_cache",),
        ("untouched",),
        "sglang #32477: padding rows reach slot 0",
        lambda: _padding_stored,
    ),
    Mutant(
        "K and V crossed",
        ("store_cache",),
        (*MISPLACED, "RuntimeError"),
        "caches exchanged",
        changing(k=lambda given: given["v"], v=lambda given: given["k"]),
    ),
    Mutant(
        "strided slots read as packed",
        ("store_cache",),
        (*MISPLACED, "vacuous"),
        "the index stride is ignored",
        lambda: _packed_indices,
    ),
    Mutant(
        "padding stored",
        ("set_mla_kv_buffer",),
        ("untouched",),
        "sglang #33816: slot 0 written without a rope part",
        lambda: _latent_padding_stored,
    ),
    Mutant("rope left out", ("set_mla_kv_buffer",), LOST, "only the latent part is stored", lambda: _rope_left_out),
    Mutant(
        "padding goes to the last slot",
        ("reshape_and_cache_flash",),
        ("untouched", "reference"),
        "slot -1 counts from the end",
        lambda: _last_slot_for_padding,
    ),
    Mutant(
        "padding goes to row 0",
        ("translate_padded_hisparse_locations",),
        ("reference",),
        "negative locations are clamped",
        changing(locations=lambda given: given["locations"].clamp(min=0)),
    ),
    Mutant(
        "rows of 64 bits always",
        ("translate_padded_hisparse_locations",),
        ("reference",),
        "the result's dtype is fixed",
        _result(torch.Tensor.long),
    ),
    Mutant(
        "strided locations read as packed",
        ("translate_padded_hisparse_locations",),
        ("reference",),
        "the stride is ignored",
        lambda: _locations_packed,
    ),
)

_FP4 = (
    Mutant(
        "ties away from zero",
        ("fp4_mx_block16_quantize",),
        ("reference",),
        "aiter #3992: >= where ties go to even",
        lambda: _ties_away,
    ),
    Mutant(
        "nibbles exchanged",
        ("fp4_mx_block16_quantize",),
        ("reference",),
        "the even value in the high nibble",
        _result(lambda result: (_nibbles(result[0]), result[1])),
    ),
    Mutant(
        "-0.0 lost",
        ("fp4_mx_block16_quantize",),
        ("reference",),
        "the sign is that of a comparison",
        lambda: _zero_unsigned,
    ),
    Mutant(
        "scale one power too small",
        ("fp4_mx_block16_quantize",),
        ("reference",),
        "the exponent is rounded down",
        _result(lambda result: (result[0], result[1] - 1)),
    ),
    Mutant(
        "scales of the block before",
        ("fp4_mx_block16_quantize",),
        ("reference",),
        "vLLM #50084: scales in another order",
        _result(lambda result: (result[0], result[1].roll(1, -1))),
    ),
    Mutant(
        "nibbles exchanged",
        ("fp4_mx_block16_dequantize",),
        ("reference",),
        "the even value in the high nibble",
        changing(payload=lambda given: _nibbles(given["payload"])),
    ),
    Mutant(
        "scales of the block before",
        ("fp4_mx_block16_dequantize",),
        ("reference",),
        "vLLM #50084: scales in another order",
        changing(scales=lambda given: given["scales"].roll(1, -1)),
    ),
    Mutant(
        "sign lost",
        ("fp4_mx_block16_dequantize",),
        ("reference",),
        "bit 3 is masked",
        changing(payload=lambda given: given["payload"] & 0x77),
    ),
)

MUTANTS = (*_SLOTS, *_FP4)
