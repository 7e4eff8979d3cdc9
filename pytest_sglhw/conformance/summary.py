"""The table at the end of a run of the matrix: what ran, how much of it, how long, and what could not run and why."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pytest_sglhw.conformance import covering
from pytest_sglhw.conformance.cells import DTYPES, Cell
from pytest_sglhw.conformance.kernels import all_kernels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pytest

    from pytest_sglhw.conformance.providers import FoundProvider


class Summary:
    """Counts of one run, from the reports of its items."""

    def __init__(
        self, providers: Sequence[FoundProvider], kernels: Sequence[str], unmet_filters: Sequence[str] = ()
    ) -> None:
        self._providers = providers
        self._kernels = kernels
        self._unmet_filters = unmet_filters
        self._crashed: set[str] = set()
        self._cells: dict[tuple[str, Cell], dict[str, Any]] = {}
        self._met: dict[str, set[covering.Pair]] = defaultdict(set)
        self._seeds: set[int] = set()

    def add(self, report: pytest.TestReport) -> None:
        """Count the call of one item."""
        if report.when not in ("setup", "call", "teardown"):  # xdist's word for a worker that ended in a test
            self._crashed.add(report.nodeid)
        details = getattr(report, "sglhw_matrix", None)
        if report.when != "call" or details is None:
            return
        facts = report.sglhw["matrix"]
        cell = Cell(facts["kernel"], facts["layout"], facts["dtype"], facts["page_size"])
        outcome = "known gap" if hasattr(report, "wasxfail") else report.outcome
        self._cells[facts["provider"], cell] = {
            "outcome": outcome,
            "examples": facts["examples"],
            "seconds": report.duration,
            "rejected": details["rejected"],
        }
        self._seeds.add(details["seed"])
        for values in details["levels"]:
            self._met[cell.kernel].update(covering.pairs_of(cell, dict(values)))

    def passed(self, provider: str) -> list[Cell]:
        """The cells of a provider that passed."""
        return [cell for (name, cell), row in self._cells.items() if name == provider and row["outcome"] == "passed"]

    def write(self, terminal: pytest.TerminalReporter, profile: str) -> None:
        """Print the table, what is missing, and the coverage that was reached."""
        seeds = f", seed {', '.join(map(str, sorted(self._seeds)))}" if self._seeds - {0} else ""
        terminal.section(f"transfer matrix, profile {profile}{seeds}")
        for line in self.lines():
            terminal.write_line(line)

    def lines(self) -> Iterator[str]:
        """The lines of the summary."""
        for found in self._providers:
            mine = {cell: row for (name, cell), row in self._cells.items() if name == found.name}
            if mine:
                yield from _table(found.name, mine)
        yield from self._missing()
        for line in self._unmet_filters:
            yield from textwrap.wrap(line, 110, subsequent_indent="    ")
        yield from self._total()

    def _missing(self) -> Iterator[str]:
        for found in self._providers:
            by_reason: dict[str, list[str]] = defaultdict(list)
            for kernel, reason in found.missing(self._kernels).items():
                by_reason[reason].append(kernel)
            for reason, kernels in by_reason.items():
                count = f"{len(kernels)} kernel{'s' * (len(kernels) > 1)}"
                yield f"missing from {found.name}: {count} ({reason})"
                yield from textwrap.wrap(", ".join(kernels), 110, initial_indent="    ", subsequent_indent="    ")

    def _total(self) -> Iterator[str]:
        rows = self._cells.values()
        counts: dict[str, int] = defaultdict(int)
        for row in rows:
            counts[row["outcome"]] += 1
        if self._crashed:
            counts["crashed"] = len(self._crashed)
        words = ", ".join(f"{count} {word}" for word, count in counts.items()) or "nothing ran"
        examples, rejected = (sum(row[key] for row in rows) for key in ("examples", "rejected"))
        yield f"{sum(counts.values())} cells ({words}), {examples} examples, {rejected} rejected"
        wanted = {name: covering.wanted_pairs(all_kernels()[name]) for name in self._met}
        lacking = {name: len(pairs - self._met[name]) for name, pairs in wanted.items() if pairs - self._met[name]}
        if wanted:
            every = sum(map(len, wanted.values()))
            met = every - sum(lacking.values())
            yield f"pairs of factor values met: {met} of {every} ({100 * met / every:.1f} %)"
            yield from self._why(lacking)

    def _why(self, lacking: dict[str, int]) -> Iterator[str]:
        """Say why pairs were not met: cells that ended before their last example, or that this run leaves out."""
        kernels: dict[str, list[str]] = defaultdict(list)
        for name in lacking:
            rows = [row for (_, cell), row in self._cells.items() if cell.kernel == name]
            ended = {row["outcome"] for row in rows} - {"passed"}
            short = (
                "with cells that this run leaves out" if len(rows) < len(all_kernels()[name].cells()) else "by chance"
            )
            kernels[f"with cells that end as {' or '.join(sorted(ended))}" if ended else short].append(name)
        for reason, names in kernels.items():
            line = f"    {sum(lacking[name] for name in names)} not met in kernels {reason}: {', '.join(names)}"
            yield from textwrap.wrap(line, 110, subsequent_indent="        ")


def _table(provider: str, cells: dict[Cell, dict[str, Any]]) -> Iterator[str]:
    """Kernel and layout by dtype: examples, and how many page sizes they were met in."""
    dtypes = [dtype for dtype in DTYPES if any(cell.dtype == dtype for cell in cells)]
    names = list(dict.fromkeys((cell.kernel, cell.layout) for cell in cells))
    body = [[f"{kernel} {layout}", *_row(cells, kernel, layout, dtypes)] for kernel, layout in names]
    pages = ", ".join(map(str, sorted({cell.page_size for cell in cells})))
    yield f"provider {provider}: examples/page sizes of each kernel and dtype; page sizes {pages}"
    yield from aligned([["kernel and layout", *dtypes, "seconds"], *body])


def _row(cells: dict[Cell, dict[str, Any]], kernel: str, layout: str, dtypes: Iterable[str]) -> Iterator[str]:
    mine = {cell: row for cell, row in cells.items() if (cell.kernel, cell.layout) == (kernel, layout)}
    for dtype in dtypes:
        rows = [row for cell, row in mine.items() if cell.dtype == dtype]
        bad = sum(row["outcome"] == "failed" for row in rows)
        text = f"{sum(row['examples'] for row in rows)}/{len(rows)}" if rows else "-"
        yield f"{text} {bad} FAILED" if bad else text
    yield f"{sum(row['seconds'] for row in mine.values()):.1f}"


def aligned(table: list[list[str]]) -> Iterator[str]:
    """The lines of a table, its first column flush left and the others flush right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for first, *rest in table:
        yield "  ".join(
            [first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(rest, widths[1:], strict=True))]
        )
