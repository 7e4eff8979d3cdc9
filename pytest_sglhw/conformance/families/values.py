"""Kernels that return what they compute and write nothing: their inputs must stay as they were."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.family import Trial, Workload
from pytest_sglhw.conformance.pools import Buffer, Windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.devices import Place
    from pytest_sglhw.conformance.family import KernelFunction


class Filled(Buffer):
    """A buffer with chosen contents."""

    def __init__(self, place: Place, windows: Windows, values: torch.Tensor) -> None:
        data = values.contiguous().view(torch.uint8).flatten()
        super().__init__(place, windows, data.numel())
        self.before = self.before.clone()
        self.before[self.start : self.start + self.nbytes] = data
        self.restore()


class ValueTrial(Trial):
    """The inputs of one case of a :class:`ValueWorkload`, by name."""

    def __init__(self, workload: ValueWorkload, cell: Cell, case: Any, place: Place) -> None:
        self.workload, self.cell, self.case, self.place = workload, cell, case, place
        self.inputs = workload.inputs(cell, case)
        self.itemsize: dict[str, int] = {}
        windows = Windows(case.seed)
        self.buffers = {name: Filled(place, windows, values) for name, values in self.inputs.items()}

    def tensors(self) -> dict[str, torch.Tensor]:
        """The inputs on the device, each in its own guarded memory."""
        return {
            name: self.buffers[name].contents(values.dtype).view(values.shape) for name, values in self.inputs.items()
        }

    def arguments(self, **variation: Any) -> list[Any]:
        """See :class:`Trial`."""
        return self.workload.arguments(self, self.tensors())

    def ways(self, law: str) -> Sequence[Sequence[Mapping[str, Any]]]:
        """See :class:`Trial`."""
        return [[{}]] if law == "repeat" else []

    def call(self, function: KernelFunction, arguments: list[Any]) -> Mapping[str, torch.Tensor]:
        """See :class:`Trial`."""
        returned = function(*arguments, **self.workload.keywords(self))
        return self._images(returned if isinstance(returned, tuple) else (returned,))

    def expected(self) -> Mapping[str, torch.Tensor]:
        """See :class:`Trial`."""
        return self._images(self.workload.truth(self))

    def _images(self, values: Sequence[Any]) -> dict[str, torch.Tensor]:
        """The bytes of each returned tensor's elements and, before them, of its dtype and shape: all must agree."""
        images = {}
        for name, value in zip(self.workload.returns, map(torch.as_tensor, values), strict=True):
            kind = f"{value.dtype} {tuple(value.shape)}".ljust(64).encode()
            images[f"dtype and shape of {name}"] = torch.tensor(list(kind), dtype=torch.uint8)
            images[name] = value.detach().cpu().contiguous().flatten().view(torch.uint8)
            self.itemsize[name] = value.element_size()
        return images

    def locate(self, buffer: str, byte: int) -> str:
        """See :class:`Trial`."""
        size = self.itemsize.get(buffer, 1)
        return f"byte {byte % size} of element {byte // size}"


class ValueWorkload(Workload):
    """A kernel that returns tensors. ``returns`` names them."""

    returns: Sequence[str] = ("result",)

    def build(self, cell: Cell, case: Any, place: Place) -> ValueTrial:
        """See :class:`Workload`."""
        return ValueTrial(self, cell, case, place)

    @abstractmethod
    def inputs(self, cell: Cell, case: Any) -> Mapping[str, torch.Tensor]:
        """The input tensors of a case, on the CPU."""

    def arguments(self, trial: ValueTrial, tensors: Mapping[str, torch.Tensor]) -> list[Any]:
        """The positional arguments of one call."""
        return list(tensors.values())

    def keywords(self, trial: ValueTrial) -> Mapping[str, Any]:
        """The keyword arguments of one call."""
        return {}

    @abstractmethod
    def truth(self, trial: ValueTrial) -> Sequence[Any]:
        """What the kernel must return, in the order of ``returns``."""
