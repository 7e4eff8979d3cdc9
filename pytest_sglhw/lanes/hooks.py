"""Hooks of the lanes part: the contract of a lane around the run, or the plan instead of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.environment.detection import detection_of
from pytest_sglhw.gates.policy import LANE_POLICY, LanePolicy
from pytest_sglhw.lanes.config import Lane, allowed_skips, get_lane

if TYPE_CHECKING:
    from pytest_sglhw.lanes.shard import Shard
    from pytest_sglhw.report.results import FileResult, TestResult
    from pytest_sglhw.settings import Settings


def register(config: pytest.Config, settings: Settings) -> None:
    """Register the plan if one is asked for, else the contract of the lane."""
    if settings.plan:
        from pytest_sglhw.lanes.plan_hooks import Planner

        config.pluginmanager.register(Planner(config, settings), "sglhw-plan")
    elif settings.lane:
        _register_lane(config, settings, settings.lane)


def _register_lane(config: pytest.Config, settings: Settings, name: str) -> None:
    from pytest_sglhw.lanes.shard import read_shard
    from pytest_sglhw.report.recorder import LANE_FACTS

    registry = detection_of(config).registry
    lane = get_lane(config.rootpath, registry, name)
    policy = config.stash[LANE_POLICY] = LanePolicy(
        name, allowed_skips(lane, registry), lane.vacuous, frozenset(lane.capabilities).__contains__
    )
    config.stash[LANE_FACTS] = {"promise": lane.to_json()}
    if not hasattr(config, "workerinput"):
        contract = LaneContract(config, lane, policy, read_shard(settings.shard))
        config.pluginmanager.register(contract, "sglhw-lane")


class LaneContract:
    """Hold one lane to its promise, in the process that reports."""

    def __init__(self, config: pytest.Config, lane: Lane, policy: LanePolicy, shard: Shard | None) -> None:
        from pytest_sglhw.lanes.contract import Results

        self._config = config
        self._lane = lane
        self._results = Results(lane, policy, shard)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Refuse a machine that is not what the lane promises, before anything is collected or any worker started."""
        from pytest_sglhw.lanes.contract import terms, unmet_table

        environment = detection_of(self._config).environment(self._lane.capabilities)
        found = terms(self._lane, environment)
        if not all(term.kept for term in found):
            raise pytest.UsageError(unmet_table(self._lane, found))

    def pytest_report_header(self) -> str:
        """Name the lane."""
        return f"sglhw: {self._lane}: the machine is what it promises"

    def pytest_sglhw_test_finished(self, result: TestResult) -> None:
        """Take the result of a test."""
        self._results.add_test(result)

    def pytest_sglhw_file_finished(self, result: FileResult) -> None:
        """Take a file that gave no test."""
        self._results.add_file(result)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that broke the promise; one that is not green already, or that only collects, is not judged."""
        if self._config.option.collectonly:
            return
        from pytest_sglhw.report.recorder import BROKEN_PROMISES

        # The minima are not among them: the merge counts those itself, over all shards.
        self._config.stash[BROKEN_PROMISES] = self._results.contradictions()
        green = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if session.exitstatus in green and any(finding.breach for finding in self._results.findings()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        """Say whether the promise was kept, and what else a maintainer should see."""
        if exitstatus == pytest.ExitCode.USAGE_ERROR or self._config.option.collectonly:
            return
        findings = self._results.findings()
        broken = any(finding.breach for finding in findings)
        terminalreporter.section(str(self._lane), red=broken, green=not broken)
        executed = len(self._results.executed)
        terminalreporter.write_line(f"{executed} of {self._results.total} tests ran to a verdict")
        for finding in findings:
            terminalreporter.write_line(
                f"{'PROMISE BROKEN: ' if finding.breach else ''}{finding.heading}", red=finding.breach
            )
            for line in finding.lines:
                terminalreporter.write_line(f"  {line}")
