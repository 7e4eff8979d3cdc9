"""Tests that never ran, since no worker was left to run them: each is reported, and none makes a green run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest

from pytest_sglhw.gates.reports import attach
from pytest_sglhw.gates.summary import show_words

_WHY = "no worker was left to run it: {worker} died, and xdist starts no other ({limit})"


class LeftOver:
    """Plugin of the controller, from the death of a worker on."""

    def __init__(self, config: pytest.Config, collected: Sequence[str], worker: str) -> None:
        limit = config.option.maxworkerrestart
        given = (
            "four for each worker, without --max-worker-restart" if limit is None else f"--max-worker-restart {limit}"
        )
        self._config = config
        self._collected = collected
        self._why = _WHY.format(worker=worker, limit=given)
        self._tests: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Report the tests that nothing was heard of, unless the run was to stop."""
        if session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        heard_of = _heard_of(self._config)
        self._tests = [nodeid for nodeid in self._collected if nodeid not in heard_of]
        if self._tests:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            show_words(self._config.pluginmanager)
        for nodeid in self._tests:
            self._config.hook.pytest_runtest_logreport(report=_report(nodeid, self._why))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say how many there are, and why."""
        if self._tests:
            first, *others = self._tests
            tests = f"{len(self._tests)} tests were not run, the first of them" if others else "1 test was not run,"
            terminalreporter.write_line(f"sglhw: {tests} {first}: {self._why}", red=True)


def _heard_of(config: pytest.Config) -> set[str]:
    """The tests that have a result: the report knows, else the terminal."""
    manager = config.pluginmanager
    if results := manager.get_plugin("sglhw-results"):
        return set(results.heard_of)
    terminal = manager.get_plugin("terminalreporter")
    return set() if terminal is None else {getattr(r, "nodeid", "") for r in chain(*terminal.stats.values())}


def _report(nodeid: str, why: str) -> pytest.TestReport:
    file = nodeid.partition("::")[0]
    report = pytest.TestReport(nodeid, (file, None, file), {}, "skipped", None, "???")  # type: ignore[arg-type]
    make_not_run(report, "no_worker", why)
    return report


def make_not_run(report: pytest.TestReport, code: str, why: str) -> None:
    """Make a report like that of a crash the one of a test that was not run."""
    attach(report, {"outcome": "not_run", "reason_code": code, "reason": why})
    report.outcome, report.longrepr = "skipped", (report.location[0], 1, f"Skipped: {why}")
