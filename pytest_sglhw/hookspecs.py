"""Hooks that this plugin calls. Implement them in a ``conftest.py`` or in a plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_sglhw.registry.registry import Registry
    from pytest_sglhw.report.results import FileResult, TestResult


@pytest.hookspec(historic=False)
def pytest_sglhw_register(registry: Registry) -> None:
    """Add platforms, capabilities and kernel providers of your own.

    For example, in ``conftest.py``::

        def pytest_sglhw_register(registry):
            registry.add_capability({"name": "my_kernels", "summary": "our kernels", "platforms": {"cuda": ""},
                                     "probe": {"module": "my_kernels"}})
            registry.add_provider("mine", "my_kernels.kvcacheio")

    :param registry: the registry of this run, with the built-in rows already in it.
    """


@pytest.hookspec
def pytest_sglhw_test_finished(result: TestResult) -> None:
    """Look at the finished result of one test, in the process that reports (under xdist: the controller).

    A test that is run again gives a result for each attempt; all but the last have ``result.rerun``. Implement it in a
    plugin or in the ``conftest.py`` of the root directory: results are tracked only where somebody listens by the time
    the run is configured.

    :param result: the one outcome of the test, from all its phases.
    """


@pytest.hookspec
def pytest_sglhw_file_finished(result: FileResult) -> None:
    """Look at a file that gave no test: it failed to collect, was skipped whole, or is empty.

    :param result: the file's node id, ``failed``, ``skipped`` or ``empty``, and the reason.
    """
