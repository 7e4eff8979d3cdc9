"""A second implementation of the API of ``sgl_kernel.kvcacheio``, for tests of the transfer matrix.

It stands for the kernels of somebody else: it shares no code and no method with ``pytest_sglhw.kvcacheio``. Each
token's address is computed in Python from the closed formula of its layout and moved by ``memmove``, runs of adjoining
bytes at once; the direct ops copy slices. Slow and plain on purpose. The refusals are those of docs/kernels.md.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from inspect import Parameter, Signature
from typing import Any

import torch
from torch import Tensor

Move = tuple[int, int, int]  # source address, destination address, bytes
Address = Callable[[int, int, int], int]  # of (layer, token, head)

WARPS = 16 if torch.version.hip else 32


def adjoining(moves: Iterable[Move]) -> Iterator[Move]:
    """Join moves that continue each other on both sides."""
    start, target, length = -1, -1, 0
    for src, dst, size in moves:
        if (src, dst) == (start + length, target + length):
            length += size
            continue
        if length:
            yield start, target, length
        start, target, length = src, dst, size
    if length:
        yield start, target, length


def token_moves(
    read: Address, write: Address, slots: list[tuple[int, int]], layers: range, heads: int, size: int
) -> Iterator[Move]:
    """Yield the moves of all tokens of all layers, head by head."""
    for layer in layers:
        for src, dst in slots:
            for head in range(heads):
                yield read(layer, src, head), write(layer, dst, head), size


def in_layer(base: int, item: int, heads: int, layer: int, token: int, head: int) -> int:
    """Address in one packed layer; the layer is in the base."""
    return base + token * item + head * (item // heads)


def in_table(bases: list[int], item: int, heads: int, layer: int, token: int, head: int) -> int:
    """Address behind a table of layers."""
    return bases[layer] + token * item + head * (item // heads)


def in_page_first(base: int, item: int, dim: int, layer: int, token: int, head: int) -> int:
    """Address in a pool of tokens of all layers."""
    return base + token * dim + layer * item


def in_page_head(base: int, item: int, dim: int, page: int, heads: int, layer: int, token: int, head: int) -> int:
    """Address in a pool of pages of heads."""
    number, offset = divmod(token, page)
    return base + number * page * dim + dim // heads * head * page + offset * (dim // heads) + layer * (item // heads)


SCALAR_TYPES = {"uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long", "float16": "Half"}
SCALAR_TYPES |= {"float32": "Float", "float64": "Double", "bfloat16": "BFloat16", "uint64": "UInt64", "bool": "Bool"}
SCALAR_TYPES |= {"uint16": "UInt16", "uint32": "UInt32"}


def scalar_type(tensor: Tensor) -> str:
    """C++'s name of a tensor's dtype."""
    name = str(tensor.dtype).split(".")[1]
    return SCALAR_TYPES.get(name, name.capitalize())


def refuse_if(wrong: bool, message: str, error: type[Exception] = RuntimeError) -> None:
    """Raise."""
    if wrong:
        raise error(message)


def on_cpu(name: str, tensor: Tensor) -> None:
    """Refuse memory of another device."""
    refuse_if(tensor.device.type != "cpu", f"{name} must be a CPU tensor")


def slot_pairs(given: dict[str, Any]) -> list[tuple[int, int]]:
    """Check the arguments that all kernel ops have; return the slots."""
    src, dst, item = given["src_indices"], given["dst_indices"], given["item_size"]
    on_cpu("Source indices", src)
    on_cpu("Destination indices", dst)
    refuse_if(src.dtype != torch.long, "Source indices must be of type long")
    refuse_if(dst.dtype != torch.long, "Destination indices must be of type long")
    refuse_if(src.numel() != dst.numel(), "Source and destination indices must have the same length")
    refuse_if(item % 8 != 0, "Item byte size must be divisible by 8")
    refuse_if(item <= 0, f"Item byte size must be positive, got {item}")
    for name in ("block_quota", "num_warps_per_block"):
        refuse_if(given[name] is not None and given[name] <= 0, f"{name} must be positive, got {given[name]}")
    return list(zip(src.flatten().tolist(), dst.flatten().tolist(), strict=True))


def check_heads(item: int, dim: int, page: int, heads: int) -> None:
    """Check that pages and heads exist and that heads are whole."""
    refuse_if(page <= 0, "Page size must be positive")
    refuse_if(heads <= 0, f"head_num must be positive, got {heads}")
    refuse_if(item % heads != 0, f"Item byte size {item} must be divisible by head_num {heads}")
    refuse_if(dim % heads != 0, f"Layout byte size {dim} must be divisible by head_num {heads}")


def check_layers(layers: range, item: int, dim: int) -> None:
    """Check that a token of ``dim`` bytes holds the layers."""
    held = max(dim // item, 0)
    if layers.start < 0 or layers.stop > held:
        which = f"layer {layers.start}" if len(layers) == 1 else f"layers {layers.start} to {layers.stop - 1}"
        raise IndexError(f"{which} of {item} bytes out of range: a layout dim of {dim} bytes holds {held} layers")


def packed(name: str, tensor: Tensor) -> int:
    """Return the address of a layer."""
    refuse_if(not tensor.is_contiguous(), f"{name} must be contiguous: its tokens are addressed every item_size bytes")
    return int(tensor.data_ptr())


def listed(name: str, tensor: Tensor, num_layers: int) -> list[int]:
    """Return the addresses of a table."""
    refuse_if(tensor.dtype != torch.uint64, f"expected scalar type UInt64 but found {scalar_type(tensor)}")
    count = tensor.numel()
    refuse_if(count < num_layers, f"{name} has {count} layer addresses, fewer than num_layers {num_layers}")
    addresses = [int(address) for address in tensor.flatten().tolist()[:num_layers]]
    refuse_if(0 in addresses, f"{name} holds a null pointer")
    return addresses


def check_slots(side: str, slots: list[int]) -> None:
    """Refuse negative slots."""
    refuse_if(min(slots, default=0) < 0, f"{side} index {min(slots, default=0)} is negative", IndexError)


def check_end(side: str, slot: int, name: str, tensor: Tensor, end: int) -> None:
    """Refuse a slot of which the last byte, of the last layer and head, lies beyond the tensor."""
    held = 0
    if tensor.numel():
        steps = [(n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True)]
        held = (sum(steps) + 1) * tensor.element_size()
    end -= tensor.data_ptr()
    message = f"{side} index {slot} is out of range: it ends at byte {end}, beyond the {held} bytes of {name}"
    refuse_if(end > held, message, IndexError)


class End:
    """One end of a transfer: for each buffer its name, its tensor if its size is known, and its addresses."""

    def __init__(self, side: str, kind: str, names: list[str], given: dict[str, Any]) -> None:
        self.side = side
        self.buffers: list[tuple[str, Tensor | None, Address]] = [
            (name, None if kind == "table" else given[name], address_in(kind, name, given)) for name in names
        ]


def address_in(kind: str, name: str, given: dict[str, Any]) -> Address:
    """Return where the tokens of a buffer lie, from the arguments of the op."""
    tensor, item, dim, heads = given[name], given["item_size"], layout_dim(given), given.get("head_num", 1)
    on_cpu(name, tensor)
    if kind == "table":
        return partial(in_table, listed(name, tensor, given["num_layers"]), item, heads)
    if kind == "layer":
        return partial(in_layer, packed(name, tensor), item, heads)
    if kind == "page_first":
        return partial(in_page_first, tensor.data_ptr(), item, dim)
    return partial(in_page_head, tensor.data_ptr(), item, dim, given["page_size"], heads)


def layout_dim(given: dict[str, Any]) -> int:
    """Return the bytes of a token in all layers; without a pool of all layers, those that are copied."""
    copied = given["item_size"] * given.get("num_layers", 1)
    return int(given.get("src_layout_dim", given.get("dst_layout_dim", copied)))


def checked_layers(given: dict[str, Any]) -> range:
    """Check layout dim, pages and heads; return the layers to copy."""
    first = given.get("layer_id", 0)
    layers = range(first, first + given.get("num_layers", 1))
    if "head_num" in given:
        check_heads(given["item_size"], layout_dim(given), given["page_size"], given["head_num"])
    check_layers(layers, given["item_size"], layout_dim(given))
    return layers


def run(src: End, dst: End, slots: list[tuple[int, int]], layers: range, heads: int, size: int) -> None:
    """Check both ends, then move the tokens of each buffer."""
    if not slots or not layers:
        return
    for end, used in ((src, [s for s, _ in slots]), (dst, [d for _, d in slots])):
        check_slots(end.side, used)
        for name, tensor, address in end.buffers:
            if tensor is not None:
                check_end(end.side, max(used), name, tensor, address(layers[-1], max(used), heads - 1) + size)
    for (*_, read), (*_, write) in zip(src.buffers, dst.buffers, strict=True):
        for start, target, length in adjoining(token_moves(read, write, slots, layers, heads, size)):
            ctypes.memmove(target, start, length)


def parameters(kinds: tuple[str, str], buffers: list[str]) -> list[Parameter]:
    """Return upstream's parameters of an op from the kinds of memory at its two ends."""
    pool = next((end for end, kind in zip(("src", "dst"), kinds, strict=True) if kind.startswith("page")), None)
    table, mla = kinds[0] == "table", len(buffers) == 2
    names = [*buffers, "src_indices", "dst_indices", *(["layer_id"] if pool == "src" else []), "item_size"]
    names += [f"{pool}_layout_dim"] if pool else []
    names += (["num_layers"] if table else []) + (["page_size", "head_num"] if "page_head" in kinds else [])
    defaults = {"block_quota": None if mla and not table else 2, "num_warps_per_block": WARPS}
    return [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=defaults.get(name, Parameter.empty))
        for name in [*names, *defaults]
    ]


def kernel_op(src_kind: str, dst_kind: str, *buffers: str) -> Callable[..., None]:
    """Return the op that copies buffers, ``"k"`` and ``"v"`` or just one, from one kind of memory to another."""
    suffixes = {kind: "_layers" if kind == "table" else "" for kind in (src_kind, dst_kind)}
    sources = ["_".join(filter(None, ["src", buffer])) + suffixes[src_kind] for buffer in buffers]
    targets = ["_".join(filter(None, ["dst", buffer])) + suffixes[dst_kind] for buffer in buffers]
    interleaved = [name for pair in zip(sources, targets, strict=True) for name in pair]
    signature = Signature(parameters((src_kind, dst_kind), interleaved))

    def op(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        if src_kind == "table":
            name = " ".join(filter(None, ["source", buffers[0], "tensor"]))
            wrong = given[sources[0]].size(0) != given["num_layers"]
            refuse_if(wrong, f"Number of layers in {name} does not match num_layers")
        slots = slot_pairs(given)
        layers, heads = checked_layers(given), given.get("head_num", 1)
        src, dst = End("Source", src_kind, sources, given), End("Destination", dst_kind, targets, given)
        run(src, dst, slots, layers, heads, given["item_size"] // heads)

    op.__signature__ = signature  # type: ignore[attr-defined]
    return op


transfer_kv_per_layer = kernel_op("layer", "layer", "k", "v")
transfer_kv_per_layer_pf_lf = kernel_op("page_first", "layer", "k", "v")
transfer_kv_per_layer_ph_lf = kernel_op("page_head", "layer", "k", "v")
transfer_kv_all_layer = kernel_op("table", "table", "k", "v")
transfer_kv_all_layer_lf_pf = kernel_op("table", "page_first", "k", "v")
transfer_kv_all_layer_lf_ph = kernel_op("table", "page_head", "k", "v")
transfer_kv_per_layer_mla = kernel_op("layer", "layer", "")
transfer_kv_per_layer_mla_pf_lf = kernel_op("page_first", "layer", "")
transfer_kv_all_layer_mla = kernel_op("table", "table", "")
transfer_kv_all_layer_mla_lf_pf = kernel_op("table", "page_first", "")


def paged_slots(src: Tensor, dst: Tensor, page: int) -> tuple[list[int], list[int]]:
    """Check the arguments that all direct ops have; return the slots of both sides."""
    refuse_if(src.numel() != dst.numel(), "Source and destination indices must have the same length")
    refuse_if(page <= 0, "Page size must be positive")
    refuse_if(src.numel() % page != 0, "Source indices size must be divisible by page size")
    for indices in (src.cpu(), dst.cpu()):
        refuse_if(indices.dtype != torch.long, f"expected scalar type Long but found {scalar_type(indices)}")
    return src.flatten().tolist(), dst.flatten().tolist()


def check_range(side: str, slots: Iterable[int], size: int) -> None:
    """Refuse slots outside a dimension."""
    low, high = min(slots), max(slots)
    message = f"{side} index {low if low < 0 else high} is out of range for a dimension of size {size}"
    refuse_if(low < 0 or high >= size, message, IndexError)


def check_tokens(src: Iterable[int], dst: Iterable[int]) -> None:
    """Refuse token shapes that ``copy_`` would not broadcast within the token."""
    one, other = list(src), list(dst)
    fits = len(one) == len(other) and all(a in (1, b) for a, b in zip(one, other, strict=True))
    refuse_if(not fits, f"a source token of shape {one} does not fit a destination token of shape {other}")


def check_layer_tensors(side: str, tensors: list[Tensor]) -> None:
    """Refuse layers without tokens or of another device."""
    for tensor in tensors:
        on_cpu(f"{side} layer", tensor)
        refuse_if(tensor.dim() < 1, f"{side} layer of shape {list(tensor.shape)} has no tokens")


def transfer_kv_direct(
    src_layers: list[Tensor], dst_layers: list[Tensor], src_indices: Tensor, dst_indices: Tensor, page_size: int
) -> None:
    """Copy runs of slots of each layer, in order."""
    refuse_if(len(src_layers) != len(dst_layers), "Source and destination layers must have the same number of layers")
    src, dst = paged_slots(src_indices, dst_indices, page_size)
    if not src or not src_layers:
        return
    for side, slots, tensors in (("Source", src, src_layers), ("Destination", dst, dst_layers)):
        check_layer_tensors(side, tensors)
        check_range(side, slots, min(tensor.shape[0] for tensor in tensors))
    for one, other in zip(src_layers, dst_layers, strict=True):
        check_tokens(one.shape[1:], other.shape[1:])
    for s, d, count in adjoining((s, d, 1) for s, d in zip(src, dst, strict=True)):
        for one, other in zip(src_layers, dst_layers, strict=True):
            other[d : d + count].copy_(one[s : s + count].clone())


def page_copies(
    pools: list[Tensor], layers: list[Tensor], names: tuple[str, str], first: int
) -> list[tuple[Tensor, Tensor]]:
    """Pair ``[pages, P, ...]`` of each pool and layer with the layer's tensor."""
    refuse_if(len(pools) not in (1, 2), f"{names[0]} must be [kv] or [k, v], got {len(pools)} tensors")
    odd = f"{names[1]} must have as many layers of K as of V, got {len(layers)} tensors"
    refuse_if(len(layers) % len(pools) != 0, odd)
    for pool in pools:
        refuse_if(pool.dim() < 3, f"{names[0]} must be [pages, layers, tokens, ...], got shape {list(pool.shape)}")
    count, held = len(layers) // len(pools), min(pool.shape[1] for pool in pools)
    beyond = f"layers {first} to {first + count - 1} are out of range: {names[0]} holds {held} layers"
    refuse_if(first < 0 or first + count > held, beyond, IndexError)
    return [(pools[b][:, first + j], layers[b * count + j]) for b in range(len(pools)) for j in range(count)]


def checked_pages(pairs: list[tuple[Tensor, Tensor]], paged: list[int], flat: list[int], load: bool, page: int) -> None:
    """Check the pages of the pools and the slots of the layers, the source first."""
    for side, of_pools in (("Source", load), ("Destination", not load)):
        tensors = [pair[not of_pools] for pair in pairs]
        check_layer_tensors(side, tensors)
        size = min(tensor.shape[0] for tensor in tensors)
        check_range(side, paged if of_pools else [slot + i for slot in flat for i in (0, page - 1)], size)
        if of_pools:
            check_range(side, range(page), min(tensor.shape[1] for tensor in tensors))
    for pool, layer in pairs:
        tokens = pool.shape[2:], layer.shape[1:]
        check_tokens(*tokens if load else tokens[::-1])


def transfer_kv_per_layer_direct_pf_lf(
    src_ptrs: list[Tensor],
    dst_ptrs: list[Tensor],
    src_indices: Tensor,
    dst_indices: Tensor,
    layer_id: int,
    page_size: int,
) -> None:
    """Copy pages of page_first_direct pools to layers."""
    src, dst = paged_slots(src_indices, dst_indices, page_size)
    pairs = page_copies(src_ptrs, dst_ptrs, ("src_ptrs", "dst_ptrs"), layer_id)
    if not src or not pairs:
        return
    pages, starts = [s // page_size for s in src[::page_size]], dst[::page_size]
    checked_pages(pairs, pages, starts, True, page_size)
    for page, start in zip(pages, starts, strict=True):
        for pool, layer in pairs:
            layer[start : start + page_size].copy_(pool[page, :page_size].clone())


def transfer_kv_all_layer_direct_lf_pf(
    src_ptrs: list[Tensor], dst_ptrs: list[Tensor], src_indices: Tensor, dst_indices: Tensor, page_size: int
) -> None:
    """Copy pages of layers to page_first_direct pools."""
    src, dst = paged_slots(src_indices, dst_indices, page_size)
    pairs = page_copies(dst_ptrs, src_ptrs, ("dst_ptrs", "src_ptrs"), 0)
    if not src or not pairs:
        return
    starts, pages = src[::page_size], [d // page_size for d in dst[::page_size]]
    checked_pages(pairs, pages, starts, False, page_size)
    for start, page in zip(starts, pages, strict=True):
        for pool, layer in pairs:
            pool[page, :page_size].copy_(layer[start : start + page_size].clone())


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Within each buffer read all rows, then write them."""
    for name, tensor in (("data_ptrs", data_ptrs), ("strides", strides), ("tgt_loc", tgt_loc), ("src_loc", src_loc)):
        on_cpu(name, tensor)
        refuse_if(not tensor.is_contiguous(), f"{name} must be contiguous")
    names = [scalar_type(tensor) for tensor in (data_ptrs, strides, tgt_loc, src_loc)]
    equal = (
        ("data_ptrs.scalar_type(), at::kUInt64", names[0], "UInt64"),
        ("strides.scalar_type(), at::kLong", names[1], "Long"),
        ("tgt_loc.scalar_type(), src_loc.scalar_type()", names[2], names[3]),
        ("strides.numel(), num_bufs", strides.numel(), data_ptrs.numel()),
        ("src_loc.numel(), num_locs", src_loc.numel(), tgt_loc.numel()),
    )
    for expression, left, right in equal:
        refuse_if(left != right, f"CHECK_EQ({expression}) failed. {left} vs {right}")
    if not data_ptrs.numel() or not tgt_loc.numel():
        return
    unsupported = f"\"copy_all_layer_kv_cache_cpu\" not implemented for '{names[2]}'"
    refuse_if(names[2] not in ("Long", "Int"), unsupported, NotImplementedError)
    addresses, widths = data_ptrs.flatten().tolist(), strides.flatten().tolist()
    targets, sources = tgt_loc.flatten().tolist(), src_loc.flatten().tolist()
    refuse_if(0 in addresses, "data_ptrs holds a null pointer")
    refuse_if(min(widths) < 0, f"strides must not be negative, got {min(widths)}")
    check_slots("Destination", targets)
    check_slots("Source", sources)
    for base, width in zip(addresses, widths, strict=True):
        rows = [ctypes.string_at(base + row * width, width) for row in sources]
        for row, content in zip(targets, rows, strict=True):
            ctypes.memmove(base + row * width, content, width)
