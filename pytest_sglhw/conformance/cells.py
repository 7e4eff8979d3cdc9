"""The cells of the matrix: kernel x layout x dtype x page size, their ids, and the exact filters over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import torch

#: dtype name -> (torch attribute, bytes per element). Packed fp4 has no torch dtype of its own that can be indexed on a
#: CPU; SGLang stores two elements in a uint8, and so do we.
DTYPES: Mapping[str, tuple[str, int]] = {
    "float32": ("float32", 4),
    "float16": ("float16", 2),
    "bfloat16": ("bfloat16", 2),
    "float8_e4m3fn": ("float8_e4m3fn", 1),
    "float8_e5m2": ("float8_e5m2", 1),
    "uint8": ("uint8", 1),
    "int8": ("int8", 1),
    "fp4_e2m1x2": ("uint8", 1),
}

PAGE_SIZES = (1, 2, 3, 4, 5, 16, 24, 64, 128)

LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head")


class Cell(NamedTuple):
    """One cell of the matrix: what one test item exercises."""

    kernel: str
    layout: str
    dtype: str
    page_size: int

    @property
    def id(self) -> str:
        """The cell's part of the test id, e.g. ``transfer_kv_direct-layer_first-bfloat16-p16``."""
        return f"{self.kernel}-{self.layout}-{self.dtype}-p{self.page_size}"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return DTYPES[self.dtype][1]

    def torch_dtype(self) -> torch.dtype:
        """The torch dtype that stores this cell's elements."""
        import torch

        dtype: torch.dtype = getattr(torch, DTYPES[self.dtype][0])
        return dtype


class Filters(NamedTuple):
    """Exact names to keep; an empty column keeps everything."""

    kernel: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    page_size: tuple[int, ...] = ()

    def accept(self, cell: Cell) -> bool:
        """Whether every column that is filtered names this cell's value."""
        return all(not wanted or value in wanted for wanted, value in zip(self, cell, strict=True))


def invalid(filters: Filters, valid: Mapping[str, Sequence[object]]) -> str | None:
    """Say which filter names nothing, and what would be valid; ``None`` if all do.

    >>> invalid(Filters(page_size=(7,)), {"page_size": (1, 2)})
    '7 is not a valid page size (--page-size). Valid: 1, 2.'
    """
    for column, values in zip(Filters._fields, filters, strict=True):
        for value in values:
            if value not in valid[column]:
                names = ", ".join(map(str, valid[column]))
                return f"{value} is not a valid {column.replace('_', ' ')} ({_option(column)}). Valid: {names}."
    return None


def selects_nothing(filters: Filters, cells: Sequence[Cell]) -> Iterator[str]:
    """Say of each valid filter that no cell is left of it beside the others, and what it would go with.

    >>> cells = cells_of("copy", ["page_first"], ["uint8"], [1, 2])
    >>> list(selects_nothing(Filters(kernel=("copy",), layout=("page_head",)), cells))[0]
    '--kernel copy selects no cell beside the other filters: copy has --layout page_first, not page_head'
    """
    for column, values in filters._asdict().items():
        for value in values:
            mine = [cell for cell in cells if getattr(cell, column) == value]
            if not any(map(filters.accept, mine)):
                line = f"{_option(column)} {value} selects no cell beside the other filters"
                yield ": ".join([line, *_conflicts(value, filters, mine)])


def _conflicts(value: object, filters: Filters, cells: Sequence[Cell]) -> Iterator[str]:
    """What a filter's own cells have in the first column in which another filter leaves none of them."""
    for column, wanted in filters._asdict().items():
        has = dict.fromkeys(getattr(cell, column) for cell in cells)
        if has and wanted and not has.keys() & set(wanted):
            names, others = (", ".join(map(str, each)) for each in (has, wanted))
            yield f"{value} has {_option(column)} {names}, not {others}"
            return


def _option(column: str) -> str:
    return f"--{column.replace('_', '-')}"


def cells_of(kernel: str, layouts: Iterable[str], dtypes: Iterable[str], page_sizes: Iterable[int]) -> list[Cell]:
    """Every cell of one kernel, in the order of its table row."""
    return [Cell(kernel, layout, dtype, size) for layout in layouts for dtype in dtypes for size in page_sizes]
