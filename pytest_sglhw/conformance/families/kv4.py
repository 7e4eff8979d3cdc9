"""KV4 by SGLang's ``fp4_mx_block16``: quantise and dequantise blocks of 16 values that share a power of two.

The truth is :mod:`pytest_sglhw.conformance.families.e2m1`: halfway values go to the even code (OCP MX), and zero keeps
its sign.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.checks import LAWS
from pytest_sglhw.conformance.families import e2m1
from pytest_sglhw.conformance.families.values import ValueTrial, ValueWorkload
from pytest_sglhw.conformance.family import Kernel

if TYPE_CHECKING:
    import random

    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.family import Draw

Block = tuple[float, ...]


@dataclass(frozen=True)
class Blocks:
    """One case: the values of each block of 16 (or the codes and the scale), and the width of a row of the tensor."""

    blocks: tuple[Block, ...]
    width: int
    seed: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """``[B, M, N]``; a block may span two rows, and a row two blocks."""
        return (1, len(self.blocks) * e2m1.BLOCK // self.width, self.width)


class Kv4Workload(ValueWorkload):
    """What quantising and dequantising share: cases that are lists of blocks."""

    def factors(self, cell: Cell) -> Mapping[str, Sequence[Any]]:
        """See :class:`Workload`."""
        return {"count": (2, 4, 10), "width": (16, 8, 32)}

    def draw(self, cell: Cell, draw: Draw) -> Blocks:
        """See :class:`Workload`."""
        chosen = {name: draw.choice(name, values) for name, values in self.factors(cell).items()}
        rng = draw.random()
        blocks = tuple(self.block(cell, rng) for _ in range(chosen["count"]))
        return Blocks(blocks, chosen["width"], rng.randrange(1 << 16))

    def block(self, cell: Cell, rng: random.Random) -> Block:
        """Draw one block."""
        raise NotImplementedError

    def smaller(self, cell: Cell, case: Blocks) -> Iterator[Blocks]:
        """See :class:`Workload`: fewer blocks, then zeros for halves, quarters and single values of a block."""
        for number in range(0, len(case.blocks) if len(case.blocks) > 2 else 0, 2):
            yield replace(case, blocks=case.blocks[:number] + case.blocks[number + 2 :])
        for size in (8, 4, 1):
            for number, block in enumerate(case.blocks):
                for start in range(0, e2m1.BLOCK, size):
                    zeroed = (*block[:start], *[0.0] * size, *block[start + size :])
                    if repr(zeroed) != repr(block):
                        yield replace(case, blocks=(*case.blocks[:number], zeroed, *case.blocks[number + 1 :]))


class Quantize(Kv4Workload):
    """``quantize([B, M, N]) -> payload, scales``. The cell's layout says which values are drawn."""

    returns = ("payload", "scales")

    def block(self, cell: Cell, rng: random.Random) -> Block:
        """See :class:`Kv4Workload`."""
        if cell.layout == "above_six":
            return _above_six(rng, cell.torch_dtype())
        values = {"plain": _plain, "ties": _ties, "negative_zero": _negative_zero}[cell.layout](rng)
        return tuple(torch.tensor(values, dtype=torch.float64).to(cell.torch_dtype()).tolist())

    def inputs(self, cell: Cell, case: Blocks) -> Mapping[str, torch.Tensor]:
        """See :class:`ValueWorkload`."""
        return {"values": torch.tensor(case.blocks, dtype=cell.torch_dtype()).reshape(case.shape)}

    def truth(self, trial: ValueTrial) -> Sequence[torch.Tensor]:
        """See :class:`ValueWorkload`."""
        return e2m1.quantize(trial.inputs["values"])


class Dequantize(Kv4Workload):
    """``dequantize(payload, scales, dtype) -> [B, M, N]``; a block is 16 codes and its scale."""

    def block(self, cell: Cell, rng: random.Random) -> Block:
        """See :class:`Kv4Workload`; every value is exact in the dtype."""
        span = 10 if cell.dtype == "float16" else 120
        return (
            *(float(rng.randrange(16)) for _ in range(e2m1.BLOCK)),
            float(e2m1.EXPONENT_BIAS + rng.randint(-span, span)),
        )

    def inputs(self, cell: Cell, case: Blocks) -> Mapping[str, torch.Tensor]:
        """See :class:`ValueWorkload`."""
        table = torch.tensor(case.blocks, dtype=torch.uint8)
        payload = e2m1.pack(table[:, : e2m1.BLOCK].reshape(case.shape))
        return {"payload": payload, "scales": table[:, e2m1.BLOCK].reshape(1, -1)}

    def arguments(self, trial: ValueTrial, tensors: Mapping[str, torch.Tensor]) -> list[Any]:
        """See :class:`ValueWorkload`."""
        return [*tensors.values(), trial.cell.torch_dtype()]

    def truth(self, trial: ValueTrial) -> Sequence[torch.Tensor]:
        """See :class:`ValueWorkload`."""
        return [e2m1.dequantize(**trial.inputs).to(trial.cell.torch_dtype())]


def _plain(rng: random.Random) -> list[float]:
    """Values that no rule about ties or signed zeros decides, in every dtype: grid values, a quarter of a step off."""
    scale = 2.0 ** rng.randint(-6, 6)
    magnitudes = [
        rng.choice((0.125, 0.5, 1.0, 1.125, 1.5, 1.625, 2.25, 3.25, 3.75, 4.5, 5.5, 6.0)) for _ in range(e2m1.BLOCK)
    ]
    magnitudes[rng.randrange(e2m1.BLOCK)] = rng.choice((3.25, 6.0, 5.5))
    return [rng.choice((scale, -scale)) * magnitude for magnitude in magnitudes]


def _ties(rng: random.Random) -> list[float]:
    """A block whose largest magnitude is 6 (before scaling), the others halfway between neighbours."""
    scale = 2.0 ** rng.randint(-6, 6)
    halfway = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
    return [6.0 * scale, *(rng.choice((scale, -scale)) * rng.choice(halfway) for _ in range(e2m1.BLOCK - 1))]


def _negative_zero(rng: random.Random) -> list[float]:
    return [rng.choice((-0.0, 1.0, 6.0)) for _ in range(e2m1.BLOCK - 1)] + [-0.0]


def _above_six(rng: random.Random, dtype: torch.dtype) -> Block:
    """Ones, and the least value above six times a power of two: the scale has to be the next power of two."""
    power = 2.0 ** rng.choice((-7, -6, -5, 4, 5, 6))
    largest = torch.nextafter(torch.tensor(6.0 * power, dtype=dtype), torch.tensor(65504.0, dtype=dtype))
    return (float(largest), *[power] * (e2m1.BLOCK - 1))


KERNELS: tuple[Kernel, ...] = (
    Kernel(
        "fp4_mx_block16_quantize",
        "kv4",
        ("plain", "ties", "negative_zero", "above_six"),
        Quantize(),
        (LAWS["repeat"],),
        ("bfloat16", "float16", "float32"),
        (1,),
    ),
    Kernel(
        "fp4_mx_block16_dequantize",
        "kv4",
        ("plain",),
        Dequantize(),
        (LAWS["repeat"],),
        ("bfloat16", "float16", "float32"),
        (1,),
    ),
)
