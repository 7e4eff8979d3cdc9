"""What workers know and the process that reports does not: files that gave no test, and the environment.

Workers collect and probe, the controller reports. xdist hands failed and skipped files over, but only the first of
those whose reason reads the same, and no file that is empty; so each worker hands its own list over when it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_sglhw.environment.detection import detection_of
from pytest_sglhw.report.results import FileResult, ResultTracker, collect_result

if TYPE_CHECKING:
    from collections.abc import Generator

#: The environment as the workers knew it, for the report.
WORKER_ENVIRONMENT = pytest.StashKey[dict[str, Any]]()

#: Key in ``workeroutput``: what interrupted the run in a worker.
INTERRUPTED_BY = "sglhw_interrupted_by"

_FILES = "sglhw_files"
_ENVIRONMENT = "sglhw_environment"

_EMPTY = "the file was collected and holds no test"


class _Collecting:
    """Give each file that is collected here and holds no test to ``take``."""

    def take(self, file: FileResult) -> None:
        raise NotImplementedError

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Take a file without tests."""
        report = yield
        if isinstance(collector, pytest.Module) and report.passed and not report.result:
            self.take(FileResult(report.nodeid, "empty", _EMPTY))
        return report


class Courier(_Collecting):
    """In a worker: gather what the controller is to know."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._files: list[FileResult] = []
        self._output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined]

    def take(self, file: FileResult) -> None:
        """Note a file."""
        self._files.append(file)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that failed or was skipped whole."""
        if not report.passed:
            self.take(collect_result(report))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Hand over what interrupts the run here."""
        self._output[INTERRUPTED_BY] = excinfo.exconly()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Hand everything over."""
        known = detection_of(self._config).known()
        self._output[_FILES] = [file.to_json() for file in self._files]
        self._output[_ENVIRONMENT] = None if known is None else known.to_json()


class Receiver(_Collecting):
    """In the process that reports: take empty files that it collects itself, and what its workers hand over."""

    def __init__(self, config: pytest.Config, tracker: ResultTracker) -> None:
        self._config = config
        self._tracker = tracker

    def take(self, file: FileResult) -> None:
        """Pass a file on."""
        self._tracker.file_finished(file)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker hands over that ended; one that crashed has nothing to give."""
        output = getattr(node, "workeroutput", {})
        for file in output.get(_FILES, ()):
            self.take(FileResult(**file))
        if environment := output.get(_ENVIRONMENT):
            self._add_environment(environment)

    def _add_environment(self, environment: dict[str, Any]) -> None:
        # Each worker looks at the capabilities that its own tests need.
        known = self._config.stash.get(WORKER_ENVIRONMENT, environment)
        capabilities = known["capabilities"] | environment["capabilities"]
        self._config.stash[WORKER_ENVIRONMENT] = known | {"capabilities": capabilities}
