"""What is refused, in upstream's order and words; what upstream leaves to chance, in our own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def require(condition: bool, message: str) -> None:
    """Raise what a failed ``TORCH_CHECK`` raises."""
    if not condition:
        raise RuntimeError(message)


def require_cpu(tensor: Tensor, name: str) -> None:
    """Refuse a tensor whose memory is not this process's."""
    require(tensor.device.type == "cpu", f"{name} must be a CPU tensor")


def check_launch(
    src_indices: Tensor, dst_indices: Tensor, item_size: int, block_quota: int | None, num_warps_per_block: int
) -> tuple[Tensor, Tensor]:
    """Check what all kernel ops check first; return the slots of both sides, one-dimensional."""
    require_cpu(src_indices, "Source indices")
    require_cpu(dst_indices, "Destination indices")
    require(src_indices.dtype == torch.int64, "Source indices must be of type long")
    require(dst_indices.dtype == torch.int64, "Destination indices must be of type long")
    check_same_length(src_indices, dst_indices)
    require(item_size % 8 == 0, "Item byte size must be divisible by 8")
    require(item_size > 0, f"Item byte size must be positive, got {item_size}")
    require(block_quota is None or block_quota > 0, f"block_quota must be positive, got {block_quota}")
    require(num_warps_per_block > 0, f"num_warps_per_block must be positive, got {num_warps_per_block}")
    return src_indices.reshape(-1), dst_indices.reshape(-1)


def check_same_length(src_indices: Tensor, dst_indices: Tensor) -> None:
    """Check the number of indices; the shape does not matter."""
    require(src_indices.numel() == dst_indices.numel(), "Source and destination indices must have the same length")


def check_paging(src_indices: Tensor, dst_indices: Tensor, page_size: int) -> tuple[Tensor, Tensor]:
    """Check what all direct ops check first; return the slots of both sides, one-dimensional."""
    check_same_length(src_indices, dst_indices)
    require(page_size > 0, "Page size must be positive")
    require(src_indices.numel() % page_size == 0, "Source indices size must be divisible by page size")
    src_indices, dst_indices = src_indices.cpu(), dst_indices.cpu()
    require_scalar_type(src_indices, torch.int64)
    require_scalar_type(dst_indices, torch.int64)
    return src_indices.reshape(-1), dst_indices.reshape(-1)


def require_scalar_type(tensor: Tensor, dtype: torch.dtype) -> None:
    """Refuse another dtype in the words of ``Tensor::data_ptr<T>()``."""
    require(
        tensor.dtype == dtype,
        f"expected scalar type {scalar_type(dtype)} but found {scalar_type(tensor.dtype)}",
    )


def scalar_type(dtype: torch.dtype) -> str:
    """Return C++'s name of a dtype."""
    return _SCALAR_TYPES.get(dtype, str(dtype).removeprefix("torch.").capitalize())


#: Where C++'s name is not Python's with a capital letter.
_SCALAR_TYPES = {
    torch.uint64: "UInt64",
    torch.uint32: "UInt32",
    torch.uint16: "UInt16",
    torch.uint8: "Byte",
    torch.int64: "Long",
    torch.int32: "Int",
    torch.int16: "Short",
    torch.int8: "Char",
    torch.float64: "Double",
    torch.float32: "Float",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
}


def check_heads(item_size: int, layout_dim: int, page_size: int, head_num: int) -> None:
    """Check what page_head needs to be an arrangement at all."""
    require(page_size > 0, "Page size must be positive")
    require(head_num > 0, f"head_num must be positive, got {head_num}")
    for size, name in ((item_size, "Item byte size"), (layout_dim, "Layout byte size")):
        require(size % head_num == 0, f"{name} {size} must be divisible by head_num {head_num}")


def check_layers(first: int, count: int, item_size: int, layout_dim: int) -> None:
    """Check that the layers from ``first`` on lie within a token of ``layout_dim`` bytes."""
    held = max(layout_dim // item_size, 0)
    if not 0 <= first <= held - count:
        layers = f"layer {first}" if count == 1 else f"layers {first} to {first + count - 1}"
        raise IndexError(
            f"{layers} of {item_size} bytes out of range: a layout dim of {layout_dim} bytes holds {held} layers"
        )


def highest_slot(slots: Tensor, side: str) -> int:
    """Return the highest slot; refuse negative ones, which upstream takes as addresses before the buffer."""
    lowest, highest = (int(slot) for slot in slots.aminmax())
    if lowest < 0:
        raise IndexError(f"{side} index {lowest} is negative")
    return highest


def check_reach(slot: int, end: int, held: int, side: str, name: str) -> None:
    """Refuse a slot whose last byte lies beyond the tensor; upstream reads and writes what happens to lie there."""
    if end > held:
        raise IndexError(
            f"{side} index {slot} is out of range: it ends at byte {end}, beyond the {held} bytes of {name}"
        )
