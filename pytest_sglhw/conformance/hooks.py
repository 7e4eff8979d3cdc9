"""The matrix within pytest: options of ``sglhw conformance``, items, facts on reports, the table at the end.

Registered where the arguments of the run name ``pytest_sglhw.conformance``; the command loads it by ``-p`` for its
filters.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_sglhw.conformance.cells import DTYPES, LAYOUTS, PAGE_SIZES, Cell, Filters, invalid, selects_nothing
from pytest_sglhw.conformance.watched import OPTION, Trail
from pytest_sglhw.report.recorder import MORE_RECORDS
from pytest_sglhw.settings import SETTINGS

if TYPE_CHECKING:
    from pytest_sglhw.conformance.known_inputs import KnownInput
    from pytest_sglhw.conformance.providers import FoundProvider

#: What an item of the matrix has to say of itself: facts for ``report.sglhw`` and details for the table.
FACTS = pytest.StashKey[dict[str, Any]]()

PLUGIN_NAME = "sglhw-matrix"


class MatrixItem(NamedTuple):
    """What one test item runs."""

    provider: FoundProvider
    cell: Cell


class KnownInputItem(NamedTuple):
    """Inputs that a kernel is known to fail on, and the cell to see it in."""

    item: MatrixItem
    known: KnownInput


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the filters."""
    group = parser.getgroup("sglhw")
    for column in Filters._fields:
        option = f"--sglhw-matrix-{column.replace('_', '-')}"
        kind = int if column == "page_size" else str
        group.addoption(
            option, dest=_dest(column), action="append", type=kind, default=None, help=f"only this {column}"
        )
    for name, what in (
        ("isolate", "run each cell in a child process of its own"),
        ("bandwidth", "after the tests, show each kernel's GB/s beside those of a plain copy"),
    ):
        group.addoption(f"--sglhw-matrix-{name}", action="store_true", default=False, help=what)
    limit = "seconds that one example in a child process may take; implies --sglhw-matrix-isolate"
    group.addoption("--sglhw-matrix-isolate-timeout", metavar="S", default=None, help=limit)
    group.addoption(OPTION, default=None, help=argparse.SUPPRESS)


def _dest(column: str) -> str:
    return f"sglhw_matrix_{column}"


def register(config: pytest.Config) -> Matrix:
    """Register the matrix of this run, once, and return it.

    :raises pytest.UsageError: a provider or a filter that names nothing.
    """
    matrix: Matrix | None = config.pluginmanager.get_plugin(PLUGIN_NAME)
    if matrix is None:
        matrix = Matrix(config)
        config.pluginmanager.register(matrix, PLUGIN_NAME)
    return matrix


class Matrix:
    """The items of this run and what became of them."""

    def __init__(self, config: pytest.Config) -> None:
        from pytest_sglhw.conformance import providers
        from pytest_sglhw.conformance.kernels import all_kernels
        from pytest_sglhw.conformance.summary import Summary

        settings = config.stash[SETTINGS]
        self.profile = settings.profile
        self.seed = _seed(config)
        self.filters = _filters(config)
        self.isolate, self._measures = (
            bool(getattr(config.option, f"sglhw_matrix_{name}", False)) for name in ("isolate", "bandwidth")
        )
        self.timeout = _isolate_timeout(config)
        """Seconds that one example in a child process may take; ``None``: as many as usual."""
        self.isolate = self.isolate or self.timeout is not None
        # A worker that ends is its controller's affair; this is for the one process that nobody else watches.
        watched = None if hasattr(config, "workerinput") else getattr(config.option, "sglhw_matrix_where", None)
        self._trail = Trail(watched)
        self._records = config.stash.setdefault(MORE_RECORDS, [])
        self.lost_by: str | None = None
        """The test that lost the device, if one did."""
        kernels = all_kernels()
        layouts = dict.fromkeys([*LAYOUTS, *(layout for kernel in kernels.values() for layout in kernel.layouts)])
        valid: dict[str, Sequence[object]] = {
            "kernel": [*kernels],
            "layout": [*layouts],
            "dtype": [*DTYPES],
            "page_size": list(PAGE_SIZES),
        }
        if problem := invalid(self.filters, valid):
            raise pytest.UsageError(problem)
        self.providers = providers.find_all(
            settings.kernels, config, lambda name: self._trail.at(f"loading provider {name}")
        )
        self._promised = settings.kernels if settings.lane else ()
        """Providers that this run has to have."""
        every = [cell for kernel in kernels.values() for cell in kernel.cells()]
        cells = [cell for cell in every if self.filters.accept(cell)]
        self.items = [
            MatrixItem(found, cell)
            for found in self.providers
            for cell in cells
            if all(map(found.has, kernels[cell.kernel].workload.needs(cell)))
        ]
        needed = (name for cell in cells for name in kernels[cell.kernel].workload.needs(cell))
        self._summary = Summary(self.providers, list(dict.fromkeys(needed)), list(selects_nothing(self.filters, every)))

    def ids(self) -> list[str]:
        """The items' ids: the cell's, with the provider before it where there are several."""
        several = len({item.provider.name for item in self.items}) > 1
        return [f"{item.provider.name}-{item.cell.id}" if several else item.cell.id for item in self.items]

    def faulty_providers(self) -> list[FoundProvider]:
        """Providers that are there and fail, that lack what they declare, or that a lane asks for in vain."""
        return [found for found in self.providers if found.complaint(promised=found.name in self._promised)]

    def known_inputs(self) -> list[KnownInputItem]:
        """The inputs that this run's kernels are known to fail on, one item each kind."""
        from pytest_sglhw.conformance.known_inputs import known_in

        first = {(item.provider.name, item.cell.kernel): item for item in reversed(self.items)}
        return [
            KnownInputItem(item, row)
            for (provider, kernel), item in reversed(first.items())
            for row in known_in(provider, kernel, item.provider.place().platform)
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop the placeholders that pytest makes of empty parameter sets: nothing to run is no skipped test."""
        items[:] = [item for item in items if not _is_placeholder(item)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Say which test is running, for whoever finds that the process has ended."""
        with self._trail.at(f"running {item.nodeid}"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the facts of a matrix item to its reports."""
        report = yield
        facts = item.stash.get(FACTS, None)
        if facts is not None:
            known = getattr(report, "sglhw", {})
            report.sglhw = {**known, **{key: facts[key] for key in ("matrix", "outcome", "reason") if key in facts}}  # type: ignore[attr-defined]
            if report.when == "call":
                report.sglhw_matrix = facts["details"]  # type: ignore[attr-defined]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a finished item."""
        self._summary.add(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, and measure now that no test is running any more."""
        self._summary.write(terminalreporter, self.profile)
        if self._measures:
            self._measure(terminalreporter)

    def _measure(self, terminal: pytest.TerminalReporter) -> None:
        from pytest_sglhw.conformance import bandwidth
        from pytest_sglhw.conformance.kernels import all_kernels
        from pytest_sglhw.conformance.summary import aligned

        for found in self.providers:
            cells = self._summary.passed(found.name)
            with self._trail.at(f"measuring the bandwidth of provider {found.name}"):
                rows = list(bandwidth.measure_all(found, all_kernels(), cells))
            self._records += [("bandwidth", row.record(found.name)) for row in rows]
            for line in aligned(bandwidth.table(found.name, rows)) if rows else ():
                terminal.write_line(line)


def _is_placeholder(item: pytest.Item) -> bool:
    from pytest_sglhw.conformance.providers import FoundProvider

    values = item.callspec.params if hasattr(item, "callspec") else {}
    kinds = (("matrix_item", MatrixItem), ("known_input_item", KnownInputItem), ("faulty_provider", FoundProvider))
    return any(name in values and not isinstance(values[name], kind) for name, kind in kinds)


def _filters(config: pytest.Config) -> Filters:
    return Filters(*(tuple(getattr(config.option, _dest(column), None) or ()) for column in Filters._fields))


def _isolate_timeout(config: pytest.Config) -> float | None:
    text = getattr(config.option, "sglhw_matrix_isolate_timeout", None)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise pytest.UsageError(
            f"{text!r} is not a valid time limit (--isolate-timeout, --sglhw-matrix-isolate-timeout). "
            "Valid: a number of seconds above 0."
        )
    return seconds


def _seed(config: pytest.Config) -> int:
    """The seed that the user gave to Hypothesis' plugin; 0 where none is given or the plugin is off."""
    given = config.getoption("--hypothesis-seed", None)
    if given in (None, "random"):
        import random

        return 0 if given is None else random.randrange(1, 1 << 32)
    return int(given)
