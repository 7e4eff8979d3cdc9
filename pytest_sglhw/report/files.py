"""Files that gave no test, from the process that collects to the one that reports.

Workers collect, the controller reports. xdist hands failed and skipped files over, but only the first of those whose
reason reads the same, and no file that is empty; so each worker hands its own list over when it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_sglhw.report.results import FileResult, ResultTracker, collect_result

if TYPE_CHECKING:
    from collections.abc import Generator

_KEY = "sglhw_files"

_EMPTY = "the file was collected and holds no test"


class FileCourier:
    """In a worker: gather what the controller is to know."""

    def __init__(self, config: pytest.Config) -> None:
        self._files: list[FileResult] = []
        self._output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Note a file without tests."""
        report = yield
        if _is_empty(collector, report):
            self._files.append(FileResult(report.nodeid, "empty", _EMPTY))
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that failed or was skipped whole."""
        if not report.passed:
            self._files.append(collect_result(report))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Hand the list over."""
        self._output[_KEY] = [file.to_json() for file in self._files]


class FileReceiver:
    """In the process that reports: take empty files that it collects itself, and the lists of its workers."""

    def __init__(self, tracker: ResultTracker) -> None:
        self._tracker = tracker

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Take a file without tests."""
        report = yield
        if _is_empty(collector, report):
            self._tracker.file_finished(FileResult(report.nodeid, "empty", _EMPTY))
        return report

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the list of a worker that ended; one that crashed has none."""
        for file in getattr(node, "workeroutput", {}).get(_KEY, ()):
            self._tracker.file_finished(FileResult(**file))


def _is_empty(collector: pytest.Collector, report: pytest.CollectReport) -> bool:
    return isinstance(collector, pytest.Module) and report.passed and not report.result
