"""The ten ops that upstream runs as device kernels, for CPU memory.

All take token slot indices (int64, CPU, any shape and stride, both sides of the same length) and sizes in bytes. A
``[L]`` table is a uint64 CPU tensor of the addresses of L layers, each of packed rows of ``item_size`` bytes.
``block_quota`` and ``num_warps_per_block`` shape a launch grid upstream; here they are checked and have no effect.

Source: ``sgl_kernel/kvcacheio.py`` of the wheel ``sglang-kernel`` 0.4.10, ``sgl-kernel/csrc/kvcacheio/transfer.cu``.
All raise ``RuntimeError`` for what upstream refuses, ``IndexError`` for a slot or layer out of range; docs/kernels.md
has the texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_sglhw.kvcacheio.checks import check_heads, check_launch, check_layers, require
from pytest_sglhw.kvcacheio.layouts import layer_first, page_first, page_head
from pytest_sglhw.kvcacheio.transfer import destination, packed_pool, source, table, transfer, whole_pool

if TYPE_CHECKING:
    from torch import Tensor

#: Upstream's default depends on the build of torch in the same way.
_WARPS = 16 if torch.version.hip else 32


def transfer_kv_per_layer(
    src_k: Tensor,
    dst_k: Tensor,
    src_v: Tensor,
    dst_v: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    item_size: int,
    block_quota: int = 2,
    num_warps_per_block: int = _WARPS,
) -> None:
    """Copy tokens of one layer's K and V, layer_first to layer_first.

    Args:
        src_k: ``[T, H, D]`` of any dtype, contiguous, ``item_size`` bytes for each token.
        dst_k: as ``src_k``; T may differ.
        src_v: as ``src_k``.
        dst_v: as ``dst_k``.
        src_indices: int64, slots to read.
        dst_indices: int64, slots to write.
        item_size: bytes of a token, a multiple of 8.
        block_quota: no effect.
        num_warps_per_block: no effect.
    """
    slots = check_launch(src_indices, dst_indices, item_size, block_quota, num_warps_per_block)
    layout = layer_first(item_size)
    src = source(layout, packed_pool, src_k=src_k, src_v=src_v)
    dst = destination(layout, packed_pool, dst_k=dst_k, dst_v=dst_v)
    transfer(src, dst, slots, item_size)


def transfer_kv_per_layer_pf_lf(
    src_k: Tensor,
    dst_k: Tensor,
    src_v: Tensor,
    dst_v: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    layer_id: int,
    item_size: int,
    src_layout_dim: int,
    block_quota: int = 2,
    num_warps_per_block: int = _WARPS,
) -> None:
    """Copy tokens of one layer's K and V from page_first pools to a layer.

    Args:
        src_k: ``[T, L, H, D]``, the whole pool; its tokens are ``src_layout_dim`` bytes apart.
        dst_k: ``[T, H, D]``, contiguous.
        src_v: as ``src_k``.
        dst_v: as ``dst_k``.
        src_indices: int64, slots to read.
        dst_indices: int64, slots to write.
        layer_id: layer to read, 0 to L - 1.
        item_size: bytes of a token in one layer, a multiple of 8.
        src_layout_dim: bytes of a token in all layers.
        block_quota: no effect.
        num_warps_per_block: no effect.
    """
    slots = check_launch(src_indices, dst_indices, item_size, block_quota, num_warps_per_block)
    check_layers(layer_id, 1, item_size, src_layout_dim)
    layout = page_first(item_size, src_layout_dim, [layer_id])
    src = source(layout, whole_pool, src_k=src_k, src_v=src_v)
    dst = destination(layer_first(item_size), packed_pool, dst_k=dst_k, dst_v=dst_v)
    transfer(src, dst, slots, item_size)


def transfer_kv_per_layer_ph_lf(
    src_k: Tensor,
    dst_k: Tensor,
    src_v: Tensor,
    dst_v: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    layer_id: int,
    item_size: int,
    src_layout_dim: int,
    page_size: int,
    head_num: int,
    block_quota: int = 2,
    num_warps_per_block: int = _WARPS,
) -> None:
    """Copy tokens of one layer's K and V from page_head pools to a layer.

    A head's bytes need not be a multiple of 8: all are copied. Upstream drops the rest.

    Args:
        src_k: ``[T / P, H, P, L, D]``, the whole pool.
        dst_k: ``[T, H, D]``, contiguous.
        src_v: as ``src_k``.
        dst_v: as ``dst_k``.
        src_indices: int64, slots to read.
        dst_indices: int64, slots to write.
        layer_id: layer to read, 0 to L - 1.
        item_size: bytes of a token in one layer, a multiple of 8 and of ``head_num``.
        src_layout_dim: bytes of a token in all layers, a multiple of ``head_num``.
        page_size: P, tokens of a page.
        head_num: H.
        block_quota: no effect.
        num_warps_per_block: no effect.
    """
    slots = check_launch(src_indices, dst_indices, item_size, block_quota, num_warps_per_block)
    check_heads(item_size, src_layout_dim, page_size, head_num)
    check_layers(layer_id, 1, item_size, src_layout_dim)
    layout = page_head(item_size, src_layout_dim, [layer_id], page_size, head_num)
    src = source(layout, whole_pool, src_k=src_k, src_v=src_v)
    dst = destination(layer_first(item_size, head_num), packed_pool, dst_k=dst_k, dst_v=dst_v)
    transfer(src, dst, slots, item_size, head_num)


def transfer_kv_all_layer(
    src_k_layers: Tensor,
    dst_k_layers: Tensor,
    src_v_layers: Tensor,
    dst_v_layers: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    item_size: int,
    num_layers: int,
    block_quota: int = 2,
    num_warps_per_block: int = _WARPS,
) -> None:
    """Copy tokens of all layers' K and V between layers given by tables of addresses.

    Args:
        src_k_layers: ``[num_layers]`` table.
        dst_k_layers: table of ``num_layers`` or more.
        src_v_layers: as ``dst_k_layers``.
        dst_v_layers: as ``dst_k_layers``.
        src_indices: int64, slots to read. Nothing tells how long a layer behind an address is: see that they exist.
        dst_indices: int64, slots to write; likewise.
        item_size: bytes of a token in one layer, a multiple of 8.
        num_layers: layers to copy.
        block_quota: no effect.
        num_warps_per_block: no effect.
    """
    _check_layer_count(src_k_layers, num_layers, "source k tensor")
    slots = check_launch(src_indices, dst_indices, item_size, block_quota, num_warps_per_block)
    src = source(layer_first(item_size), table(num_layers), src_k_layers=src_k_layers, src_v_layers=src_v_layers)
    dst = destination(layer_first(item_size), table(num_layers), dst_k_layers=dst_k_layers, dst_v_layers=dst_v_layers)
    transfer(src, dst, slots, item_size)


def transfer_kv_all_layer_lf_pf(
    src_k_layers: Tensor,
    dst_k: Tensor,
    src_v_layers: Tensor,
    dst_v: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    item_size: int,
    dst_layout_dim: int,
    num_layers: int,
    block_quota: int = 2,
    num_warps_per_block: int = _WARPS,
) -> None:
    """Copy tokens of all layers' K and V from a table of layers to page_first pools.

    Args:
        src_k_layers: ``[num_layers]`` table.
        dst_k: ``[T, L, H, D]``, the whole pool; its tokens are ``dst_layout_dim`` bytes apart.
        src_v_layers: table of ``num_layers`` or more.
        dst_v: as ``dst_k``.
        src_indices: int64, slots to read; only their sign can be checked.
        dst_indices: int64, slots to write.
        item_size: bytes of a token in one layer, a multiple of 8.
        dst_layout_dim: bytes of a token in all layers.
        num_layers: layers to copy, to layers 0 to ``num_layers - 1`` of the pool.
        block_quota: no effect.
        num_warps_per_block: no effect.
    """
    _check_layer_count(src_k_layers, num_layers, "source k tensor")
    slots = check_launch(src_indices, dst_indices, item_size, block_quota, num_warps_per_block)
    check_layers(0, num_layers, item_size, dst_layout_dim)
    src = source(layer_first(item_size), table(num_layers), src_k_layers=src_k_layers, src_v_layers=src_v_layers)
    layout = page_first(item_size, dst_layout_dim, range(num_layers))
    transfer(src, destination(layout, whole_pool, dst_k=dst_k, dst_v=dst_v), slots, item_size)


def transfer_kv_all_layer_lf_ph(
    src_k_layers: Tensor,
    dst_k: Tensor,
    src_v_layers: Tensor,
    dst_v: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    item_size: int,
    dst_layout_dim: int,
    num_layers: int,
    page_size: int,
    head_num: int,
    block_quota: int = 2,
    num_warps_per_block: int = _WARPS,
) -> None:
    """Copy tokens of all layers' K and V from a table of layers to page_head pools.

    A head's bytes need not be a multiple of 8: all are copied. Upstream drops the rest.

    Args:
        src_k_layers: ``[num_layers]`` table.
        dst_k: ``[T / P, H, P, L, D]``, the whole pool.
        src_v_layers: table of ``num_layers`` or more.
        dst_v: as ``dst_k``.
        src_indices: int64, slots to read; only their sign can be checked.
        dst_indices: int64, slots to write.
        item_size: bytes of a token in one layer, a multiple of 8 and of ``head_num``.
        dst_layout_dim: bytes of a token in all layers, a multiple of ``head_num``.
        num_layers: layers to copy, to layers 0 to ``num_layers - 1`` of the pool.
        page_size: P, tokens of a page.
        head_num: H.
        block_quota: no effect.
        num_warps_per_block: no effect.
    """
    _check_layer_count(src_k_layers, num_layers, "source k tensor")
    slots = check_launch(src_indices, dst_indices, item_size, block_quota, num_warps_per_block)
    check_heads(item_size, dst_layout_dim, page_size, head_num)
    check_layers(0, num_layers, item_size, dst_layout_dim)
    src = source(
        layer_first(item_size, head_num), table(num_layers), src_k_layers=src_k_layers, src_v_layers=src_v_layers
    )
    layout = page_head(item_size, dst_layout_dim, range(num_layers), page_size, head_num)
    dst = destination(layout, whole_pool, dst_k=dst_k, dst_v=dst_v)
    transfer(src, dst, slots, item_size, head_num)


def transfer_kv_per_layer_mla(
    src: Tensor,
    dst: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    item_size: int,
    block_quota: int | None = None,
    num_warps_per_block: int = _WARPS,
) -> None:
    """Copy tokens of one layer's single buffer, layer_first to layer_first.

    Args:
        src: ``[T, H, D]`` of any dtype, contiguous, ``item_size`` bytes for each token.
        dst: as ``src``; T may differ.
        src_indices: int64, slots to read.
        dst_indices: int64, slots to write.
        item_size: bytes of a token, a multiple of 8.
        block_quota: no effect.
        num_warps_per_block: no effect.
    """
    slots = check_launch(src_indices, dst_indices, item_size, block_quota, num_warps_per_block)
    layout = layer_first(item_size)
    transfer(source(layout, packed_pool, src=src), destination(layout, packed_pool, dst=dst), slots, item_size)


def transfer_kv_per_layer_mla_pf_lf(
    src: Tensor,
    dst: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    layer_id: int,
    item_size: int,
    src_layout_dim: int,
    block_quota: int | None = None,
    num_warps_per_block: int = _WARPS,
) -> None:
    """Copy tokens of one layer's single buffer from a page_first pool to a layer.

    Args:
        src: ``[T, L, H, D]``, the whole pool; its tokens are ``src_layout_dim`` bytes apart.
        dst: ``[T, H, D]``, contiguous.
        src_indices: int64, slots to read.
        dst_indices: int64, slots to write.
        layer_id: layer to read, 0 to L - 1.
        item_size: bytes of a token in one layer, a multiple of 8.
        src_layout_dim: bytes of a token in all layers.
        block_quota: no effect.
        num_warps_per_block: no effect.
    """
    slots = check_launch(src_indices, dst_indices, item_size, block_quota, num_warps_per_block)
    check_layers(layer_id, 1, item_size, src_layout_dim)
    layout = page_first(item_size, src_layout_dim, [layer_id])
    dst_side = destination(layer_first(item_size), packed_pool, dst=dst)
    transfer(source(layout, whole_pool, src=src), dst_side, slots, item_size)


def transfer_kv_all_layer_mla(
    src_layers: Tensor,
    dst_layers: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    item_size: int,
    num_layers: int,
    block_quota: int = 2,
    num_warps_per_block: int = _WARPS,
) -> None:
    """Copy tokens of all layers' single buffers between layers given by tables of addresses.

    Args:
        src_layers: ``[num_layers]`` table.
        dst_layers: table of ``num_layers`` or more.
        src_indices: int64, slots to read; only their sign can be checked.
        dst_indices: int64, slots to write; likewise.
        item_size: bytes of a token in one layer, a multiple of 8.
        num_layers: layers to copy.
        block_quota: no effect.
        num_warps_per_block: no effect.
    """
    _check_layer_count(src_layers, num_layers, "source tensor")
    slots = check_launch(src_indices, dst_indices, item_size, block_quota, num_warps_per_block)
    layout = layer_first(item_size)
    src = source(layout, table(num_layers), src_layers=src_layers)
    transfer(src, destination(layout, table(num_layers), dst_layers=dst_layers), slots, item_size)


def transfer_kv_all_layer_mla_lf_pf(
    src_layers: Tensor,
    dst: Tensor,
    src_indices: Tensor,
    dst_indices: Tensor,
    item_size: int,
    dst_layout_dim: int,
    num_layers: int,
    block_quota: int = 2,
    num_warps_per_block: int = _WARPS,
) -> None:
    """Copy tokens of all layers' single buffers from a table of layers to a page_first pool.

    Args:
        src_layers: ``[num_layers]`` table.
        dst: ``[T, L, H, D]``, the whole pool; its tokens are ``dst_layout_dim`` bytes apart.
        src_indices: int64, slots to read; only their sign can be checked.
        dst_indices: int64, slots to write.
        item_size: bytes of a token in one layer, a multiple of 8.
        dst_layout_dim: bytes of a token in all layers.
        num_layers: layers to copy, to layers 0 to ``num_layers - 1`` of the pool.
        block_quota: no effect.
        num_warps_per_block: no effect.
    """
    _check_layer_count(src_layers, num_layers, "source tensor")
    slots = check_launch(src_indices, dst_indices, item_size, block_quota, num_warps_per_block)
    check_layers(0, num_layers, item_size, dst_layout_dim)
    src = source(layer_first(item_size), table(num_layers), src_layers=src_layers)
    layout = page_first(item_size, dst_layout_dim, range(num_layers))
    transfer(src, destination(layout, whole_pool, dst=dst), slots, item_size)


def _check_layer_count(table: Tensor, num_layers: int, name: str) -> None:
    require(table.size(0) == num_layers, f"Number of layers in {name} does not match num_layers")
