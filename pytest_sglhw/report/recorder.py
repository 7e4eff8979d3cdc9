"""The report of a run: JSON Lines, each record in the file as soon as it happens. The schema is in docs/report.md."""

from __future__ import annotations

import os
import platform
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sglhw.environment.detection import detection_of
from pytest_sglhw.report.courier import WORKER_ENVIRONMENT
from pytest_sglhw.report.nodeids import Location, NodeIds
from pytest_sglhw.report.writer import RecordWriter, TakenError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from pytest_sglhw.environment.records import Environment
    from pytest_sglhw.report.results import FileResult, TestResult
    from pytest_sglhw.settings import Settings

#: Major and minor version of the records. A reader refuses another major one; the minor one grows with new keys.
SCHEMA = "1.0"

#: What ``lanes`` says of the run for its report: ``lane``, ``shard`` (``"2/4"``) and ``promise`` (the lane's table).
LANE_FACTS = pytest.StashKey[dict[str, Any]]()

#: What ``lanes`` found at the end of the run: one sentence for each promise that was not kept.
BROKEN_PROMISES = pytest.StashKey[list[str]]()

#: What ``workers`` gave to each worker: worker id -> its devices, as its mask has them.
WORKER_DEVICES = pytest.StashKey[dict[str, str]]()

#: Records of further kinds, (kind, record), which the report gets before its end.
MORE_RECORDS = pytest.StashKey[list[tuple[str, dict[str, Any]]]]()


class Recorder:
    """Write the report: one plugin object, in the process that reports."""

    def __init__(self, config: pytest.Config, settings: Settings, path: str) -> None:
        self._config = config
        self._settings = settings
        # Resolved at once: a test may change the working directory.
        self._path = os.path.abspath(path)
        self._writer: RecordWriter | None = None
        self._session: pytest.Session | None = None
        self._begun = time.time()
        self._known: Environment | None = None
        self._counts: Counter[str] = Counter()
        self._files: Counter[str] = Counter()
        self._reruns = 0
        self._ids = NodeIds(config)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None, object, object]:
        """Begin the report, after the lane looked at the machine and whether it was satisfied or not."""
        self._session = session
        self._writer = _writer(self._path)
        try:
            return (yield)
        finally:
            self._write("session", self._session_record())

    def pytest_sglhw_file_finished(self, result: FileResult) -> None:
        """Record a file that gave no test."""
        self._files[result.outcome] += 1
        self._write("collect", result.to_json())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str, location: Location) -> None:
        """Record that a test was started: without a ``test`` record after it, this is where the run was cut off."""
        self._write("start", {"nodeid": self._ids.started(nodeid, location), "time": round(time.time(), 3)})

    def pytest_sglhw_test_finished(self, result: TestResult) -> None:
        """Record the result of a test."""
        self._write_environment()
        if result.rerun:
            self._reruns += 1
        else:
            self._counts[result.outcome] += 1
        self._write("test", {**result.to_json(), "lane": self._settings.lane})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run whose report could not be written, or is gone: it would be taken for one that was cut off."""
        if self._writer is not None:
            self._writer.check()
        if self._writer and self._writer.error and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the report is, or why it is not whole."""
        if self._writer is None:
            return
        fake = f" (faked environment: {self._settings.fake})" if self._settings.fake else ""
        terminalreporter.write_sep("-", f"sglhw report: {self._path}{fake}")
        if self._writer.error:
            error = self._writer.error
            terminalreporter.write_line(
                f"the report is cut off, since writing it failed: {error.strerror or error}", red=True
            )

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """End the report; only now is the exit status final."""
        if self._writer is None:
            return
        self._write_environment()
        self._write_worker_environment()
        for kind, record in self._config.stash.get(MORE_RECORDS, ()):
            self._write(kind, record)
        self._write("end", self._end_record())
        self._writer.close()

    def _write(self, kind: str, record: Mapping[str, Any]) -> None:
        if self._writer is not None:
            self._writer.write(kind, record)

    def _write_environment(self) -> None:
        """Record what is known of the machine by now, wherever that is more than before: a report starts no probe."""
        known = detection_of(self._config).known()
        if known is not self._known and known is not None:
            self._known = known
            self._write("environment", {"environment": known.to_json()})

    def _write_worker_environment(self) -> None:
        environment = self._config.stash.get(WORKER_ENVIRONMENT, None)
        capabilities = {} if self._known is None else self._known.capabilities
        if environment is not None and (self._known is None or len(environment["capabilities"]) > len(capabilities)):
            self._write("environment", {"environment": environment})

    def _session_record(self) -> dict[str, Any]:
        settings = self._settings
        self._known = detection_of(self._config).known()
        return {
            "schema": SCHEMA,
            "run_id": uuid.uuid4().hex,
            "time": round(self._begun, 3),
            "attempt": run_attempt(os.environ),
            "lane": settings.lane,
            "shard": settings.shard,
            "promise": None,
            "fake": settings.fake,
            "environment": None if self._known is None else self._known.to_json(),
            "versions": {"pytest": pytest.__version__, "python": platform.python_version()},
        } | self._config.stash.get(LANE_FACTS, {})

    def _end_record(self) -> dict[str, Any]:
        session = self._session
        return {
            "exit_status": int(session.exitstatus) if session is not None else None,
            "broken_promises": self._config.stash.get(BROKEN_PROMISES, []),
            "counts": dict(self._counts),
            "files": dict(self._files),
            "reruns": self._reruns,
            "worker_devices": self._config.stash.get(WORKER_DEVICES, {}),
            "collected": getattr(session, "testscollected", 0),
            "duration": round(time.time() - self._begun, 3),
        }


def _writer(path: str) -> RecordWriter:
    given = f"the report {path!r} (--sglhw-report)"
    try:
        return RecordWriter(path)
    except TakenError:
        problem, remedy = "is being written by another run", "Give each run a file of its own, or wait for that run."
    except OSError as error:
        problem = f"can't be written: {error.strerror or error}"
        remedy = "Give a file in a directory that this user may write to."
    raise pytest.UsageError(f"{given} {problem}. {remedy}")


def run_attempt(environ: Mapping[str, str]) -> int:
    """Which attempt at its lane this run is: ``SGLHW_ATTEMPT``, else what GitHub counts, else 1."""
    for name in ("SGLHW_ATTEMPT", "GITHUB_RUN_ATTEMPT"):
        text = environ.get(name, "")
        if text.isdecimal() and int(text) > 0:
            return int(text)
    return 1
