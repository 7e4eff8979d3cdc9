"""The matrix for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_sglhw.record import printable
from pytest_sglhw.report.summary import Table, fakes, heading, headline, tables

if TYPE_CHECKING:
    from pytest_sglhw.report.findings import Finding, Findings
    from pytest_sglhw.report.matrix import Matrix

#: A longer list ends in a count: the other formats have all of it.
LINES_SHOWN = 30


def render(matrix: Matrix, findings: Findings) -> str:
    """Render lists first, then the tables."""
    return "\n".join([*_lines(matrix, findings), ""])


def _lines(matrix: Matrix, findings: Findings) -> Iterator[str]:
    yield printable(headline(matrix, findings))
    yield from map(printable, fakes(matrix))
    for word, found in findings.items():
        yield ""
        yield heading(word, len(found))
        yield from (f"  {printable(line_of(finding))}" for finding in found[:LINES_SHOWN])
        if len(found) > LINES_SHOWN:
            yield f"  ... and {len(found) - LINES_SHOWN} more (all of them: --format json or html)"
    for table in tables(matrix):
        yield ""
        yield from _table(table)


def line_of(finding: Finding) -> str:
    """One finding as one line."""
    where = f" [{finding.where}]" if finding.where else ""
    return f"{finding.what}{where}: {finding.why}"


def _table(table: Table) -> Iterator[str]:
    yield printable(table.title) + (f" ({table.note})" if table.note else "")
    rows = [[printable(cell) for cell in row] for row in (table.head, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + _padded(row, widths).rstrip()


def _padded(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
