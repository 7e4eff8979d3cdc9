"""E2M1 by hand: values, ties, signs of zero, nibble order, scales."""

from __future__ import annotations

import math

import pytest
import torch

from pytest_sglhw.conformance.families import e2m1


def _encode(*values, ties="even"):
    return e2m1.encode(torch.tensor(values, dtype=torch.float64), ties).tolist()


def test_values_of_the_sixteen_codes():
    """The grid is 0, 1/2, 1, 3/2, 2, 3, 4, 6, and the same with a sign."""
    values = e2m1.decode(torch.arange(16, dtype=torch.uint8)).tolist()
    assert values == [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
    assert math.copysign(1, values[8]) == -1


@pytest.mark.parametrize(
    ("halfway", "even", "away"),
    [(0.25, 0, 1), (0.75, 2, 2), (1.25, 2, 3), (1.75, 4, 4), (2.5, 4, 5), (3.5, 6, 6), (5.0, 6, 7)],
)
def test_ties(halfway, even, away):
    """A value halfway goes to the even code, or away from zero, with either sign."""
    assert _encode(halfway, -halfway) == [even, even | 8]
    assert _encode(halfway, -halfway, ties="away") == [away, away | 8]
    assert e2m1.is_tie(torch.tensor([halfway], dtype=torch.float64)).item() == (even != away)


def test_everything_else_goes_to_the_nearest():
    """Rounding does not depend on the rule for ties, and saturates at 6."""
    values = (0.24, 0.26, 0.74, 1.3, 1.7, 2.4, 2.6, 4.9, 5.1, 6.0, 1e30)
    assert _encode(*values) == _encode(*values, ties="away") == [0, 1, 1, 3, 3, 4, 5, 6, 7, 7, 7]


def test_zero_keeps_its_sign():
    """Both zeros, and what rounds to them."""
    assert _encode(0.0, -0.0, 0.1, -0.1) == [0, 8, 0, 8]


def test_even_element_is_the_low_nibble():
    """Packing and unpacking are inverse, the even element low."""
    codes = torch.tensor([[1, 2, 15, 0]], dtype=torch.uint8)
    assert e2m1.pack(codes).tolist() == [[0x21, 0x0F]]
    assert torch.equal(e2m1.unpack(e2m1.pack(codes)), codes)


@pytest.mark.parametrize(
    ("largest", "exponent"), [(6.0, 0), (6.000001, 1), (12.0, 1), (5.9, 0), (3.0, -1), (3.1, 0), (6.0 * 2**40, 40)]
)
def test_scale_is_the_least_power_of_two_that_avoids_saturation(largest, exponent):
    """``amax / scale`` is in (3, 6]."""
    block = torch.zeros(e2m1.BLOCK, dtype=torch.float64)
    block[7] = -largest
    assert e2m1.block_exponents(block).item() == exponent


def test_zero_block_has_the_scale_of_the_floor():
    """A block of zeros is scaled as if its largest value were 6e-10."""
    payload, scales = e2m1.quantize(torch.zeros(1, 1, e2m1.BLOCK))
    assert payload.tolist() == [[[0] * 8]]
    assert scales.tolist() == [[94]]


def test_blocks_run_over_rows():
    """A block of 16 spans two rows of 8; a row of 32 has two blocks."""
    values = torch.full((1, 2, 8), 1.0)
    values[0, 1, 0] = 6.0
    assert e2m1.quantize(values)[1].tolist() == [[127]]
    wide = torch.cat((torch.full((1, 1, 16), 6.0), torch.full((1, 1, 16), 12.0)), dim=-1)
    assert e2m1.quantize(wide)[1].tolist() == [[127, 128]]


def test_quantising_what_was_dequantised_changes_nothing():
    """On values of the format the round trip is the identity, for both rules."""
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(3, 4, 32, generator=generator, dtype=torch.float64)
    once = e2m1.dequantize(*e2m1.quantize(values))
    assert torch.equal(e2m1.dequantize(*e2m1.quantize(once)), once)
    assert torch.equal(e2m1.dequantize(*e2m1.quantize(once, "away")), once)


def test_error_is_at_most_half_a_step():
    """Each value is off by no more than half the distance of its neighbours on the grid."""
    generator = torch.Generator().manual_seed(2)
    values = torch.randn(2, 8, 16, generator=generator, dtype=torch.float64)
    payload, scales = e2m1.quantize(values)
    scale = torch.exp2(scales.double() - 127).unsqueeze(-1)
    blocks, back = (each.reshape(2, 8, 16) / scale for each in (values, e2m1.dequantize(payload, scales)))
    step = torch.where(blocks.abs() < 2, 0.5, torch.where(blocks.abs() < 4, 1.0, 2.0))
    assert ((blocks - back).abs() <= step / 2).all()
