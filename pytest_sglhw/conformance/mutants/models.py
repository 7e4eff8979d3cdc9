"""Plain kernels in which faults are planted, for families that the provider ``torch`` does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_sglhw.conformance.families import e2m1

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def move_kv_cache(
    k_buffers: Sequence[Tensor],
    v_buffers: Sequence[Tensor],
    tgt_loc: Tensor,
    src_loc: Tensor,
    k_scales: Sequence[Tensor] = (),
    v_scales: Sequence[Tensor] = (),
) -> None:
    """Move slots within every buffer, all reads before the writes."""
    for buffer in (*k_buffers, *v_buffers, *k_scales, *v_scales):
        rows = buffer.view(torch.uint8)
        rows[tgt_loc.long()] = rows[src_loc.long()]


def store_cache(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, indices: Tensor) -> None:
    """Store rows in their slots; slot 0 takes padding, which is left out."""
    kept = indices != 0
    for rows, cache in ((k, k_cache), (v, v_cache)):
        cache.view(torch.uint8)[indices[kept].long()] = rows.view(torch.uint8)[kept]


def set_mla_kv_buffer(kv_buffer: Tensor, loc: Tensor, nope: Tensor, rope: Tensor | None) -> None:
    """Store rows of two parts; slot 0 takes padding, which is left out."""
    rows = nope if rope is None else torch.cat((nope.view(torch.uint8), rope.view(torch.uint8)), dim=-1)
    kept = loc != 0
    kv_buffer.view(torch.uint8)[loc[kept].long()] = rows.view(torch.uint8)[kept]


def reshape_and_cache_flash(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor, second: Tensor | None = None
) -> None:
    """Store rows in paged caches; a negative slot is padding, which is left out."""
    kept = slots >= 0
    places = slots[kept].long() if second is None else second[slots[kept].long()].long()
    page = key_cache.shape[1]
    for rows, cache in ((key, key_cache), (value, value_cache)):
        cache.view(torch.uint8)[places // page, places % page] = rows.view(torch.uint8)[kept]


def fp4_mx_block16_quantize(values: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise ``[B, M, N]`` to payload and scales."""
    return e2m1.quantize(values)


def fp4_mx_block16_dequantize(payload: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Undo it."""
    return e2m1.dequantize(payload, scales).to(dtype)


def translate_padded_hisparse_locations(mapping: Tensor, locations: Tensor) -> Tensor:
    """Map token slots to physical rows; a negative location is padding, which stays."""
    dtype = torch.promote_types(mapping.dtype, locations.dtype)
    return torch.where(locations < 0, locations.to(dtype), mapping[locations.clamp(min=0).long()].to(dtype))
