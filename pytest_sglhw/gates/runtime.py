"""Act on the verdicts while tests run: registered when the first mark of ours is met."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.environment.detection import detection_of
from pytest_sglhw.errors import MarkError
from pytest_sglhw.gates import DEVICE_TEST
from pytest_sglhw.gates.hooks import met
from pytest_sglhw.gates.policy import LANE_POLICY, LanePolicy
from pytest_sglhw.gates.verdict import Verdict, decide
from pytest_sglhw.record import replace
from pytest_sglhw.settings import FACTS_WANTED

if TYPE_CHECKING:
    from pytest_sglhw.environment.records import Environment
    from pytest_sglhw.gates.judge import Judge
    from pytest_sglhw.gates.kernel_watch import KernelWatch
    from pytest_sglhw.gates.reading import Asked, Reading
    from pytest_sglhw.gates.requirement import Requirement
    from pytest_sglhw.gates.vacuity import Level
    from pytest_sglhw.settings import Settings


VERDICT = pytest.StashKey[Verdict]()
JUDGES = pytest.StashKey["list[Judge]"]()


class GateSkip(pytest.skip.Exception):  # type: ignore[name-defined,misc]
    """A skip that a verdict of ours asked for."""


class Gatekeeper:
    """What becomes of each test of one run, and who judges it."""

    def __init__(self, config: pytest.Config, settings: Settings, reading: Reading) -> None:
        self._config = config
        self._settings = settings
        self._reading = reading
        self._reporting = False
        self._passing: tuple[object, object] = (None, None)  # the one mark of tests that simply run, and their parent
        self.watching = False  # whether the judges of a test watch it from the start of its setup
        if config.stash.get(FACTS_WANTED, False):
            self._report()
        if settings.lane or settings.vacuous != "off":
            self.let_judges_watch()

    @cached_property
    def policy(self) -> LanePolicy | None:
        """The active lane's policy; the lanes part has set it by the time the first test runs."""
        return self._config.stash.get(LANE_POLICY, None)

    @cached_property
    def vacuous(self) -> Level:
        """The stricter of what the settings and the lane say about vacuous passes."""
        of_lane = self.policy.vacuous if self.policy else "off"
        if of_lane == self._settings.vacuous == "off":
            return "off"
        from pytest_sglhw.gates.vacuity import strictest

        return strictest(self._settings.vacuous, of_lane)

    @cached_property
    def watch(self) -> KernelWatch:
        """The hooks on kernels, which stay until the run ends."""
        from pytest_sglhw.gates.kernel_watch import KernelWatch

        watch = KernelWatch()
        self._config.add_cleanup(watch.close)
        return watch

    def enter(self, item: pytest.Item) -> Verdict | None:
        """Give what becomes of a test that is about to be set up.

        It is kept with the test, its judges as well, where somebody speaks on the reports: tests that simply run where
        nobody reads that are most of most runs, and cost them nothing more: ``None`` for one like the one before.
        """
        own = item.own_markers
        if len(own) == 1 and own[0] is self._passing[0] and item.parent is self._passing[1]:
            return None
        try:
            asked = self._reading.asked(item)
        except MarkError as error:  # a mark that was added after collection
            self._report()
            item.stash[VERDICT] = Verdict("fail", reason=str(error))
            return item.stash[VERDICT]
        if asked is None:
            return None
        verdict = asked.verdict or self.verdict(asked)
        if verdict.action != "run" or asked.gap is not None or self.vacuous != "off":
            self._report()
            if verdict.action in ("run", "raise"):
                item.stash[JUDGES] = self.judges(item, asked, verdict)
                self.let_judges_watch()
        if self._reporting:
            item.stash[VERDICT] = verdict
        elif len(own) == 1 and asked.verdict is verdict:
            self._passing = own[0], item.parent
        return verdict

    def let_judges_watch(self) -> None:
        """Watch the tests from here on: some mark needs a judge."""
        if not self.watching:
            self.watching = True
            self._config.pluginmanager.register(Watch(self), "sglhw-gates-watch")

    def _report(self) -> None:
        """Speak on reports from here on, in words of our own where they are needed."""
        if not self._reporting:
            from pytest_sglhw.gates.reporter import Reporter
            from pytest_sglhw.gates.summary import show_words, sum_up

            self._reporting = True
            self._passing = None, None
            manager = self._config.pluginmanager
            manager.register(Reporter(), "sglhw-gates-reporter")
            sum_up(manager)
            show_words(manager)

    def verdict(self, asked: Asked) -> Verdict:
        """Give what becomes of the tests that ask this: once and for all, unless it hangs on what is free just now."""
        if asked.verdict is None:
            lasting = self._decide(tuple(replace(need, min_free_memory=None) for need in asked.requirement))
            counts = [need.min_devices or 1 for need in asked.requirement if need.min_free_memory]
            if counts and lasting.action in ("run", "raise"):
                environment = detection_of(self._config).with_free_memory(max(counts))
                return self._decided(asked.requirement, environment)
            asked.verdict = lasting
        return asked.verdict

    def _decide(self, requirement: Requirement) -> Verdict:
        wanted = self._reading.capabilities.union(*(need.capabilities for need in requirement))
        return self._decided(requirement, detection_of(self._config).for_verdicts(wanted))

    def _decided(self, requirement: Requirement, environment: Environment) -> Verdict:
        verdict = decide(requirement, environment, self.policy)
        if verdict.action == "run" and environment.platform != "cpu":
            self._report()
            met(self._config, DEVICE_TEST)
        return verdict

    def judges(self, item: pytest.Item, asked: Asked, verdict: Verdict) -> list[Judge]:
        """Give those who judge a test that runs, in the order in which they speak."""
        found: list[Judge] = []
        if verdict.action == "raise":
            from pytest_sglhw.gates.trial import Trial

            found.append(Trial(item, verdict))
        elif self.vacuous != "off":
            from pytest_sglhw.gates.vacuity import VacuityJudge, kernels_asked

            kernels = kernels_asked(asked.requirement, detection_of(self._config).registry)
            if kernels:
                found.append(VacuityJudge(self.watch, kernels, self.vacuous))
        if asked.gap is not None:
            from pytest_sglhw.gates.gap_judge import GapJudge

            found.append(GapJudge(asked.gap, self.policy, self._sglang_version))
        return found

    def _sglang_version(self) -> str | None:
        return detection_of(self._config).environment(()).packages.get("sglang")


class Door:
    """Decide what becomes of each test, and skip or refuse it before anything of it runs.

    It stands inside of everybody's wrappers, whose teardown relies on what their setup left.
    """

    def __init__(self, gatekeeper: Gatekeeper) -> None:
        self._gatekeeper = gatekeeper

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Act on the verdict; a test that is skipped anyway is left to pytest."""
        watched = self._gatekeeper.watching
        verdict = item.stash.get(VERDICT, None) if watched else self._gatekeeper.enter(item)
        if verdict is None or verdict.action in ("run", "raise") or item.get_closest_marker("skip"):
            return
        if verdict.action == "fail":
            pytest.fail(verdict.reason, pytrace=False)
        if verdict.loud:
            from pytest_sglhw.warning import PytestSglhwWarning

            item.warn(PytestSglhwWarning(verdict.reason))
        raise GateSkip(verdict.reason)


class Watch:
    """Let the judges of a test watch it: registered when the first mark is read that may need a judge."""

    def __init__(self, gatekeeper: Gatekeeper) -> None:
        self._gatekeeper = gatekeeper

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        """Let the judges watch what fixtures do, from before the first wrapper on."""
        self._gatekeeper.enter(item)
        with _watching(item.stash.get(JUDGES, []), call=False):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Let the judges watch the call."""
        with _watching(item.stash.get(JUDGES, []), call=True):
            return (yield)


def _watching(judges: list[Judge], *, call: bool) -> ExitStack:
    stack = ExitStack()
    for judge in judges:
        stack.enter_context(judge.watching(call=call))
    return stack
