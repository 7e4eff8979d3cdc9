"""The ops for host memory."""

from __future__ import annotations

import pytest
import torch

from pytest_sglhw import kvcacheio


def buffers(*widths, rows=40):
    """Return byte buffers of rows of these widths, with a guard, their addresses and their strides."""
    generator = torch.Generator().manual_seed(0)
    memory = [torch.randint(0, 256, (rows * w + 17,), dtype=torch.uint8, generator=generator) for w in widths]
    addresses = torch.tensor([m.data_ptr() for m in memory], dtype=torch.uint64)
    return memory, addresses, torch.tensor(widths, dtype=torch.int64)


def moved(memory, width, tgt, src):
    """Return the buffer after all rows were read and then written one by one."""
    image = memory.clone()
    for t, s in zip(tgt.tolist(), src.tolist(), strict=True):
        image[t * width : (t + 1) * width] = memory[s * width : (s + 1) * width]
    return image


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_copy_all_layer(dtype):
    """Each buffer has its own row width, a multiple of 8 or not."""
    widths = (8, 72, 1, 7, 656)
    memory, addresses, strides = buffers(*widths)
    tgt, src = torch.tensor([39, 4, 0, 7], dtype=dtype), torch.tensor([2, 2, 31, 9], dtype=dtype)
    want = [moved(m, w, tgt, src) for m, w in zip(memory, widths, strict=True)]
    kvcacheio.copy_all_layer_kv_cache_cpu(addresses, strides, tgt, src)
    assert all(map(torch.equal, memory, want))


def test_copy_all_layer_overlap():
    """Rows that are both read and written keep their old bytes for the reader; the last of duplicates stays."""
    memory, addresses, strides = buffers(16384, rows=200)
    shift = torch.arange(199)
    tgt, src = torch.cat([shift + 1, torch.tensor([0, 0])]), torch.cat([shift, torch.tensor([5, 9])])
    want = moved(memory[0], 16384, tgt, src)
    kvcacheio.copy_all_layer_kv_cache_cpu(addresses, strides, tgt, src)
    assert torch.equal(memory[0], want)


def test_copy_all_layer_nothing():
    """No buffers, no rows or rows of no bytes: nothing happens."""
    memory, addresses, strides = buffers(8)
    want = memory[0].clone()
    some, none = torch.tensor([1]), torch.empty(0, dtype=torch.int64)
    kvcacheio.copy_all_layer_kv_cache_cpu(addresses, strides, none, none)
    kvcacheio.copy_all_layer_kv_cache_cpu(addresses[:0], strides[:0], some, some)
    kvcacheio.copy_all_layer_kv_cache_cpu(addresses, strides * 0, some, some)
    assert torch.equal(memory[0], want)


ROWS = torch.arange(4)
COPY_ERRORS = {
    "device": ({"strides": torch.empty(1, dtype=torch.int64, device="meta")}, "strides must be a CPU tensor"),
    "contiguous": ({"tgt_loc": torch.arange(8)[::2]}, "tgt_loc must be contiguous"),
    "pointers": (
        {"data_ptrs": torch.tensor([8])},
        "CHECK_EQ(data_ptrs.scalar_type(), at::kUInt64) failed. Long vs UInt64",
    ),
    "strides": ({"strides": ROWS[:1].int()}, "CHECK_EQ(strides.scalar_type(), at::kLong) failed. Int vs Long"),
    "locs": ({"src_loc": ROWS.int()}, "CHECK_EQ(tgt_loc.scalar_type(), src_loc.scalar_type()) failed. Long vs Int"),
    "buffers": ({"strides": ROWS[:2]}, "CHECK_EQ(strides.numel(), num_bufs) failed. 2 vs 1"),
    "rows": ({"src_loc": ROWS[:3]}, "CHECK_EQ(src_loc.numel(), num_locs) failed. 3 vs 4"),
    "index type": (
        {"src_loc": ROWS.short(), "tgt_loc": ROWS.short()},
        "\"copy_all_layer_kv_cache_cpu\" not implemented for 'Short'",
    ),
    "null": ({"data_ptrs": torch.tensor([0], dtype=torch.uint64)}, "data_ptrs holds a null pointer"),
    "negative stride": ({"strides": torch.tensor([-8])}, "strides must not be negative, got -8"),
}


@pytest.mark.parametrize("case", COPY_ERRORS)
def test_copy_all_layer_errors(case):
    """Each wrong argument is named in upstream's words."""
    changed, message = COPY_ERRORS[case]
    _memory, addresses, strides = buffers(8)
    arguments = {"data_ptrs": addresses, "strides": strides, "tgt_loc": ROWS, "src_loc": ROWS} | changed
    with pytest.raises(RuntimeError) as error:
        kvcacheio.copy_all_layer_kv_cache_cpu(**arguments)
    assert str(error.value) == message


def test_copy_all_layer_negative_row():
    """A row before the buffer is refused before anything is written."""
    memory, addresses, strides = buffers(8, 8)
    want = [m.clone() for m in memory]
    with pytest.raises(IndexError, match=r"^Destination index -1 is negative$"):
        kvcacheio.copy_all_layer_kv_cache_cpu(addresses, strides, torch.tensor([1, -1]), torch.tensor([2, 3]))
    assert all(map(torch.equal, memory, want))


def test_embedding_ranges():
    """Ranges of rows are copied; a range of no rows may start anywhere."""
    src, dst = torch.randn(20, 37).bfloat16(), torch.zeros(30, 37).bfloat16()
    want = dst.clone()
    want[5:9], want[0:1] = src[3:7], src[19:20]
    kvcacheio.transfer_embedding_ranges_direct(src, dst, [3, -7, 19], [5, 99, 0], [4, 0, 1])
    assert torch.equal(dst, want)


EMBEDDING = torch.zeros(4, 8)
EMBEDDING_ERRORS = {
    "src dim": ({"src": torch.zeros(4)}, "Source embedding tensor must be 2D"),
    "dst dim": ({"dst": torch.zeros(4, 8, 1)}, "Destination embedding tensor must be 2D"),
    "dtype": ({"dst": EMBEDDING.half()}, "Source and destination dtypes must match"),
    "width": ({"dst": torch.zeros(4, 7)}, "Source and destination embedding dims must match"),
    "contiguous": ({"src": torch.zeros(8, 8)[::2]}, "Embedding tensors must be contiguous"),
    "device": ({"src": torch.zeros(4, 8, device="meta")}, "Both embedding tensors must be on the CPU"),
    "dst starts": ({"dst_starts": [0]}, "src_starts and dst_starts must have the same length"),
    "lengths": ({"lengths": [1]}, "src_starts and lengths must have the same length"),
    "length": ({"lengths": [1, -1]}, "Range length must be non-negative"),
    "src start": ({"src_starts": [0, -1]}, "Source range start must be non-negative"),
    "dst start": ({"dst_starts": [0, -1]}, "Destination range start must be non-negative"),
    "src end": ({"src_starts": [0, 4]}, "Source range is out of bounds"),
    "dst end": ({"dst_starts": [0, 4]}, "Destination range is out of bounds"),
}


@pytest.mark.parametrize("case", EMBEDDING_ERRORS)
def test_embedding_errors(case):
    """Each wrong argument is named in upstream's words, and nothing is copied."""
    changed, message = EMBEDDING_ERRORS[case]
    dst = torch.zeros(4, 8)
    arguments = {"src": EMBEDDING + 1, "dst": dst, "src_starts": [0, 1], "dst_starts": [0, 1], "lengths": [1, 1]}
    with pytest.raises(RuntimeError) as error:
        kvcacheio.transfer_embedding_ranges_direct(**arguments | changed)
    assert str(error.value) == message
    assert not dst.any()


def test_device_accessible_ptr():
    """The address of a CPU tensor is its own."""
    tensor = torch.zeros(8)[3:]
    assert kvcacheio.get_device_accessible_ptr(tensor, 0) == tensor.data_ptr()
    with pytest.raises(RuntimeError, match=r"^Target device index must be non-negative$"):
        kvcacheio.get_device_accessible_ptr(tensor, -1)
    with pytest.raises(RuntimeError, match=r"^Only CPU and target-device tensors are supported$"):
        kvcacheio.get_device_accessible_ptr(tensor.to("meta"), 0)
