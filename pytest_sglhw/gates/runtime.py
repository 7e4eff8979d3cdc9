"""Act on the verdicts while tests run: registered when the first mark of ours is met."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.environment.detection import DETECTION
from pytest_sglhw.errors import MarkError, PytestSglhwWarning
from pytest_sglhw.gates.policy import LANE_POLICY
from pytest_sglhw.gates.reports import attach
from pytest_sglhw.gates.verdict import Verdict, decide

if TYPE_CHECKING:
    from pytest_sglhw.gates.reading import Reading
    from pytest_sglhw.gates.requirement import Requirement
    from pytest_sglhw.gates.trial import Trial
    from pytest_sglhw.settings import Settings

VERDICT = pytest.StashKey[Verdict]()
TRIAL = pytest.StashKey["Trial"]()


class GateSkip(pytest.skip.Exception):  # type: ignore[name-defined,misc]
    """A skip that a verdict of ours asked for."""


class Runtime:
    """Decide at setup, judge at report time."""

    def __init__(self, config: pytest.Config, settings: Settings, reading: Reading) -> None:
        self._config = config
        self._settings = settings
        self._reading = reading
        self._verdicts: dict[int, Verdict] = {}

    def verdict(self, item: pytest.Item) -> Verdict | None:
        """Give what becomes of ``item``, or ``None`` where it asks nothing.

        :raises MarkError: a mark that was added after collection and means nothing.
        """
        requirement = self._reading.requirement(item)
        if not requirement:
            return None
        # A requirement is kept for the whole run by whoever read it, so that its identity is a key.
        found = self._verdicts.get(id(requirement))
        if found is None:
            found = self._verdicts[id(requirement)] = self._decide(requirement)
        return found

    def _decide(self, requirement: Requirement) -> Verdict:
        wanted = self._reading.capabilities.union(*(need.capabilities for need in requirement))
        environment = self._config.stash[DETECTION].environment(wanted)
        return decide(requirement, environment, self._config.stash.get(LANE_POLICY, None))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        """Skip or refuse a test before anything of it runs."""
        trial = self._enter(item)
        if trial is None:
            return (yield)
        with trial.watching(call=False):
            return (yield)

    def _enter(self, item: pytest.Item) -> Trial | None:
        try:
            verdict = self.verdict(item)
        except MarkError as error:
            pytest.fail(str(error), pytrace=False)
        if verdict is None:
            return None
        item.stash[VERDICT] = verdict
        if verdict.action == "run" or item.get_closest_marker("skip"):
            return None
        if verdict.action == "raise":
            from pytest_sglhw.gates.trial import Trial

            trial = item.stash[TRIAL] = Trial(item, verdict)
            return trial
        if verdict.action == "fail":
            pytest.fail(verdict.reason, pytrace=False)
        if verdict.loud:
            item.warn(PytestSglhwWarning(verdict.reason))
        raise GateSkip(verdict.reason)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Let a test that must raise look out for warnings and subtests."""
        trial = item.stash.get(TRIAL, None)
        if trial is None:
            return (yield)
        with trial.watching(call=True):
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the facts, and turn the report of a test that must raise into what it means."""
        report = yield
        verdict = item.stash.get(VERDICT, None)
        if verdict is None:
            return report
        if call.when == "setup":
            if call.excinfo is not None and isinstance(call.excinfo.value, GateSkip):
                report.longrepr = (os.fspath(item.path), (item.location[1] or 0) + 1, f"Skipped: {verdict.reason}")
            attach(report, verdict.facts)
        trial = item.stash.get(TRIAL, None)
        if trial is not None:
            trial.judge(report, call)
        return report
