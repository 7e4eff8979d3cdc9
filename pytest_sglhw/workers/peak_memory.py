"""How much device memory each test takes, on request: torch's own count, where this process has a device context.

The count is that of torch's allocator for this process: what the test's setup, call and teardown held at once on the
device that held most, including what fixtures held before. What kernels allocate past torch is not in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import pytest

from pytest_sglhw.environment.loaded_torch import device_contexts
from pytest_sglhw.report.results import PEAK_MEMORY


class PeakMemory:
    """Plugin of each process that runs tests."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        """Forget the peak of the test before."""
        _forget()
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Hang the peak of a test on its last report: a plain attribute survives the trip from a worker."""
        report = yield
        if call.when == "teardown":
            setattr(report, PEAK_MEMORY, _peak())
        return report


def _forget() -> None:
    for _, namespace in device_contexts():
        for index in range(namespace.device_count() if hasattr(namespace, "reset_peak_memory_stats") else 0):
            with contextlib.suppress(RuntimeError):  # the context is lost: there is nothing to measure either
                namespace.reset_peak_memory_stats(index)


def _peak() -> int | None:
    """The peak in bytes; ``None`` without a context, and with one that is lost."""
    peaks = []
    for _, namespace in device_contexts():
        for index in range(namespace.device_count() if hasattr(namespace, "max_memory_allocated") else 0):
            with contextlib.suppress(RuntimeError):
                peaks.append(int(namespace.max_memory_allocated(index)))
    return max(peaks, default=None)
