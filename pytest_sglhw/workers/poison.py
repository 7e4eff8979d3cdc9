"""After a sticky device error nothing that a process does on its device means anything: say so instead of failing.

An illegal access leaves the context of its process unusable, so every device test after it would fail for a reason that
is not its own. The first one fails; the rest of that process's device tests are ``not_run (poisoned by <nodeid>)``.
A further attempt at the test that lost the device fails again: a rerun must not turn the loss into a skip.

What was not run for a lost device makes a run red even where the test that lost it was expected to fail.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Generator

import pytest

from pytest_sglhw.environment.loaded_torch import device_contexts
from pytest_sglhw.environment.sticky import sticky_error
from pytest_sglhw.gates import ISOLATED
from pytest_sglhw.gates.reports import attach
from pytest_sglhw.gates.runtime import VERDICT
from pytest_sglhw.workers.isolated_child import IN_CHILD
from pytest_sglhw.workers.lost_devices import Loss, note


class PoisonedSkip(pytest.skip.Exception):  # type: ignore[name-defined,misc]
    """A device test that was not run because an earlier one lost the device context of this process."""


class Poison:
    """Plugin that keeps an eye on the device context of this process."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.by: str | None = None
        self._error = ""
        self._not_run = 0

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Stop a device test in a poisoned process before its fixtures touch the device.

        Not ``tryfirst``: the verdict, by which a device test is known, comes from a hook that is.
        """
        if self.by == item.nodeid:
            _fail_again(item, self._error)
        elif self.by is not None and uses_device(item):
            raise PoisonedSkip(f"poisoned by {self.by}")

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Wait for the device at the end of a test, so that its own error surfaces in it and not in the next."""
        result = yield
        if uses_device(item):
            _synchronize()
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note a sticky error; give a test that was not run its own word."""
        report = yield
        if call.excinfo is None:
            return report
        error = call.excinfo.value
        if isinstance(error, PoisonedSkip):
            facts = {"outcome": "not_run", "reason_code": "poisoned", "reason": str(error)}
            attach(report, {**getattr(report, "sglhw", {}), **facts})
            report.longrepr = (os.fspath(item.path), (item.location[1] or 0) + 1, f"Skipped: {error}")
            self._not_run += 1
            self._note()
        elif lost := sticky_error(error):  # the hook for failures is not called where it was expected (xfail)
            self.lose(item.nodeid, lost)
        return report

    def lose(self, nodeid: str, error: BaseException) -> None:
        """Take note of who lost the device, and of its error; what comes after the first is a consequence."""
        if self.by is None:
            self.by, self._error = nodeid, "".join(traceback.format_exception_only(type(error), error)).rstrip()
            self._note()

    def _note(self) -> None:
        note(self._config, Loss(str(self.by), self._error, self._not_run))


def _fail_again(item: pytest.Item, error: str) -> None:
    """Let an attempt at the test that lost the device fail as that one did, without touching the device."""

    def runtest() -> None:
        pytest.fail(f"this process has lost its device in an earlier attempt at this test: {error}", pytrace=False)

    item.setup = item.teardown = lambda: None  # type: ignore[method-assign]
    item.runtest = runtest  # type: ignore[method-assign]


def uses_device(item: pytest.Item) -> bool:
    """Whether a mark of ours lets this test run on an accelerator in this process."""
    if item.get_closest_marker(ISOLATED) is not None and not item.config.stash.get(IN_CHILD, False):
        return False
    verdict = item.stash.get(VERDICT, None)
    return verdict is not None and verdict.action == "run" and verdict.facts.get("platform") != "cpu"


def _synchronize() -> None:
    for _, namespace in device_contexts():
        namespace.synchronize()
