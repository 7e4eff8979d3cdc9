"""The child process of an ``isolated_device`` test: one pytest run of one test, its reports written as they happen."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    import warnings

#: Key of a warning among the reports: its text, its category by module and name, file and line.
WARNING = "sglhw_warning"

#: Set in the child's configuration: the test runs there like any other.
IN_CHILD = pytest.StashKey[bool]()


@dataclass(frozen=True)
class Job:
    """What the child is to run, and where it writes its reports (pickles, one behind the other)."""

    nodeid: str
    args: list[str]
    options: dict[str, Any]
    sys_path: list[str]
    reports: str
    argv: list[str]
    worker: dict[str, str] | None
    """``workerid`` and ``testrunuid`` where the parent is a worker."""
    lifeline: int
    """A pipe whose other end the parent holds: it is at its end when the parent is."""


class IsolatedRun:
    """Plugin of the child: takes over the parent's options, runs one test, writes each report at once."""

    def __init__(self, job: Job) -> None:
        self._job = job

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> None:
        """Take over the options of the parent, as xdist's workers do; how conftests are loaded is among them."""
        vars(early_config.option).update(self._job.options)
        vars(early_config.known_args_namespace).update(self._job.options)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the one test: an argument may name more (all parameters of a function)."""
        items[:] = [item for item in items if item.nodeid == self._job.nodeid]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run the test once: whoever runs it again does so in the parent, with a child for each attempt."""
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        runtestprotocol(item, nextitem=None)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write one report, so that a crash in the next phase loses nothing."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._write(data)

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, location: tuple[str, int, str] | None
    ) -> None:
        """Write a warning of the test; those of configuring and collecting are the parent's own as well."""
        if when == "runtest":
            category = warning_message.category
            where = (warning_message.filename, warning_message.lineno)
            told = (str(warning_message.message), category.__module__, category.__qualname__, *where)
            self._write({WARNING: told, "location": location})

    def _write(self, data: object) -> None:
        with Path(self._job.reports).open("ab") as file:
            pickle.dump(data, file)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Keep the cache for the tests, and what the run notes in it for the parent."""
        for name in ("lfplugin", "nfplugin", "stepwiseplugin"):
            if self._config.pluginmanager.hasplugin(name):
                self._config.pluginmanager.unregister(name=name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep the configuration, whose hooks serialise the reports, and say that this is the child."""
        self._config = config
        config.stash[IN_CHILD] = True
        if self._job.worker is not None:
            config.pluginmanager.register(_worker_fixtures(self._job.worker))


def _worker_fixtures(worker: dict[str, str]) -> ModuleType:
    """The fixtures of xdist, as they are in the worker that started this process.

    A module, since fixtures of the session that are methods are deprecated.
    """

    @pytest.fixture(scope="session")
    def worker_id() -> str:
        return worker["workerid"]

    @pytest.fixture(scope="session")
    def testrun_uid() -> str:
        return worker["testrunuid"]

    fixtures = ModuleType("sglhw_worker_fixtures")
    vars(fixtures).update(worker_id=worker_id, testrun_uid=testrun_uid)
    return fixtures


def _end_with_parent(lifeline: int) -> None:
    """Leave a process behind that kills this one, and what it started, as soon as the parent is gone.

    A process and no thread, since code that hangs may hold the interpreter's lock; and nobody's child, since a test may
    wait for its own. It ends with the parent's end of the lifeline, which is closed when this process has ended.
    """
    starter = os.fork()
    if starter == 0:
        if os.fork() == 0:
            os.read(lifeline, 1)
            os.killpg(0, signal.SIGKILL)
        os._exit(0)
    os.waitpid(starter, 0)
    os.close(lifeline)


def main() -> int:
    """Run the job whose file is the only argument."""
    # They are in the options already, and would ask for workers again.
    os.environ.pop("PYTEST_ADDOPTS", None)
    job: Job = pickle.loads(Path(sys.argv[1]).read_bytes())
    sys.path[:] = job.sys_path
    sys.argv[:] = job.argv
    _end_with_parent(job.lifeline)
    return int(pytest.main(job.args, plugins=[IsolatedRun(job)]))
