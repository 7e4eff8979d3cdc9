"""The smallest input of each known gap, without the matrix: plain calls of SGLang's code, plain torch for the truth."""

from __future__ import annotations

import pytest
import torch

from pytest_sglhw.conformance import providers_sglang

triton = providers_sglang.triton


def _bytes(*shape, seed=0):
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("count", "wrong"), [(256, []), (257, [256])])
def test_move_kv_cache_loses_a_row_from_257_slots_on(count, wrong):
    """Each slot moved to its successor: one launch is right, with a second one a row is lost."""
    k, v = _bytes(300, 1, 16), _bytes(300, 1, 16, seed=1)
    first, source = k.clone(), torch.arange(count)
    triton.move_kv_cache([k], [v], source + 1, source)
    different = (k[1 : count + 1] != first[:count]).flatten(1).any(dim=1)
    assert different.nonzero().flatten().tolist() == wrong


def test_move_kv_cache_loses_the_tail_of_wider_v_rows():
    """K rows of 16 bytes have one tile of 128 bytes; of a V row only that much is moved."""
    k, v = _bytes(4, 1, 16), _bytes(4, 1, 160, seed=1)
    first = v.clone()
    triton.move_kv_cache([k], [v], torch.tensor([1]), torch.tensor([2]))
    assert torch.equal(v[1, 0, :128], first[2, 0, :128])
    assert torch.equal(v[1, 0, 128:], first[1, 0, 128:])


def test_native_scales_of_overlapping_moves_are_overwritten():
    """Slots 0 to 1 and 1 to 2: slot 2 gets the scales of slot 0."""
    k, v = _bytes(1, 1, 4, 4), _bytes(1, 1, 4, 4, seed=1)
    first = k.clone()
    triton.move_nvfp4_native_scales(k, v, torch.tensor([1, 2]), torch.tensor([0, 1]))
    assert torch.equal(k[0, 0, 2], first[0, 0, 0])
    assert not torch.equal(k[0, 0, 2], first[0, 0, 1])


def test_set_kv_buffer_writes_slot_0_on_a_cpu():
    """A padding row lands in the reserved slot."""
    cache = torch.zeros(2, 1, 8)
    triton.set_kv_buffer(torch.ones(1, 1, 8), torch.ones(1, 1, 8), cache, torch.zeros(2, 1, 8), torch.tensor([0]))
    assert cache[0].eq(1).all()


def test_set_kv_buffer_divides_the_callers_rows():
    """With a scale of 2, a row of twos is a row of ones afterwards."""
    k, v = torch.full((1, 1, 8), 2.0), torch.full((1, 1, 8), 4.0)
    k_cache, _ = triton.set_kv_buffer_scaled(k, v, torch.tensor([3]), 2.0, 2.0, 5)
    assert k_cache[3].view(torch.float8_e4m3fn).float().eq(1).all()
    assert k.eq(1).all()
    assert v.eq(2).all()


@pytest.mark.parametrize(("rope", "written"), [(torch.ones(1, 1, 8), False), (None, True)])
def test_set_mla_kv_buffer_writes_slot_0_without_rope(rope, written):
    """With a rope part the reserved slot is left alone, without one it is written."""
    cache = torch.zeros(2, 1, 16 if rope is None else 24)
    triton.set_mla_kv_buffer(cache, torch.tensor([0]), torch.ones(1, 1, 16), rope)
    assert cache[0].any().item() is written


def test_reshape_and_cache_flash_reads_in_front_of_the_second_mapping():
    """The padding token's slot -1 is looked up: what stands before the mapping decides which row is overwritten."""
    memory, cache = torch.tensor([3, 1]), torch.zeros(1, 4, 1, 8)
    row = torch.ones(1, 1, 8)
    triton.reshape_and_cache_flash(row, row, cache, torch.zeros(1, 4, 1, 8), torch.tensor([-1]), memory[1:])
    assert cache[0, 3].eq(1).all()


def test_can_use_hicache_jit_kernel_raises_without_a_gpu():
    """The question is answered only where the width is refused before the device is asked."""
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        providers_sglang.jit.can_use_hicache_jit_kernel(element_size=128)
    assert providers_sglang.jit.can_use_hicache_jit_kernel(element_size=72) is False
