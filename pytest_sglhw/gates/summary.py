"""What the gates did, in the terminal: a word of its own for ``raised``, skips folded by reason code."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

_SKIPPED = "skipped for hardware (sglhw)"
_LOUD = "hardware that should work here and does not, or did not answer (sglhw)"
_VACUOUS = "passes that may prove nothing (sglhw)"
_STALE = "known gaps that are overdue (sglhw)"

#: Outcome -> category, letter and word in the terminal.
_WORDS: dict[str, tuple[str, str, Any]] = {
    "raised": ("raised", "r", ("RAISED", {"green": True})),
    "not_run": ("not run", "n", ("NOT RUN", {"yellow": True})),
}


class Skips:
    """The skips of one reason code: how many, and the first as the example."""

    def __init__(self, nodeid: str, facts: Mapping[str, Any]) -> None:
        self.count = 0
        self.example = nodeid
        self.reason = facts.get("reason", "")
        self.remedy = facts.get("remedy", "")
        self.loud = facts.get("state") in ("broken", "unknown")

    def lines(self, code: str) -> list[str]:
        """Give what the terminal shows."""
        remedy = f"; would run with: {self.remedy}" if self.remedy else ""
        return [f"{self.count:>5}  {code}: {self.reason}", f"       e.g. {self.example}{remedy}"]


class Told:
    """What the facts on the reports of a run come to."""

    def __init__(self) -> None:
        self.skips: dict[str, Skips] = {}
        self.vacuous: list[str] = []
        self.stale: list[str] = []

    def add(self, report: pytest.TestReport, facts: Mapping[str, Any]) -> None:
        """Take the report of one phase."""
        code = facts.get("reason_code")
        if code and report.skipped and "outcome" not in facts:
            skips = self.skips.get(code) or self.skips.setdefault(code, Skips(report.nodeid, facts))
            skips.count += 1
        if "vacuous" in facts:
            self.vacuous.append(f"{report.nodeid}: {facts['vacuous']}")
        if "stale" in facts:
            self.stale.append(f"{report.nodeid}: {facts['stale']}")


def sum_up(manager: pytest.PytestPluginManager) -> None:
    """Tell at the end what the gates did, in the process that has the terminal."""
    if manager.hasplugin("terminalreporter") and not manager.hasplugin("sglhw-gates-summary"):
        manager.register(Summary(), "sglhw-gates-summary")


def show_words(manager: pytest.PytestPluginManager) -> None:
    """Show outcomes that pytest has no word for, in the process that has the terminal."""
    if manager.hasplugin("terminalreporter") and not manager.hasplugin("sglhw-gates-words"):
        manager.register(Words(), "sglhw-gates-words")


class Words:
    """Registered only where a test may have such an outcome: the hook is called for each report."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, Any] | None:
        """Give outcomes that pytest has no word for their own word and letter."""
        facts = getattr(report, "sglhw", None)
        return _WORDS.get(facts.get("outcome", "")) if facts and not report.failed else None


class Summary:
    """Lives where the terminal is: in the only process, or in the controller of the workers."""

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Show each reason code with its count, an example, and what would make it run; loud ones even when quiet."""
        told = Told()
        for report in chain.from_iterable(terminalreporter.stats.values()):  # pytest keeps them all: no hook for each
            if facts := getattr(report, "sglhw", None):
                told.add(report, facts)
        ordered = sorted(told.skips.items())
        quiet = terminalreporter.verbosity < 0
        calm = [] if quiet else [line for code, skips in ordered if not skips.loud for line in skips.lines(code)]
        loud = [line for code, skips in ordered if skips.loud for line in skips.lines(code)]
        _section(terminalreporter, _SKIPPED, calm)
        _section(terminalreporter, _VACUOUS, told.vacuous)
        _section(terminalreporter, _STALE, told.stale)
        _section(terminalreporter, _LOUD, loud, sep="!", red=True, bold=True)


def _section(terminal: TerminalReporter, title: str, lines: list[str], sep: str = "-", **markup: bool) -> None:
    if lines:
        terminal.section(title, sep=sep, **markup)
        for line in lines:
            terminal.write_line(line)
