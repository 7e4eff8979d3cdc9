"""Hooks of the workers part: pin workers to devices, contain what a crash or a lost device would spoil."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_sglhw.environment.detection import HANDED_OVER, detection_of
from pytest_sglhw.environment.pinned import PINNED, PINNED_HERE, is_local
from pytest_sglhw.gates import DEVICE_TEST
from pytest_sglhw.gates.hooks import met
from pytest_sglhw.settings import VARIABLES, WORKER_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_sglhw.settings import Settings
    from pytest_sglhw.workers.deaths import Death, Ended
    from pytest_sglhw.workers.poison import Poison

#: Key in ``workeroutput``: the devices that a remote worker took.
_OWN_DEVICES = "sglhw_devices"


def register(config: pytest.Config, settings: Settings) -> None:
    """Register this part."""
    if settings.peak_memory:
        from pytest_sglhw.workers.peak_memory import PeakMemory

        config.pluginmanager.register(PeakMemory(), "sglhw-peak-memory")
    if PINNED_HERE in config.stash and hasattr(config, "workeroutput"):
        config.workeroutput[_OWN_DEVICES] = config.stash[PINNED_HERE]
    # Not by the name of a plugin: it is another one where xdist is loaded by its module.
    if getattr(config.option, "tx", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller(config, settings), "sglhw-workers")


def isolate(config: pytest.Config) -> None:
    """Run the tests that ask for it in child processes, from the first that is met on."""
    from pytest_sglhw.workers.isolation import Isolation

    config.pluginmanager.register(Isolation(), "sglhw-isolation")


def contain(config: pytest.Config) -> None:
    """Keep an eye on the device of this process, from the first test on it on."""
    from pytest_sglhw.workers.poison import Poison

    config.pluginmanager.register(Poison(config), "sglhw-poison")


def lose_device(config: pytest.Config, nodeid: str, error: BaseException) -> None:
    """Contain a loss of this process's device, also where no device test was met yet."""
    met(config, DEVICE_TEST)
    poison: Poison | None = config.pluginmanager.get_plugin("sglhw-poison")
    if poison is not None:
        poison.lose(nodeid, error)


class Controller:
    """The side that starts the workers."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._specs = 0
        self._workers = 0
        self._collected: dict[str, Sequence[str]] = {}  # by worker: the tests, once for all of them
        self._gone = 0  # in all, as xdist counts them
        self._died_early = 0  # in a row
        self._ended: dict[str, Ended] = {}
        self._deaths: list[Death] = []
        self.devices: dict[str, str] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[Any]) -> None:
        """Give each worker its share before anything in it is imported."""
        self._specs = len(specs)
        self._refuse_report_to_copy(specs)
        self._workers = sum(is_local(spec) for spec in specs)
        if self._settings.devices != "off":
            from pytest_sglhw.workers.dealing import pin

            pin(specs, detection_of(self._config), self._settings)

    @pytest.hookimpl
    def pytest_sessionstart(self) -> None:
        """Watch the reports of the workers: this process collects nothing itself."""
        if self._config.pluginmanager.hasplugin("dsession"):
            from pytest_sglhw.gates.summary import show_words, sum_up

            sum_up(self._config.pluginmanager)
            show_words(self._config.pluginmanager)

    def _refuse_report_to_copy(self, specs: Sequence[Any]) -> None:
        report = self._settings.report
        if report in self._config.invocation_params.args and not all(spec.popen and not spec.chdir for spec in specs):
            raise pytest.UsageError(
                f"the argument {report!r} is a file by now, so that xdist wants to copy it to workers that have a "
                f"folder of their own. Write --sglhw-report={report} in one, or set SGLHW_REPORT."
            )

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand over what the worker can't know, and note which devices it holds.

        A replacement has the spec, and so the devices, of the worker that crashed.
        """
        node.workerinput[WORKER_VARIABLES] = self._config.stash[VARIABLES]
        spec = node.gateway.spec
        if is_local(spec) and not spec.python:  # they run this interpreter on this machine: one probe will do
            node.workerinput[HANDED_OVER] = detection_of(self._config).hand_over()
        env = spec.env
        if PINNED in env:
            # The mask was set just before PINNED, whatever else the spec of the worker sets.
            self._holds(node.gateway.id, env[list(env)[list(env).index(PINNED) - 1]])

    def _holds(self, worker: str, devices: str) -> None:
        from pytest_sglhw.report.recorder import WORKER_DEVICES

        self._config.stash[WORKER_DEVICES] = self.devices
        self.devices[worker] = devices

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Replace the schedulers that do not get over a crash, before xdist chooses and after everybody else."""
        from pytest_sglhw.workers.scheduling import SCHEDULERS

        scheduler = SCHEDULERS.get(config.option.dist)
        return None if scheduler is None else scheduler(config, log)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Remember which tests there are, and who got that far."""
        self._collected[node.gateway.id] = () if self._collected else ids
        self._died_early = 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take what a worker hands over that ended, and remember how it ended."""
        self._ended[node.gateway.id] = node.gateway, error
        if error is not None:
            self._lost(node, error)
        output = getattr(node, "workeroutput", {})
        if devices := output.get(_OWN_DEVICES):
            self._holds(node.gateway.id, devices)
        if loss := output.get("sglhw_lost_device"):
            from pytest_sglhw.workers.lost_devices import Loss, take

            take(self._config, node.gateway.id, Loss(*loss))

    def _lost(self, node: Any, error: object) -> None:
        from pytest_sglhw.workers.deaths import endless, restarts, why_not_started

        worker, limit = node.gateway.id, restarts(self._config.option)
        self._gone += 1
        # Every replacement would meet what this one met, and xdist knows no limit without -n.
        if why := why_not_started(error, ready=hasattr(node, "workerinfo")):
            raise pytest.UsageError(f"worker {worker}: {why}")
        self._died_early += worker not in self._collected
        if limit is None and self._died_early > 4 * self._specs:
            raise pytest.UsageError(endless(self._died_early, node.gateway))
        if limit is not None and self._gone == limit + 1:
            from pytest_sglhw.workers.left_over import LeftOver

            left_over = LeftOver(self._config, next(iter(self._collected.values()), ()), worker)
            self._config.pluginmanager.register(left_over, "sglhw-left-over")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Record the workers that died outside of a test, now that all have ended; a lane is red then."""
        if not self._ended:
            return
        from pytest_sglhw.workers.deaths import deaths

        self._deaths += deaths(self._ended)
        if not self._deaths:
            return
        from pytest_sglhw.report.recorder import MORE_RECORDS

        records = self._config.stash.setdefault(MORE_RECORDS, [])
        records += [("worker", death.record()) for death in self._deaths]
        if self._settings.lane and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say which workers died; show which had which devices, or that they shared what each could have had."""
        if self._deaths:
            from pytest_sglhw.workers.deaths import lines

            for line in lines(self._deaths):
                terminalreporter.write_line(line, red=True)
        if terminalreporter.verbosity < 0:
            return
        if self.devices:
            held = ", ".join(f"{worker}={names}" for worker, names in self.devices.items())
            terminalreporter.write_line(f"sglhw: devices of the workers: {held}")
        elif self._settings.devices == "off" and self._workers > 1 and (count := self._devices_known()) > 1:
            terminalreporter.write_line(
                f"sglhw: {self._workers} workers shared {count} devices; --sglhw-devices auto gives each its own"
            )

    def _devices_known(self) -> int:
        probed = detection_of(self._config).probed()  # a platform that needs no probe has no devices
        return len(probed.usable_devices) if probed is not None else 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: pytest.TestReport) -> None:
        """Say by which signal the worker died, and which devices it held; one that was interrupted did not die."""
        from pytest_sglhw.report.courier import INTERRUPTED_BY

        self._ended.pop(report.node.gateway.id, None)
        output = getattr(report.node, "workeroutput", {})
        if output.get("exitstatus") == pytest.ExitCode.INTERRUPTED:
            from pytest_sglhw.workers.left_over import make_not_run

            make_not_run(report, "interrupted", f"cut off: {output.get(INTERRUPTED_BY, 'it interrupted the run')}")
            return
        from pytest_sglhw.workers.deaths import end_of

        worker = report.node.gateway
        how = [end_of(worker), *([f"devices {self.devices[worker.id]}"] if worker.id in self.devices else [])]
        report.longrepr = f"{report.longrepr} ({', '.join(how)})"
