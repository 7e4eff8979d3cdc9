"""The transfer matrix as tables of its own: for each provider and column, kernel, layout and dtype by page size."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pytest_sglhw.report.matrix import Cell, Column, Matrix


class TransferTable(NamedTuple):
    """One provider in one column of the hardware matrix."""

    provider: str
    column: Column
    heads: list[str]
    """Page sizes."""
    rows: list[tuple[str, ...]]
    """``(kernel, layout, dtype)``"""
    cells: dict[tuple[str, ...], Cell]
    """``(kernel, layout, dtype, page_size)`` -> cell"""

    @property
    def title(self) -> str:
        """What the table shows."""
        return f"{self.provider} in {self.column.label}"


def transfer_tables(matrix: Matrix) -> list[TransferTable]:
    """Return one table for each provider and column that has transfer-matrix items."""
    tables = []
    tests = [test for test in matrix.tests if isinstance(test, tuple)]
    for provider in dict.fromkeys(test[0] for test in tests):
        for column in matrix.columns:
            cells = {test[1:]: column.cells[test] for test in tests if test[0] == provider and test in column.cells}
            if cells:
                tables.append(_table(provider, column, cells))
    return tables


def _table(provider: str, column: Column, cells: dict[tuple[str, ...], Cell]) -> TransferTable:
    rows = sorted({key[:-1] for key in cells})
    heads = sorted({key[-1] for key in cells}, key=lambda page_size: page_size.zfill(8))
    return TransferTable(provider, column, heads, rows, cells)
