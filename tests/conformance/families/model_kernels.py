"""Plain models of the kernels that only a GPU runs, and of SGLang's Triton kernels: loops and ``memmove``.

They share nothing with the references of the families: addresses are computed the way the CUDA and Triton sources do.
"""

from __future__ import annotations

import ctypes

import torch

sglhw_device = "cpu"


def _copy(target, source, size):
    ctypes.memmove(int(target), int(source), int(size))


def _rows(target, source, size, target_rows, source_rows, target_stride=None, source_stride=None):
    for to, fro in zip(target_rows.tolist(), source_rows.tolist(), strict=True):
        _copy(target + to * (target_stride or size), source + fro * (source_stride or size), size)


# --- slots of one pool ---


def copy_all_layer_kv_cache_tiled(data_ptrs, strides, tgt_loc, src_loc):
    for address, size in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        rows = [ctypes.string_at(address + slot * size, size) for slot in src_loc.tolist()]
        for slot, row in zip(tgt_loc.tolist(), rows, strict=True):
            ctypes.memmove(address + slot * size, row, size)


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, tgt_loc, src_loc):
    for comparison, holds in (
        ("data_ptrs.scalar_type(), at::kUInt64", data_ptrs.dtype == torch.uint64),
        ("strides.scalar_type(), at::kLong", strides.dtype == torch.int64),
        ("tgt_loc.scalar_type(), src_loc.scalar_type()", tgt_loc.dtype == src_loc.dtype),
        ("strides.numel(), num_bufs", len(strides) == len(data_ptrs)),
        ("src_loc.numel(), num_locs", len(src_loc) == len(tgt_loc)),
    ):
        if not holds:
            raise RuntimeError(f"CHECK_EQ({comparison}) failed.")
    copy_all_layer_kv_cache_tiled(data_ptrs, strides, tgt_loc, src_loc)


def move_kv_cache(k_buffers, v_buffers, tgt_loc, src_loc, k_scales=(), v_scales=()):
    buffers = [*k_buffers, *v_buffers, *k_scales, *v_scales]
    table = torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64)
    sizes = torch.tensor([buffer.stride(0) * buffer.element_size() for buffer in buffers])
    copy_all_layer_kv_cache_tiled(table, sizes, tgt_loc, src_loc)


# --- stores ---


def _store(pairs, indices, skip=0):
    for cache, rows in pairs:
        for row, slot in enumerate(indices.tolist()):
            if slot != skip:
                cache.view(torch.uint8)[slot] = rows.view(torch.uint8)[row]


def set_kv_buffer(k, v, k_cache, v_cache, indices):
    _store([(k_cache, k), (v_cache, v)], indices)


store_cache = set_kv_buffer


def set_kv_buffer_scaled(k, v, indices, k_scale, v_scale, slots):
    caches = []
    for rows, scale in ((k, k_scale), (v, v_scale)):
        cache = torch.zeros((slots, *rows.shape[1:]), dtype=torch.float8_e4m3fn)
        _store([(cache, (rows / (scale or 1.0)).to(torch.float8_e4m3fn))], indices)
        caches.append(cache.view(torch.uint8))
    return tuple(caches)


def set_mla_kv_buffer(kv_buffer, loc, nope, rope):
    rows = nope if rope is None else torch.cat((nope.view(torch.uint8), rope.view(torch.uint8)), dim=-1)
    _store([(kv_buffer, rows)], loc)


def reshape_and_cache_flash(key, value, key_cache, value_cache, slots, second=None):
    page = key_cache.shape[1]
    for cache, rows in ((key_cache, key), (value_cache, value)):
        for row, slot in enumerate(slots.tolist()):
            if slot >= 0:
                real = slot if second is None else int(second[slot])
                cache.view(torch.uint8)[real // page, real % page] = rows.view(torch.uint8)[row]


def copy_mla_rows_into_pack(addresses, rows, pack, widths, strides):
    at = pack.data_ptr()
    for address, width, stride in zip(addresses, widths, strides, strict=True):
        for row in rows.tolist():
            _copy(at, address + row * stride, width)
            at += width


def store_nvfp4_kv_cache(k, v, ks, vs, loc, k_dst, v_dst, k_lin, v_lin, k_nat, v_nat, page_size):
    if k_lin is None and k_nat is None:
        raise ValueError("At least one NVFP4 scale layout must be selected.")
    if (k_lin is None) != (v_lin is None):
        raise ValueError("Linear NVFP4 K/V scale buffers must be provided together.")
    if k_nat is not None and page_size % 4:
        raise ValueError(f"Native NVFP4 requires page_size divisible by 4, got {page_size}.")
    if len(loc) != len(k):
        raise ValueError(f"loc has {len(loc)} entries for {len(k)} KV rows.")
    for token, slot in enumerate(loc.tolist()):
        k_dst[slot], v_dst[slot] = k[token], v[token]
        if k_lin is not None:
            k_lin[slot], v_lin[slot] = ks[token], vs[token]
        if k_nat is not None:
            k_nat[slot // page_size, :, slot % page_size] = ks[token]
            _native_v(v_nat[slot // page_size], slot % page_size, vs[token])


def _native_v(page, token, scales=None):
    """Write (or read) the V scales of a token: view each four tokens as [quarter, column, lane]."""
    heads, _, width = page.shape
    lanes = page.view(heads, -1, 4, width // 4, 4)[:, token // 4, :, :, token % 4]
    if scales is None:
        return lanes.clone()
    lanes.copy_(scales.reshape(heads, 4, width // 4))
    return None


def move_nvfp4_native_scales(k_scale, v_scale, tgt_loc, src_loc):
    page = k_scale.shape[2]
    moves = list(zip(tgt_loc.tolist(), src_loc.tolist(), strict=True))
    held = [(k_scale[s // page, :, s % page].clone(), _native_v(v_scale[s // page], s % page)) for _, s in moves]
    for (target, _), (k, v) in zip(moves, held, strict=True):
        k_scale[target // page, :, target % page] = k
        _native_v(v_scale[target // page], target % page, v)


# --- between host and device ---


def _match(tensors, *dtypes):
    """Hold tensors to one length and to one of the dtypes, and to lie packed."""
    first = tensors[0]
    for tensor in tensors:
        cause = None
        if tensor.shape != first.shape:
            cause = "Size mismatch"
        elif not tensor.is_contiguous():
            cause = "Tensor is not contiguous as expected"
        elif tensor.dtype not in dtypes or tensor.dtype != first.dtype:
            cause = "DType mismatch"
        if cause:
            raise RuntimeError(f"Tensor match failed for {tensor.shape}\n- Root cause: {cause}")


def transfer_hicache_one_layer(k_dst, v_dst, idx_dst, k_src, v_src, idx_src, *, element_dim, page_size):
    for target, source in ((k_dst, k_src), (v_dst, v_src)):
        transfer_hicache_one_layer_mla(target, idx_dst, source, idx_src, element_dim=element_dim, page_size=page_size)


def transfer_hicache_one_layer_mla(dst, idx_dst, src, idx_src, *, element_dim, page_size):
    _match([idx_src, idx_dst], torch.int32, torch.int64)
    dst, src = dst.view(-1, element_dim), src.view(-1, element_dim)
    item = dst.element_size()
    _rows(
        dst.data_ptr(), src.data_ptr(), element_dim * item, idx_dst, idx_src, dst.stride(0) * item, src.stride(0) * item
    )


def transfer_hicache_all_layer(
    k_dst, v_dst, idx_dst, k_src, v_src, idx_src, *, kv_cache_src_stride_bytes, kv_cache_dst_stride_bytes, **others
):
    _match([k_src, v_src, k_dst, v_dst], torch.uint64)
    for dst, src in ((k_dst, k_src), (v_dst, v_src)):
        transfer_hicache_all_layer_mla(
            dst,
            idx_dst,
            src,
            idx_src,
            cache_src_stride_bytes=kv_cache_src_stride_bytes,
            cache_dst_stride_bytes=kv_cache_dst_stride_bytes,
            **others,
        )


def transfer_hicache_all_layer_mla(
    dst, idx_dst, src, idx_src, *, cache_src_stride_bytes, cache_dst_stride_bytes, element_size, page_size
):
    _match([src, dst], torch.uint64)
    _match([idx_src, idx_dst], torch.int32, torch.int64)
    for target, source in zip(dst.tolist(), src.tolist(), strict=True):
        _rows(target, source, element_size, idx_dst, idx_src, cache_dst_stride_bytes, cache_src_stride_bytes)


def transfer_hicache_all_layer_staged_lf_pf(k_src, v_src, src, dst, staging_k, staging_v, k_dst, v_dst, *, page_size):
    if len(src):
        _match([k_src, v_src], torch.uint64)
    transfer_hicache_all_layer_mla_staged_lf_pf(k_src, src, dst, staging_k, k_dst, page_size=page_size)
    transfer_hicache_all_layer_mla_staged_lf_pf(v_src, src, dst, staging_v, v_dst, page_size=page_size)


def transfer_hicache_all_layer_mla_staged_lf_pf(ptr_src, src_indices, dst_indices, staging, dst, *, page_size):
    row = staging[0, 0].numel() * staging.element_size()
    token_bytes = dst[0].numel() * dst.element_size()
    capacity = len(staging) // page_size
    starts = list(range(0, len(src_indices), page_size))
    for begin in range(0, len(starts), capacity):
        chunk = starts[begin : begin + capacity]
        _match([ptr_src], torch.uint64)
        _match([dst_indices[begin * page_size : (begin + len(chunk)) * page_size]], torch.int64)
        for place, start in enumerate(chunk):
            for token in range(page_size):
                for layer, address in enumerate(ptr_src.tolist()):
                    staged = staging[place * page_size + token, layer].data_ptr()
                    _copy(staged, address + (int(src_indices[start]) + token) * row, row)
        for place, start in enumerate(chunk):
            target = dst.data_ptr() + int(dst_indices[start]) * token_bytes
            _copy(target, staging[place * page_size].data_ptr(), page_size * token_bytes)


def transfer_kv_mamba_pf_lf(src, dst, src_indices, dst_indices, layer_id, item_size, src_layout_dim):
    _match([src_indices, dst_indices], torch.int64)
    base = src.data_ptr() + layer_id * item_size
    _rows(dst.data_ptr(), base, item_size, dst_indices, src_indices, item_size, src_layout_dim)


def transfer_kv_mamba_lf_pf(src_ptrs, dst, src_indices, dst_indices, item_size, dst_layout_dim, num_layers):
    _match([src_ptrs], torch.uint64)
    _match([src_indices, dst_indices], torch.int64)
    for layer in range(num_layers):
        base = dst.data_ptr() + layer * item_size
        _rows(base, int(src_ptrs[layer]), item_size, dst_indices, src_indices, dst_layout_dim, item_size)


def transfer_page_rows(
    host_ptrs, device_ptrs, host_pages, device_pages, *, host_stride, device_stride, row_bytes, load
):
    for host, device in zip(host_ptrs.tolist(), device_ptrs.tolist(), strict=True):
        if load:
            _rows(device, host, row_bytes, device_pages, host_pages, device_stride, host_stride)
        else:
            _rows(host, device, row_bytes, host_pages, device_pages, host_stride, device_stride)


def _c4(address, token):
    page = address + (token >> 6) * 37_440
    return (page + (token & 63) * 576, 576), (page + 36_864 + (token & 63) * 8, 8)


def transfer_cache_dsv4_mla(src_ptrs, dst_ptrs, src_indices, dst_indices):
    for source, target in zip(src_ptrs.tolist(), dst_ptrs.tolist(), strict=True):
        for fro, to in zip(src_indices.tolist(), dst_indices.tolist(), strict=True):
            for (a, size), (b, _) in zip(_c4(source, fro), _c4(target, to), strict=True):
                _copy(b, a, size)


def transfer_hicache_one_layer_page_unified_lf(k_dst, v_dst, src, src_indices, dst_indices, layer_id):
    page = src.shape[4]
    for fro, to in zip(src_indices.tolist(), dst_indices.tolist(), strict=True):
        token = src[fro // page, :, layer_id, :, fro % page]
        for part, target in enumerate((k_dst, v_dst)):
            target[to].view(torch.uint8).copy_(token[:, part].reshape(target[to].shape).view(torch.uint8))


def transfer_hicache_one_layer_mla_page_unified_lf(dst, src, src_indices, dst_indices, layer_id):
    page = src.shape[2]
    for fro, to in zip(src_indices.tolist(), dst_indices.tolist(), strict=True):
        dst[to].view(-1).view(torch.uint8).copy_(src[fro // page, layer_id, fro % page].view(torch.uint8))


def _unified(tables, src_pages, dst_pages, dst, groups, page, row):
    """Fill each page in the order of its bytes."""
    for fro, to in zip(src_pages.tolist(), dst_pages.tolist(), strict=True):
        at = dst[to].data_ptr()
        for group in range(groups):
            for addresses in zip(*(table.tolist() for table in tables), strict=True):
                for address in addresses:
                    for token in range(page):
                        _copy(at, address + (fro * page + token) * row + group * (row // groups), row // groups)
                        at += row // groups


def transfer_hicache_all_layer_staged_lf_page_unified(k_src, v_src, src_pages, dst_pages, staging, dst):
    _, groups, _, _, page, heads, dim = dst.shape
    _unified((k_src, v_src), src_pages, dst_pages, dst, groups, page, groups * heads * dim * dst.element_size())


def transfer_hicache_all_layer_mla_staged_lf_page_unified(ptr_src, src_pages, dst_pages, staging, dst):
    _unified((ptr_src,), src_pages, dst_pages, dst, 1, dst.shape[2], dst.shape[3] * dst.element_size())


# --- HiSparse ---


def translate_padded_hisparse_locations(mapping, locations):
    dtype = torch.promote_types(mapping.dtype, locations.dtype)
    return torch.tensor([int(mapping[each]) if each >= 0 else each for each in locations.tolist()], dtype=dtype)


def _swap(selected, tokens, host_locs, device_locs, outs, rids, lengths, order, real, load):
    """One request after the other, with the slots compacted from both ends of one array as the kernel does it."""
    hot = order.shape[1]
    for number in range(len(selected)):
        if number >= real:
            outs[number] = -1
            continue
        rid, length = int(rids[number]), int(lengths[number])
        for at, token in enumerate(selected[number]):
            outs[number, at] = device_locs[rid, token] if 0 <= token < length <= hot else -1
        if length <= hot:
            continue
        left = {token: at for at, token in enumerate(selected[number]) if 0 <= token < length}
        if length - 1 in left:
            outs[number, left.pop(length - 1)] = device_locs[rid, hot]
        compact, front, back = [0] * hot, 0, hot
        for slot in order[rid].tolist():
            if int(tokens[rid, slot]) in left:
                outs[number, left.pop(int(tokens[rid, slot]))] = device_locs[rid, slot]
                compact[front], front = slot, front + 1
            else:
                back -= 1
                compact[back] = slot
        for miss, (token, at) in enumerate(left.items()):
            slot = compact[hot - 1 - miss]
            tokens[rid, slot] = token
            outs[number, at] = device_locs[rid, slot]
            load(int(host_locs[rid, token]), int(device_locs[rid, slot]))
        misses, evictable = len(left), hot - front
        for i in range(hot):
            slot = compact[hot - 1 - i] if i < evictable else compact[i - evictable]
            order[rid, evictable - misses + i if i < misses else i - misses if i < evictable else i] = slot


def load_cache_to_device_buffer_mla(
    top_k, tokens, host_locs, device_locs, host, device, outs, rids, lengths, order, item, top, hot, *, num_real_reqs
):
    def load(source, target):
        _copy(device.data_ptr() + target * item, host.data_ptr() + source * item, item)

    _swap(top_k.tolist(), tokens, host_locs, device_locs, outs, rids, lengths, order, int(num_real_reqs), load)


def load_cache_to_device_buffer_dsv4_mla(
    top_k, tokens, host_locs, device_locs, host, device, outs, rids, lengths, order, item, top, hot, *, num_real_reqs
):
    def load(source, target):
        for (a, size), (b, _) in zip(_c4(host.data_ptr(), source), _c4(device.data_ptr(), target), strict=True):
            _copy(b, a, size)

    _swap(top_k.tolist(), tokens, host_locs, device_locs, outs, rids, lengths, order, int(num_real_reqs), load)


def load_blocks_to_device_buffer_mha(
    blocks,
    tokens,
    host_locs,
    device_locs,
    hk,
    hv,
    dk,
    dv,
    outs,
    rids,
    lengths,
    order,
    item,
    hot,
    block,
    *,
    num_real_reqs,
):
    def load(source, target):
        _copy(dk.data_ptr() + target * item, hk.data_ptr() + source * item, item)
        _copy(dv.data_ptr() + target * item, hv.data_ptr() + source * item, item)

    selected = [
        [each * block + at if each >= 0 else -1 for each in row for at in range(block)] for row in blocks.tolist()
    ]
    _swap(selected, tokens, host_locs, device_locs, outs, rids, lengths, order, int(num_real_reqs), load)


def copy_cache_planned_mla(
    *, miss_src, miss_dst, miss_count, num_real_reqs, host_cache, device_buffer, item_size_bytes
):
    for number in range(int(num_real_reqs)):
        for miss in range(int(miss_count[number])):
            target = device_buffer.data_ptr() + int(miss_dst[number, miss]) * item_size_bytes
            _copy(target, host_cache.data_ptr() + int(miss_src[number, miss]) * item_size_bytes, item_size_bytes)


# --- KV4 ---


def fp4_mx_block16_quantize(values):
    batch, rows, width = values.shape
    flat, payload, scales = values.double().flatten().tolist(), [], []
    for start in range(0, len(flat), 16):
        block = flat[start : start + 16]
        exponent = -33
        while max(map(abs, block)) > 6 * 2.0**exponent:
            exponent += 1
        scales.append(exponent + 127)
        payload += [_e2m1(value / 2.0**exponent) for value in block]
    bytes_ = [low | high << 4 for low, high in zip(payload[::2], payload[1::2], strict=True)]
    return (
        torch.tensor(bytes_, dtype=torch.uint8).view(batch, rows, width // 2),
        torch.tensor(scales, dtype=torch.uint8).view(batch, -1),
    )


def _e2m1(value):
    """Round half to even by Python's own ``round``, in steps of the value's binade."""
    magnitude = min(abs(value), 6.0)
    step = 0.5 if magnitude < 2 else 1.0 if magnitude < 4 else 2.0
    rounded = min(round(magnitude / step) * step, 6.0)
    sign = 8 if str(value).startswith("-") else 0
    return sign | {0.0: 0, 0.5: 1, 1.0: 2, 1.5: 3, 2.0: 4, 3.0: 5, 4.0: 6, 6.0: 7}[rounded]


def fp4_mx_block16_dequantize(payload, scales, dtype):
    table = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
    codes = [code for byte in payload.flatten().tolist() for code in (byte & 15, byte >> 4)]
    values = [
        (-1.0 if code & 8 else 1.0) * table[code & 7] * 2.0 ** (int(scales.flatten()[at // 16]) - 127)
        for at, code in enumerate(codes)
    ]
    batch, rows, half = payload.shape
    return torch.tensor(values, dtype=torch.float64).view(batch, rows, 2 * half).to(dtype)


# --- Ascend ---


def transfer_kv_dim_exchange(device_indices, host_indices, dk, hk, dv, hv, *, page_size, direction):
    for start in range(0, len(device_indices), page_size):
        device, host = int(device_indices[start]) // page_size, int(host_indices[start]) // page_size
        for on_device, on_host in ((dk, hk), (dv, hv)):
            sides = on_device.view(torch.uint8)[:, device], on_host.view(torch.uint8)[host]
            target, source = sides if direction == "H2D" else sides[::-1]
            target.copy_(source)


# --- selection ---


def can_use_hicache_jit_kernel(*, element_size, page_size):
    return False
