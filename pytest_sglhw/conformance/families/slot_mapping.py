"""HiSparse slot mapping: logical token slots to physical rows, padding kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.checks import LAWS
from pytest_sglhw.conformance.families.runs import INDEX_DTYPES
from pytest_sglhw.conformance.families.values import ValueTrial, ValueWorkload
from pytest_sglhw.conformance.family import Kernel

if TYPE_CHECKING:
    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.family import Draw


@dataclass(frozen=True)
class Mapped:
    """One case: physical rows by logical slot, and the locations to translate (negative ones are padding)."""

    mapping: tuple[int, ...]
    locations: tuple[int, ...]
    mapping_dtype: str
    locations_dtype: str
    stride: int
    seed: int


class Translate(ValueWorkload):
    """``translate_padded_hisparse_locations(mapping, locations)``: a new tensor of the promoted dtype."""

    def factors(self, cell: Cell) -> Mapping[str, Sequence[Any]]:
        """See :class:`Workload`: the kernel works in blocks of 128 locations."""
        dtypes = tuple(INDEX_DTYPES)
        return {
            "count": (1, 0, 7, 127, 128, 129, 300),
            "mapping_dtype": dtypes,
            "locations_dtype": dtypes,
            "stride": (1, 2, 5),
        }

    def draw(self, cell: Cell, draw: Draw) -> Mapped:
        """See :class:`Workload`; the rows of an int64 mapping do not fit in 32 bits."""
        chosen = {name: draw.choice(name, values) for name, values in self.factors(cell).items()}
        rng, count = draw.random(), chosen.pop("count")
        top = 1 << (40 if chosen["mapping_dtype"] == "int64" else 31)
        mapping = tuple(rng.randrange(-1, top) for _ in range(rng.randint(1, 50)))
        locations = tuple(rng.choice((-1, -7, rng.randrange(len(mapping)), len(mapping) - 1)) for _ in range(count))
        return Mapped(mapping, locations, **chosen, seed=rng.randrange(1 << 16))

    def smaller(self, cell: Cell, case: Mapped) -> Iterator[Mapped]:
        """See :class:`Workload`."""
        count = len(case.locations)
        for size in (count // 2, count // 4, 1):
            for start in range(0, count, size) if 0 < size < count else ():
                yield replace(case, locations=case.locations[:start] + case.locations[start + size :])
        if case.stride > 1:
            yield replace(case, stride=1)

    def inputs(self, cell: Cell, case: Mapped) -> Mapping[str, torch.Tensor]:
        """See :class:`ValueWorkload`; between the locations of a strided input stand others."""
        locations = torch.zeros((len(case.locations), case.stride), dtype=INDEX_DTYPES[case.locations_dtype])
        locations[:, 0] = torch.tensor(case.locations, dtype=locations.dtype)
        return {"mapping": torch.tensor(case.mapping, dtype=INDEX_DTYPES[case.mapping_dtype]), "locations": locations}

    def arguments(self, trial: ValueTrial, tensors: Mapping[str, torch.Tensor]) -> list[Any]:
        """See :class:`ValueWorkload`."""
        return [tensors["mapping"], tensors["locations"][:, 0]]

    def truth(self, trial: ValueTrial) -> Sequence[torch.Tensor]:
        """See :class:`ValueWorkload`."""
        case = trial.case
        dtype = torch.int64 if "int64" in (case.mapping_dtype, case.locations_dtype) else torch.int32
        return [torch.tensor([case.mapping[each] if each >= 0 else each for each in case.locations], dtype=dtype)]


KERNELS: tuple[Kernel, ...] = (
    Kernel(
        "translate_padded_hisparse_locations",
        "hisparse",
        ("slots",),
        Translate(),
        (LAWS["repeat"],),
        ("uint8",),
        (1,),
    ),
)
