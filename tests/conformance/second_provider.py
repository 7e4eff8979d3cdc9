"""A second implementation of the 13 kernels: one ``memmove`` per row, the way the field's CUDA text reads.

It shares nothing with the kernels of ``pytest_sglhw.kvcacheio`` nor with the reference, so that nothing in the matrix
depends on ours. Slow and plain on purpose.
"""

from __future__ import annotations

import ctypes
import inspect
import sys

import torch

sglhw_device = "cpu"


def _check(src_indices, dst_indices, item_size):
    for side, indices in (("Source", src_indices), ("Destination", dst_indices)):
        if indices.dtype != torch.int64:
            raise RuntimeError(f"{side} indices must be of type long")
    if src_indices.numel() != dst_indices.numel():
        raise RuntimeError("Source and destination indices must have the same length")
    if item_size % 8:
        raise RuntimeError("Item byte size must be divisible by 8")


def _check_table(table, num_layers, what):
    if table.numel() != num_layers:
        raise RuntimeError(f"Number of layers in {what} does not match num_layers")
    if table.dtype != torch.uint64:
        raise RuntimeError(f"expected scalar type UInt64 but found {table.dtype}")


def _move(pairs, size):
    for destination, source in pairs:
        ctypes.memmove(destination, source, size)


def _lf(base, token, size):
    return base + token * size


def _pf(base, token, layer, size, layout_dim):
    return base + token * layout_dim + layer * size


def _ph(base, token, layer, head, size, layout_dim, page_size, head_num):
    page, slot = divmod(token, page_size)
    head_dim = layout_dim // head_num
    return (
        base + page * page_size * layout_dim + head * page_size * head_dim + slot * head_dim + layer * size // head_num
    )


def _pairs(src, dst):
    return list(zip(src.tolist(), dst.tolist(), strict=True))


def _per_layer(pools, src, dst, item_size):
    _check(src, dst, item_size)
    for a, b in pools:
        _move(
            ((_lf(b.data_ptr(), d, item_size), _lf(a.data_ptr(), s, item_size)) for s, d in _pairs(src, dst)), item_size
        )


def _per_layer_pf(pools, src, dst, layer, item_size, dim):
    _check(src, dst, item_size)
    for a, b in pools:
        rows = (
            (_lf(b.data_ptr(), d, item_size), _pf(a.data_ptr(), s, layer, item_size, dim)) for s, d in _pairs(src, dst)
        )
        _move(rows, item_size)


def _all_layer(pools, src, dst, item_size, num_layers, what):
    _check_table(pools[0][0], num_layers, what)
    _check(src, dst, item_size)
    for a, b in pools:
        for x, y in zip(a.tolist(), b.tolist(), strict=True):
            _move(((_lf(y, d, item_size), _lf(x, s, item_size)) for s, d in _pairs(src, dst)), item_size)


def _all_layer_pf(pools, src, dst, item_size, dim, num_layers, what):
    _check_table(pools[0][0], num_layers, what)
    _check(src, dst, item_size)
    for a, b in pools:
        for layer, x in enumerate(a.tolist()):
            rows = ((_pf(b.data_ptr(), d, layer, item_size, dim), _lf(x, s, item_size)) for s, d in _pairs(src, dst))
            _move(rows, item_size)


_K, _ONE = "source k tensor", "source tensor"


def transfer_kv_per_layer(sk, dk, sv, dv, src, dst, item_size, block_quota=2, num_warps_per_block=32):
    _per_layer(((sk, dk), (sv, dv)), src, dst, item_size)


def transfer_kv_per_layer_mla(s, d, src, dst, item_size, block_quota=None, num_warps_per_block=32):
    _per_layer(((s, d),), src, dst, item_size)


def transfer_kv_per_layer_pf_lf(sk, dk, sv, dv, src, dst, layer_id, item_size, dim, block_quota=2, warps=32):
    _per_layer_pf(((sk, dk), (sv, dv)), src, dst, layer_id, item_size, dim)


def transfer_kv_per_layer_mla_pf_lf(s, d, src, dst, layer_id, item_size, dim, block_quota=2, warps=32):
    _per_layer_pf(((s, d),), src, dst, layer_id, item_size, dim)


def transfer_kv_per_layer_ph_lf(
    sk, dk, sv, dv, src, dst, layer_id, item_size, dim, page_size, heads, quota=2, warps=32
):
    _check(src, dst, item_size)
    size = item_size // heads
    for a, b in ((sk, dk), (sv, dv)):
        for s, d in _pairs(src, dst):
            for head in range(heads):
                source = _ph(a.data_ptr(), s, layer_id, head, item_size, dim, page_size, heads)
                _move([(_lf(b.data_ptr(), d, item_size) + head * size, source)], size)


def transfer_kv_all_layer(sk, dk, sv, dv, src, dst, item_size, num_layers, block_quota=2, warps=32):
    _all_layer(((sk, dk), (sv, dv)), src, dst, item_size, num_layers, _K)


def transfer_kv_all_layer_mla(s, d, src, dst, item_size, num_layers, block_quota=2, warps=32):
    _all_layer(((s, d),), src, dst, item_size, num_layers, _ONE)


def transfer_kv_all_layer_lf_pf(sk, dk, sv, dv, src, dst, item_size, dim, num_layers, block_quota=2, warps=32):
    _all_layer_pf(((sk, dk), (sv, dv)), src, dst, item_size, dim, num_layers, _K)


def transfer_kv_all_layer_mla_lf_pf(s, d, src, dst, item_size, dim, num_layers, block_quota=2, warps=32):
    _all_layer_pf(((s, d),), src, dst, item_size, dim, num_layers, _ONE)


def transfer_kv_all_layer_lf_ph(
    sk, dk, sv, dv, src, dst, item_size, dim, num_layers, page_size, heads, quota=2, warps=32
):
    _check_table(sk, num_layers, _K)
    _check(src, dst, item_size)
    size = item_size // heads
    for a, b in ((sk, dk), (sv, dv)):
        for layer, x in enumerate(a.tolist()):
            for s, d in _pairs(src, dst):
                for head in range(heads):
                    target = _ph(b.data_ptr(), d, layer, head, item_size, dim, page_size, heads)
                    _move([(target, _lf(x, s, item_size) + head * size)], size)


def _check_direct(src, dst, page_size):
    if src.numel() != dst.numel():
        raise RuntimeError("Source and destination indices must have the same length")
    if page_size <= 0:
        raise RuntimeError("Page size must be positive")
    if src.numel() % page_size:
        raise RuntimeError("Source indices size must be divisible by page size")
    for indices in (src, dst):
        if indices.dtype != torch.int64:
            raise RuntimeError("expected scalar type Long but found Int")


def transfer_kv_direct(src_layers, dst_layers, src, dst, page_size):
    if len(src_layers) != len(dst_layers):
        raise RuntimeError("Source and destination layers must have the same number of layers")
    _check_direct(src, dst, page_size)
    for a, b in zip(src_layers, dst_layers, strict=True):
        for s, d in _pairs(src, dst):
            b[d].copy_(a[s])


def transfer_kv_per_layer_direct_pf_lf(src_ptrs, dst_ptrs, src, dst, layer_id, page_size):
    _check_direct(src, dst, page_size)
    count = len(dst_ptrs) // len(src_ptrs)
    for part, pool in enumerate(src_ptrs):
        for at in range(count):
            for s, d in _pairs(src[::page_size], dst[::page_size]):
                dst_ptrs[part * count + at][d : d + page_size].copy_(pool[s // page_size, layer_id + at])


def transfer_kv_all_layer_direct_lf_pf(src_ptrs, dst_ptrs, src, dst, page_size):
    _check_direct(src, dst, page_size)
    count = len(src_ptrs) // len(dst_ptrs)
    for part, pool in enumerate(dst_ptrs):
        for layer in range(count):
            for s, d in _pairs(src[::page_size], dst[::page_size]):
                pool[d // page_size, layer].copy_(src_ptrs[part * count + layer][s : s + page_size])


KERNELS = {name: value for name, value in inspect.getmembers(sys.modules[__name__]) if name.startswith("transfer_kv_")}
