"""One result per test: the phase reports of a test, wherever it ran, become one record with one outcome word.

Nobody else counts outcomes. :class:`ResultTracker` lives in the process that reports (the only one, or the controller
of the workers) and hands each finished result to the hook ``pytest_sglhw_test_finished``, each file that gave no test
to ``pytest_sglhw_file_finished``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sglhw.report.nodeids import Location, NodeIds
from pytest_sglhw.report.outcomes import EXECUTED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_sglhw.settings import Settings

#: Longest reason that is kept; the whole text is in pytest's own output.
REASON_LIMIT = 500

PHASES = ("setup", "call", "teardown")


@dataclass(frozen=True, slots=True)
class TestResult:
    """What came of one attempt at one test.

    ``phase`` is the phase that decided, or where the test stood when its worker died or the run was interrupted;
    ``duration`` is the sum of all phases in seconds. ``rerun`` says that the test was run again, so that a later
    result replaces this one: whoever counts tests leaves it out.
    """

    __test__ = False

    nodeid: str
    outcome: str
    phase: str
    duration: float
    reason: str
    worker: str | None
    attempt: int
    rerun: bool
    facts: Mapping[str, Any]
    """What ``gates`` attached: ``marks``, ``requirement``, ``platform``, ``state``, ``reason_code``, ``matrix``."""
    peak_memory: int | None = None
    """The most bytes that torch held on one device during the test; ``None`` where that was not measured."""

    @property
    def executed(self) -> bool:
        """Whether the test's own code ran to a verdict."""
        return self.outcome in EXECUTED

    def to_json(self) -> dict[str, Any]:
        """The result as keys of a ``test`` record."""
        facts = self.facts
        record: dict[str, Any] = {
            "nodeid": self.nodeid,
            "outcome": self.outcome,
            "duration": round(self.duration, 6),
            "platform": facts.get("platform"),
            "worker": self.worker,
            "attempt": self.attempt,
            "requirement": facts.get("requirement"),
            "state": facts.get("state"),
            "reason_code": facts.get("reason_code"),
            "reason": self.reason,
            "phase": self.phase,
            "peak_memory": self.peak_memory,
        }
        if "marks" in facts:
            record["marks"] = facts["marks"]
        if self.rerun:
            record["rerun"] = True
        record.update(facts.get("matrix", {}))
        return record


@dataclass(frozen=True, slots=True)
class FileResult:
    """A file (or class, or directory) that gave no test: it ``failed``, was ``skipped`` whole, or is ``empty``."""

    nodeid: str
    outcome: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """The result as keys of a ``collect`` record."""
        return {"nodeid": self.nodeid, "outcome": self.outcome, "reason": self.reason}


#: The attribute of a test's last report that says how many bytes of device memory the test took.
PEAK_MEMORY = "sglhw_peak_memory"


_PASSED = ("passed", "")


class PhaseLog:
    """The phases of one running attempt, as far as they were reported."""

    def __init__(self, nodeid: str, worker: str | None, attempt: int) -> None:
        self.nodeid = nodeid
        self.worker = worker
        self.attempt = attempt
        self.rerun = False
        self._facts: dict[str, Any] = {}
        self._seen: dict[str, tuple[str, str]] = {}  # phase -> (word, reason)
        self._duration = 0.0
        self._peak_memory: int | None = None

    def add(self, report: pytest.TestReport) -> None:
        """Take the report of one phase, of a subtest, or of a worker's death."""
        if is_subtest(report):
            if report.failed:
                self._seen.setdefault("subtest", ("failed", failure_text(report.longrepr)))
            return
        when, facts = str(report.when), getattr(report, "sglhw", None)
        if facts is None and report.outcome == "passed" and when in PHASES and not hasattr(report, "wasxfail"):
            self._seen[when] = _PASSED  # most reports of most runs
        else:
            self._judge(report, when, facts or {})
        self._duration += report.duration
        if when == "teardown":
            self._peak_memory = getattr(report, PEAK_MEMORY, None)

    def _judge(self, report: pytest.TestReport, when: str, facts: Mapping[str, Any]) -> None:
        self._facts.update(facts)
        word = phase_word(report, facts.get("outcome"))
        self._seen[when] = word, _phase_reason(report, word, facts.get("reason") or "")
        self.rerun = self.rerun or str(report.outcome) == "rerun"

    def finished(self) -> TestResult:
        """The one result of the attempt, all its phases being in."""
        phase, word, reason = self._deciding()
        return self._result(word, self._current_phase() if phase == "???" else phase, reason)

    def cut_off(self, why: str) -> TestResult:
        """The one result of an attempt that the end of the run cut off; a failure before that stays one."""
        phase, word, reason = self._deciding()
        if word in ("failed", "error"):
            return self._result(word, phase, reason)
        self._facts["reason_code"] = "interrupted"
        return self._result("not_run", self._current_phase(), why)

    def _deciding(self) -> tuple[str, str, str]:
        """Phase, word and reason: the worst word if a bad one is among them, else call's, else setup's."""
        for bad in ("crashed", "failed", "error", "not_run"):
            for phase, (word, reason) in self._seen.items():
                if word == bad:
                    return ("call" if phase == "subtest" else phase), word, reason
        for phase in ("call", "setup"):
            word, reason = self._seen.get(phase, ("passed", ""))
            if (phase == "call" and phase in self._seen) or word != "passed":
                return phase, word, reason
        return "setup", "not_run", "only the fixtures ran: the test's own code was not called"

    def _current_phase(self) -> str:
        """The first phase that was not reported: where a test stands that ends in between."""
        return next((phase for phase in PHASES if phase not in self._seen), "teardown")

    def _result(self, word: str, phase: str, reason: str) -> TestResult:
        return TestResult(
            nodeid=self.nodeid,
            outcome=word,
            phase=phase,
            duration=self._duration,
            reason=shortened(reason),
            worker=self.worker,
            attempt=self.attempt,
            rerun=self.rerun,
            facts=self._facts,
            peak_memory=None if word in ("skipped", "not_run") else self._peak_memory,
        )


def phase_word(report: pytest.TestReport, given: str | None) -> str:
    """The outcome word of one phase. ``given`` is what ``gates`` or ``workers`` say where pytest has no word."""
    if given == "not_run":
        return given
    if str(report.when) == "???":
        return "crashed"
    if str(report.outcome) in ("failed", "rerun"):
        return "failed" if report.when == "call" else "error"
    if given:
        return given
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    return str(report.outcome)


def _phase_reason(report: pytest.TestReport, word: str, given: str) -> str:
    if word in ("failed", "error", "crashed"):
        return failure_text(report.longrepr) or given
    if word in ("xfailed", "xpassed"):
        return str(getattr(report, "wasxfail", "")).removeprefix("reason: ")  # pytest 8 says so before the reason
    if word == "skipped":
        return given or skip_text(report.longrepr)
    return given


def failure_text(longrepr: Any) -> str:
    """The message of a failure: what the exception said, else the last line of the text."""
    crash = getattr(longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message)
    lines = str(longrepr or "").strip().splitlines()
    return lines[-1].removeprefix("E  ").strip() if lines else ""


def skip_text(longrepr: Any) -> str:
    """The reason of a skip, without pytest's own prefix."""
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr or "")
    return text.removeprefix("Skipped: ")


def shortened(text: str) -> str:
    """Return ``text`` with at most :data:`REASON_LIMIT` characters."""
    return text if len(text) <= REASON_LIMIT else text[: REASON_LIMIT - 3] + "..."


def is_subtest(report: pytest.TestReport) -> bool:
    """Whether a report is that of a subtest, and none of a phase of its test."""
    # pytest 9 and pytest-subtests both name the subtest in ``context``; a plain report has no such attribute.
    return getattr(report, "context", None) is not None


class ResultTracker:
    """Turn phase reports into results, here and from workers, and give each to the hooks.

    An attempt ends with its teardown, with the death of its worker, or (plugins that run a test again may drop the
    teardown) with pytest's ``logfinish``. What is open at the end of the session was cut off.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._hook = config.hook
        self._lane = settings.lane
        self._junit = settings.junit_properties
        self._open: dict[tuple[str, str | None], PhaseLog] = {}
        self._started: Counter[str] = Counter()
        self._reruns: Counter[str] = Counter()
        self._files: set[str] = set()
        self.heard_of: set[str] = set()
        """The tests that have a result, as their reports name them."""
        self._interrupted_by = ""
        self._ids = NodeIds(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str, location: Location) -> None:
        """Remember the start: without a result by the end, the test was cut off."""
        self._started[self._ids.started(nodeid, location)] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a phase."""
        self.heard_of.add(report.nodeid)
        key = nodeid, worker = self._ids.of(report.nodeid), _worker(report)
        log = self._open.get(key)
        if log is None:
            attempt = getattr(report, "rerun", self._reruns[nodeid]) + 1
            log = self._open[key] = PhaseLog(nodeid, worker, attempt)
        log.add(report)
        if report.when == "teardown" or str(report.when) == "???":
            result = self._close(key, log.finished())
            if self._junit and result.facts:
                report.user_properties += junit_properties(result, self._lane)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Close an attempt whose teardown was not reported since the test is run again."""
        for key, log in list(self._open.items()):
            if key[0] == self._ids.of(nodeid) and log.rerun:
                self._close(key, log.finished())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take a file that failed or was skipped whole."""
        if not report.passed:
            self.file_finished(collect_result(report))

    def file_finished(self, result: FileResult) -> None:
        """Take the result of a file, once: under workers each of them reports it."""
        if result.nodeid not in self._files:
            self._files.add(result.nodeid)
            self._hook.pytest_sglhw_file_finished(result=result)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember what interrupted the run."""
        self._interrupted_by = excinfo.exconly()

    def pytest_internalerror(self, excrepr: Any) -> None:
        """Remember what broke the run."""
        self._interrupted_by = f"INTERNALERROR: {failure_text(excrepr)}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write off what was started and did not finish."""
        why = f"cut off: {self._interrupted_by or session.shouldfail or session.shouldstop or 'the run ended'}"
        for key, log in list(self._open.items()):
            self._close(key, log.cut_off(why))
        for nodeid in list(self._started.elements()):
            self._close((nodeid, None), PhaseLog(nodeid, None, self._reruns[nodeid] + 1).cut_off(why))

    def _close(self, key: tuple[str, str | None], result: TestResult) -> TestResult:
        self._open.pop(key, None)
        if self._started[result.nodeid] > 1:
            self._started[result.nodeid] -= 1
        else:
            del self._started[result.nodeid]
        if result.rerun or result.outcome == "crashed":
            self._reruns[result.nodeid] += 1
        self._hook.pytest_sglhw_test_finished(result=result)
        return result


def junit_properties(result: TestResult, lane: str | None) -> list[tuple[str, object]]:
    """The facts of a marked test as properties of its ``testcase`` in JUnit XML."""
    facts = result.facts
    values = {
        "nodeid": result.nodeid,
        "outcome": result.outcome,
        "reason_code": facts.get("reason_code"),
        "platform": facts.get("platform"),
        "lane": lane,
    }
    return [(f"sglhw.{key}", value) for key, value in values.items() if value is not None]


def collect_result(report: pytest.CollectReport) -> FileResult:
    """The result of a collector that failed or was skipped."""
    text = skip_text(report.longrepr) if report.skipped else failure_text(report.longrepr)
    return FileResult(report.nodeid, str(report.outcome), shortened(text))


def _worker(report: pytest.TestReport) -> str | None:
    node = getattr(report, "node", None)  # xdist's controller hangs the worker on the report
    return None if node is None else str(node.gateway.id)
