"""SGLang's KV4 utility against this project's own E2M1 arithmetic, on a CPU, without ``torch.compile``."""

from __future__ import annotations

import pytest
import torch

from pytest_sglhw.conformance import providers_sglang
from pytest_sglhw.conformance.families import e2m1

quantize = providers_sglang.triton.fp4_mx_block16_quantize
dequantize = providers_sglang.triton.fp4_mx_block16_dequantize


def _block(*values, dtype=torch.float32):
    block = torch.zeros(1, 1, e2m1.BLOCK, dtype=dtype)
    block[0, 0, : len(values)] = torch.tensor(values, dtype=dtype)
    return block


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(1, 2, 8), (3, 4, 32), (2, 7, 128)])
def test_random_tensors_agree_with_ties_away(dtype, shape):
    """On random values the utility is this project's arithmetic with ties away from zero, byte for byte."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(5)).to(dtype)
    payload, scales = quantize(values)
    want_payload, want_scales = e2m1.quantize(values, "away")
    same = scales == want_scales
    # A largest value just above six times a power of two gets another scale: see the next test but one.
    assert same.float().mean() > 0.9
    blocks = payload.reshape(shape[0], -1, e2m1.BLOCK // 2)[same]
    assert torch.equal(blocks, want_payload.reshape(shape[0], -1, e2m1.BLOCK // 2)[same])
    assert torch.equal(dequantize(payload, scales, torch.float32).double(), e2m1.dequantize(payload, scales))


@pytest.mark.parametrize(
    ("halfway", "got", "even"),
    [(0.25, 0.5, 0.0), (1.25, 1.5, 1.0), (2.5, 3.0, 2.0), (5.0, 6.0, 4.0), (0.75, 1.0, 1.0), (1.75, 2.0, 2.0)],
)
def test_ties_go_away_from_zero(halfway, got, even):
    """Four of the seven halfway values differ from round half to even."""
    values = _block(6.0, halfway, -halfway)
    assert dequantize(*quantize(values), torch.float32)[0, 0, 1:3].tolist() == [got, -got]
    assert e2m1.dequantize(*e2m1.quantize(values))[0, 0, 1:3].tolist() == [even, -even]


def test_scale_is_rounded_in_the_dtype_of_the_input():
    """96.5 needs the scale 32; computed in bfloat16 it gets 16 and saturates at 96."""
    values = _block(96.5, *[16.0] * 15, dtype=torch.bfloat16)
    payload, scales = quantize(values)
    assert (scales.item(), e2m1.quantize(values)[1].item()) == (127 + 4, 127 + 5)
    assert dequantize(payload, scales, torch.float32)[0, 0, 0] == 96.0


def test_sign_of_zero():
    """-0.0 loses its sign, a small negative value keeps it."""
    payload, _ = quantize(_block(6.0, -0.0, -0.1))
    assert (payload[0, 0, 0] >> 4, payload[0, 0, 1] & 15) == (0, 8)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_takes_its_block_with_it(bad):
    """The scale becomes 0, so the whole block reads back as (almost) zero; nothing says that something was lost."""
    payload, scales = quantize(_block(bad, *[6.0] * 15))
    assert scales.item() == 0
    assert dequantize(payload, scales, torch.float32).abs().max() < 1e-30


@pytest.mark.parametrize("code", range(16))
def test_every_code_reads_back(code):
    """Both nibbles of each code give the value of the format."""
    payload = torch.full((1, 1, 8), code | code << 4, dtype=torch.uint8)
    values = dequantize(payload, torch.tensor([[127]], dtype=torch.uint8), torch.float32)
    assert values.unique().tolist() == [e2m1.e2m1_value(code)]
