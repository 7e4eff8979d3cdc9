"""The matrix as GitHub markdown for a job summary, below the size that GitHub takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_sglhw.record import printable
from pytest_sglhw.report.findings import FAIL_ON, Finding, Findings
from pytest_sglhw.report.summary import Table, fakes, heading, headline, tables

if TYPE_CHECKING:
    from pytest_sglhw.report.matrix import Matrix

#: GitHub takes 1 MiB for a step; the rest is room for what else the step writes.
SIZE_LIMIT = 1_000_000

_PLAIN = re.compile(r"-|[A-Za-z0-9][A-Za-z0-9 ,/]*|")

_SPECIAL = re.compile(r"[^A-Za-z0-9 ]")


def inline(text: str) -> str:
    """Return ``text`` so that GitHub shows its characters: no markup, no link, no mention, no line of its own.

    A code span does that, and can be read and searched in the source too. Only a backtick (ends it), a pipe and a
    backslash (mean something in a table even there) need character references, which are never read as markup.
    """
    text = printable(text)
    if _PLAIN.fullmatch(text):
        return text
    if not any(sign in text for sign in "`|\\"):
        return f"`{text}`"
    return "<code>" + _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", text) + "</code>"


def render(matrix: Matrix, findings: Findings, limit: int = SIZE_LIMIT) -> str:
    """Render lists first, then the tables; what does not fit in ``limit`` bytes is left out and counted."""
    page = _Page(limit)
    page.add(["# Hardware matrix", "", headline(matrix, findings), ""])
    page.add([*(f"> **Note:** {inline(fake)}" for fake in fakes(matrix)), ""])
    lanes, *others = tables(matrix)
    page.add_rows(lanes.title, _table_head(lanes), [_row(row) for row in lanes.rows])
    for word, found in findings.items():
        opened = " open" if word in FAIL_ON else ""
        head = [f"<details{opened}><summary>{heading(word, len(found))}</summary>", ""]
        page.add_rows(heading(word, len(found)), head, list(map(_line, found)), ["", "</details>", ""])
    for table in others:
        page.add_rows(table.title, _table_head(table), [_row(row) for row in table.rows])
    return page.text()


class _Page:
    """Lines up to a size; what did not fit is named at the end."""

    #: Room for the list of what was left out.
    _RESERVE = 20_000

    def __init__(self, limit: int) -> None:
        self._lines: list[str] = []
        self._left = limit - min(self._RESERVE, limit // 2)
        self._left_out: list[str] = []

    def add(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._lines.append(line)
            self._left -= len(line.encode("utf-8", "replace")) + 1

    def add_rows(self, name: str, head: Sequence[str], rows: list[str], tail: Sequence[str] = ("",)) -> None:
        """Add as many rows as fit, whole; ``name`` is what the rest is called."""
        around = sum(len(line.encode("utf-8", "replace")) + 1 for line in (*head, *tail))
        if around > self._left:
            self._left_out.append(f"{name}: all {len(rows)} rows")
            return
        self.add(head)
        room = self._left - sum(len(line) + 1 for line in tail)
        taken = list(_fitting(rows, room))
        self.add(taken)
        self.add(tail)
        if len(taken) < len(rows):
            self._left_out.append(f"{name}: {len(rows) - len(taken)} of {len(rows)} rows")

    def text(self) -> str:
        if self._left_out:
            self._lines += ["", "**Left out, since a job summary holds 1 MiB** (the HTML page has everything):", ""]
            self._lines += [f"- {inline(what[:200])}" for what in self._left_out[:50]]
            if len(self._left_out) > 50:
                self._lines.append(f"- and {len(self._left_out) - 50} more tables")
        return "\n".join([*self._lines, ""])


def _fitting(rows: Iterable[str], room: int) -> Iterator[str]:
    for row in rows:
        room -= len(row.encode("utf-8", "replace")) + 1
        if room < 0:
            return
        yield row


def _line(finding: Finding) -> str:
    where = f" ({inline(finding.where)})" if finding.where else ""
    return f"- {inline(finding.what)}{where}: {inline(finding.why)}"


def _table_head(table: Table) -> list[str]:
    lines = [f"## {inline(table.title)}", ""]
    if table.note:
        lines += [table.note, ""]
    return [*lines, _row(table.head), "|" + " --- |" * len(table.head)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(inline(cell) or " " for cell in cells) + " |"
