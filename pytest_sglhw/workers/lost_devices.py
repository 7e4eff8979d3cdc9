"""Which processes of a run lost their device, told by the process that reports: no such run is green in silence."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

#: Key in ``workeroutput``: the :class:`Loss` of a worker.
LOST = "sglhw_lost_device"


class Loss(NamedTuple):
    """One process that lost its device: in which test, with which error, and how many tests it did not run for it."""

    by: str
    error: str
    not_run: int

    def __str__(self) -> str:
        tests = f"{self.not_run} device test{'' if self.not_run == 1 else 's'}"
        first_line = self.error.partition("\n")[0]
        return f"{self.by} lost the device of its process ({first_line}): {tests} after it not run"


def note(config: pytest.Config, loss: Loss) -> None:
    """Take the loss of this process, as it is known by now: a worker hands it over when it ends."""
    if hasattr(config, "workeroutput"):
        config.workeroutput[LOST] = list(loss)
    else:
        take(config, "", loss)


def take(config: pytest.Config, worker: str, loss: Loss) -> None:
    """Take the loss of ``worker`` (empty: of this process) in the process that reports."""
    manager = config.pluginmanager
    told: LostDevices | None = manager.get_plugin("sglhw-lost-devices")
    if told is None:
        told = LostDevices()
        manager.register(told, "sglhw-lost-devices")
    told.losses[worker] = loss


class LostDevices:
    """Plugin of the process that reports, from the first loss on."""

    def __init__(self) -> None:
        self.losses: dict[str, Loss] = {}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run in which tests were not run: the test that lost the device may be one that was to fail."""
        if session.exitstatus == pytest.ExitCode.OK and any(loss.not_run for loss in self.losses.values()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name each loss, and what keeps it from spreading."""
        for worker, loss in self.losses.items():
            terminalreporter.write_line(f"sglhw: {worker}{': ' if worker else ''}{loss}", red=True)
        terminalreporter.write_line("sglhw: with isolated_device a test loses the device of its own process alone")
