"""Storing rows in a cache of float8_e4m3fn: divide by a scale, convert, and leave the caller's rows alone.

The rows are drawn as codes of the format, and the scales are powers of two, so every input is exact in every dtype and
the truth is the codes themselves: no rule about rounding or saturation decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.checks import LAWS
from pytest_sglhw.conformance.families.values import ValueTrial, ValueWorkload
from pytest_sglhw.conformance.family import Kernel

if TYPE_CHECKING:
    import random

    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.family import Draw

Codes = tuple[int, ...]

SLOTS = 9
"""Slots of the caches, the reserved slot 0 among them."""


def e4m3_value(code: int) -> float:
    """The value of a float8_e4m3fn code: 1 sign bit, 4 exponent bits (bias 7), 3 mantissa bits; 0x7F and 0xFF are NaN.

    >>> e4m3_value(0x38), e4m3_value(0x7E), e4m3_value(0x81)
    (1.0, 448.0, -0.001953125)
    """
    sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
    magnitude = (1 + mantissa / 8) * 2.0 ** (exponent - 7) if exponent else mantissa / 8 * 2.0**-6
    return -magnitude if sign else magnitude


@dataclass(frozen=True)
class Scaled:
    """One case: the codes of each row of K and of V, the slot of each row, and the exponents of the two scales."""

    k: tuple[Codes, ...]
    v: tuple[Codes, ...]
    slots: tuple[int, ...]
    exponents: tuple[int, int]
    seed: int


class StoreScaled(ValueWorkload):
    """``set_kv_buffer_scaled(k, v, indices, k_scale, v_scale, slots) -> k_cache, v_cache``: new caches."""

    returns = ("K cache", "V cache")

    def factors(self, cell: Cell) -> Mapping[str, Sequence[Any]]:
        """See :class:`Workload`."""
        scales = ((0, 0),) if cell.layout == "unit_scale" else ((1, 1), (-2, 3))
        return {"count": (1, 2, 5), "widths": ((4, 4), (16, 6)), "exponents": scales}

    def draw(self, cell: Cell, draw: Draw) -> Scaled:
        """See :class:`Workload`."""
        chosen = {name: draw.choice(name, values) for name, values in self.factors(cell).items()}
        rng = draw.random()
        k, v = (tuple(_row(width, rng) for _ in range(chosen["count"])) for width in chosen["widths"])
        slots = tuple(rng.sample(range(1, SLOTS), chosen["count"]))
        return Scaled(k, v, slots, chosen["exponents"], rng.randrange(1 << 16))

    def smaller(self, cell: Cell, case: Scaled) -> Iterator[Scaled]:
        """See :class:`Workload`."""
        for row in range(len(case.slots) if len(case.slots) > 1 else 0):
            keep = [number for number in range(len(case.slots)) if number != row]
            k, v = (tuple(rows[number] for number in keep) for rows in (case.k, case.v))
            yield replace(case, k=k, v=v, slots=tuple(case.slots[number] for number in keep))

    def inputs(self, cell: Cell, case: Scaled) -> Mapping[str, torch.Tensor]:
        """See :class:`ValueWorkload`."""
        tensors = {}
        for name, rows, exponent in zip(("K rows", "V rows"), (case.k, case.v), case.exponents, strict=True):
            values = [[[e4m3_value(code) * 2.0**exponent for code in row]] for row in rows]
            tensors[name] = torch.tensor(values, dtype=cell.torch_dtype())
        return tensors

    def arguments(self, trial: ValueTrial, tensors: Mapping[str, torch.Tensor]) -> list[Any]:
        """See :class:`ValueWorkload`: without a scale where it is 1."""
        scales = [2.0**exponent if exponent else None for exponent in trial.case.exponents]
        return [*tensors.values(), trial.place.put(torch.tensor(trial.case.slots)), *scales, SLOTS]

    def truth(self, trial: ValueTrial) -> Sequence[torch.Tensor]:
        """See :class:`ValueWorkload`."""
        caches = []
        for rows in (trial.case.k, trial.case.v):
            cache = torch.zeros((SLOTS, 1, len(rows[0])), dtype=torch.uint8)
            for codes, slot in zip(rows, trial.case.slots, strict=True):
                cache[slot, 0] = torch.tensor(codes, dtype=torch.uint8)
            caches.append(cache)
        return caches


def _row(width: int, rng: random.Random) -> Codes:
    """Draw finite codes; no zero, which would look like a slot that was not written."""
    return tuple(rng.choice((rng.randrange(1, 127), rng.randrange(129, 255))) for _ in range(width))


KERNELS: tuple[Kernel, ...] = (
    Kernel(
        "set_kv_buffer_scaled",
        "store",
        ("unit_scale", "scaled"),
        StoreScaled(),
        (LAWS["repeat"],),
        ("bfloat16", "float16", "float32"),
        (1,),
    ),
)
