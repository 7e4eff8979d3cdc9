"""Which kernel serves a row width: the selection rules of SGLang's JIT transfers, as a table.

On a machine without a GPU there is none, and asking has to say so, not to fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

from pytest_sglhw.conformance.checks import LAWS
from pytest_sglhw.conformance.families.values import ValueTrial, ValueWorkload
from pytest_sglhw.conformance.family import Kernel

if TYPE_CHECKING:
    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.devices import Place
    from pytest_sglhw.conformance.family import Draw


class Machine(NamedTuple):
    """What the selection depends on: the platform, and the major number of an NVIDIA arch (9 for sm90)."""

    platform: Literal["cuda", "rocm", "cpu"]
    major: int = 0


ROUNDS: Mapping[str, tuple[int, ...]] = {"cuda": (128,), "rocm": (128, 64, 32, 16), "cpu": ()}
"""Bytes that a group of 32 threads can move in one round of the register kernel."""

UNROLLS = ((512, 4), (1024, 2))
"""Up to this row width, that many rows are in flight for a group; beyond, one."""

TMA_STAGE, TMA_ROWS = 32 * 1024, 128
"""The TMA kernel (NVIDIA, from major 9) moves this many bytes, and at most this many rows, at a time."""


def register_kernel(width: int, machine: Machine) -> bool:
    """Whether the register kernel can move rows of ``width`` bytes: each thread 4, 8 or 16 bytes of a whole round."""
    threads = 32 // next((unroll for limit, unroll in UNROLLS if width <= limit), 1)
    return any(width % size == 0 and size / threads in (4, 8, 16) for size in ROUNDS[machine.platform])


def tma_kernel(width: int, page_size: int, machine: Machine) -> bool:
    """Whether the TMA kernel takes rows of ``width`` bytes: 16-byte rows, chunks that pages can be tiled with."""
    if machine.platform != "cuda" or machine.major < 9 or width % 16:
        return False
    rows = 1 << (max(min(TMA_STAGE // width, TMA_ROWS), 1).bit_length() - 1)
    return page_size % rows == 0


def machine_of(place: Place) -> Machine:
    """Describe the machine of a place."""
    if place.device.type != "cuda":
        return Machine("cpu")
    if torch.version.hip:
        return Machine("rocm")
    return Machine("cuda", torch.cuda.get_device_capability(place.device)[0])


@dataclass(frozen=True)
class Width:
    """One case: a row width in bytes."""

    width: int
    seed: int


class CanUse(ValueWorkload):
    """``can_use_hicache_jit_kernel(element_size=, page_size=) -> bool``."""

    def factors(self, cell: Cell) -> Mapping[str, Sequence[Any]]:
        """See :class:`Workload`."""
        return {"width": (128, 8, 16, 24, 64, 72, 96, 256, 512, 576, 656, 1024, 1152, 2048, 4096)}

    def draw(self, cell: Cell, draw: Draw) -> Width:
        """See :class:`Workload`."""
        width = draw.choice("width", self.factors(cell)["width"])
        return Width(width, draw.random().randrange(1 << 16))

    def inputs(self, cell: Cell, case: Width) -> Mapping[str, torch.Tensor]:
        """See :class:`ValueWorkload`."""
        return {}

    def keywords(self, trial: ValueTrial) -> Mapping[str, Any]:
        """See :class:`ValueWorkload`."""
        return {"element_size": trial.case.width, "page_size": trial.cell.page_size}

    def truth(self, trial: ValueTrial) -> Sequence[bool]:
        """See :class:`ValueWorkload`."""
        width, machine = trial.case.width, machine_of(trial.place)
        return [register_kernel(width, machine) or tma_kernel(width, trial.cell.page_size, machine)]


KERNELS: tuple[Kernel, ...] = (
    Kernel(
        "can_use_hicache_jit_kernel", "selection", ("widths",), CanUse(), (LAWS["repeat"],), ("uint8",), (1, 16, 128)
    ),
)
