"""What the gates did, in the terminal: a word of its own for ``raised``, skips folded by reason code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter


class Skips:
    """The skips of one reason code: how many, and the first as the example."""

    def __init__(self, nodeid: str, facts: Mapping[str, Any]) -> None:
        self.count = 0
        self.example = nodeid
        self.reason = facts.get("reason", "")
        self.remedy = facts.get("remedy", "")
        self.loud = facts.get("state") in ("broken", "unknown")


class Summary:
    """Lives where the terminal is: in the only process, or in the controller of the workers."""

    def __init__(self) -> None:
        self._skips: dict[str, Skips] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a skip of ours under its reason code."""
        facts = getattr(report, "sglhw", None)
        if facts and report.skipped and facts.get("reason_code") and not facts.get("outcome"):
            code = facts["reason_code"]
            skips = self._skips.get(code) or self._skips.setdefault(code, Skips(report.nodeid, facts))
            skips.count += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, Any] | None:
        """Give ``raised`` its own word and letter."""
        facts = getattr(report, "sglhw", None)
        if facts and facts.get("outcome") == "raised" and not report.failed:
            return "raised", "r", ("RAISED", {"green": True})
        return None

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Show each reason code with its count, an example, and what would make it run."""
        if self._skips and terminalreporter.verbosity >= 0:
            terminalreporter.section("skipped for hardware (sglhw)", sep="-")
            for code, skips in sorted(self._skips.items()):
                if not skips.loud:
                    _show(terminalreporter, code, skips)
        loud = {code: skips for code, skips in sorted(self._skips.items()) if skips.loud}
        if loud:
            terminalreporter.section("hardware that should work and does not (sglhw)", sep="!", red=True, bold=True)
            for code, skips in loud.items():
                _show(terminalreporter, code, skips)


def _show(terminal: TerminalReporter, code: str, skips: Skips) -> None:
    terminal.write_line(f"{skips.count:>5}  {code}: {skips.reason}")
    remedy = f"; would run with: {skips.remedy}" if skips.remedy else ""
    terminal.write_line(f"       e.g. {skips.example}{remedy}")
