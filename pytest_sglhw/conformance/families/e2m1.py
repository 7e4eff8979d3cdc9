"""E2M1, the four-bit float of MXFP4 and NVFP4, and block scaling with a power of two: quantise, pack, and back.

Everything here is arithmetic on values, written from the format: 1 sign bit, 2 exponent bits (bias 1), 1 mantissa bit,
no infinity, no NaN. Nothing is taken from a library that is under test.
"""

from __future__ import annotations

from typing import Literal

import torch

BLOCK = 16
"""Values that share a scale in SGLang's ``fp4_mx_block16``."""

EXPONENT_BIAS = 127

Ties = Literal["even", "away"]


def e2m1_value(code: int) -> float:
    """The value of a four-bit code.

    >>> [e2m1_value(code) for code in range(8)]
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    >>> e2m1_value(0b1111)
    -6.0
    """
    sign, exponent, mantissa = code >> 3 & 1, code >> 1 & 3, code & 1
    magnitude = (1 + mantissa / 2) * 2.0 ** (exponent - 1) if exponent else mantissa / 2
    return -magnitude if sign else magnitude


GRID = torch.tensor([e2m1_value(code) for code in range(8)], dtype=torch.float64)
"""The eight magnitudes; the index is the code."""


def encode(values: torch.Tensor, ties: Ties = "even") -> torch.Tensor:
    """Round to the nearest E2M1 value, saturating at 6; return the codes (uint8), the sign of zero kept.

    :param values: float64, finite.
    :param ties: where halfway values go: to the ``even`` code (OCP, and what the hardware does), or ``away`` from zero.
    """
    magnitude = values.abs().clamp(max=6.0)
    distance = (magnitude.unsqueeze(-1) - GRID).abs()
    nearest = distance == distance.min(dim=-1, keepdim=True).values
    codes = torch.arange(8)
    # Of two codes at the same distance one is even, and the larger one is farther from zero.
    preference = (codes % 2 == 0).long() if ties == "even" else codes
    code = torch.where(nearest, 1 + preference, 0).argmax(dim=-1)
    return (code | (torch.signbit(values).long() << 3)).to(torch.uint8)


def is_tie(values: torch.Tensor) -> torch.Tensor:
    """Whether values lie exactly halfway between two neighbours of the grid."""
    return encode(values, "even") != encode(values, "away")


def decode(codes: torch.Tensor) -> torch.Tensor:
    """The values (float64) of four-bit codes."""
    magnitude = GRID[(codes & 7).long()]
    return torch.where((codes & 8) != 0, -magnitude, magnitude)


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Two codes a byte along the last axis: the even element in the low nibble."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """Undo :func:`pack`."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)


def block_exponents(values: torch.Tensor) -> torch.Tensor:
    """The exponent of each block's scale: the least power of two with ``amax / scale <= 6`` (int64).

    :param values: float64, ``[..., BLOCK]``. A largest magnitude below ``6e-10`` counts as that.
    """
    amax = values.abs().amax(dim=-1)
    mantissa, exponent = torch.frexp((amax / 6.0).clamp(min=1e-10))
    # frexp gives mantissa in [0.5, 1): the quotient is a power of two exactly where the mantissa is one half.
    return exponent.long() - (mantissa == 0.5).long()


def quantize(values: torch.Tensor, ties: Ties = "even") -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise ``[B, M, N]`` to payload ``[B, M, N / 2]`` and scales ``[B, M * N / 16]``, both uint8."""
    batch, rows, width = values.shape
    blocks = values.double().reshape(batch, -1, BLOCK)
    exponents = block_exponents(blocks)
    codes = encode(blocks * torch.exp2(-exponents.double()).unsqueeze(-1), ties)
    return pack(codes.reshape(batch, rows, width)), (exponents + EXPONENT_BIAS).to(torch.uint8)


def dequantize(payload: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Undo :func:`quantize` up to rounding: ``[B, M, N]`` in float64."""
    batch, rows, half = payload.shape
    values = decode(unpack(payload)).reshape(batch, -1, BLOCK)
    return (values * torch.exp2(scales.double() - EXPONENT_BIAS).unsqueeze(-1)).reshape(batch, rows, 2 * half)
