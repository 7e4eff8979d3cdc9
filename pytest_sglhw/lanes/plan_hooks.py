"""Hooks of the plan: collect in this process, run nothing, show."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.environment.detection import detection_of
from pytest_sglhw.gates.hooks import GATES
from pytest_sglhw.lanes.config import load_lanes
from pytest_sglhw.lanes.plan import Plan, plan_columns
from pytest_sglhw.lanes.plan_render import RENDERERS
from pytest_sglhw.report.results import collect_result

if TYPE_CHECKING:
    from pytest_sglhw.settings import Settings


def prepare(config: pytest.Config) -> None:
    """Tell pytest and every plugin, before they are configured, that this run collects only (xdist: no workers)."""
    config.option.collectonly = True
    if (config.option.sglhw_plan_format or "table") != "table":
        # Standard output is the document alone, as with -p no:terminal.
        config.pluginmanager.unregister(name="terminal")


class Planner:
    """Make the plan of what is collected, and show it in place of pytest's list of tests."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        registry = detection_of(config).registry
        self._config = config
        self._format = settings.plan_format
        self._columns = plan_columns(settings.plan_for, load_lanes(config.rootpath, registry), registry)
        self._plan = Plan(self._columns.names, [], [], [])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that gave no test: it is listed, and the others are planned."""
        if not report.passed:
            result = collect_result(report)
            (self._plan.failed if report.failed else self._plan.skipped).append((result.nodeid, result.reason))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Plan what was collected; pytest does not list it once more."""
        asked = self._config.stash[GATES].asked
        for item in session.items:
            if item.get_closest_marker("skip"):
                row = self._columns.skipped_row(item.nodeid)
            else:
                found = asked(item)
                row = self._columns.row(item.nodeid, found.requirement if found else ())
            self._plan.rows.append(row)
        self._config.option.collectonly = False
        try:
            return (yield)
        finally:
            self._config.option.collectonly = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> bool:
        """Run nothing, not even where a file could not be collected."""
        return True

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail where a test would run nowhere, and write a document that is not for the terminal."""
        if session.exitstatus == pytest.ExitCode.OK and not self._plan.fine:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._format != "table":
            sys.stdout.write(RENDERERS[self._format](self._plan))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the plan."""
        terminalreporter.section("plan (sglhw): nothing was run")
        terminalreporter.write(RENDERERS[self._format](self._plan))
