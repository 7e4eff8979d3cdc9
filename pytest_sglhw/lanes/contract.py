"""What a lane promises, against the machine before the run and against the results after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_sglhw.gates.module_gate import left_by
from pytest_sglhw.report.findings import minima

if TYPE_CHECKING:
    from pytest_sglhw.environment.records import Environment
    from pytest_sglhw.gates.policy import LanePolicy
    from pytest_sglhw.lanes.config import Lane
    from pytest_sglhw.lanes.shard import Shard
    from pytest_sglhw.report.results import FileResult, TestResult

#: Tests that are named under one heading; beyond it the report has them.
NAMED = 200


UNMET = (
    "Nothing was run. See: sglhw doctor --lane {lane}. "
    "Run the lane on a machine that keeps the promise, or change the promise."
)


@dataclass(frozen=True, slots=True)
class Term:
    """One thing that a lane promises of its machine, and what was found."""

    what: str
    promised: str
    found: str
    kept: bool
    evidence: str = ""


def terms(lane: Lane, environment: Environment) -> list[Term]:
    """Compare the promise with the machine, term by term."""
    return [
        _live(environment),
        _platform(lane, environment),
        *_devices(lane, environment),
        *(_capability(name, environment) for name in lane.capabilities),
    ]


def _live(environment: Environment) -> Term:
    if environment.fake is None:
        return Term("machine", "live", "live", True)
    return Term("machine", "live", "fake", False, f"--sglhw-fake {environment.fake}")


def _platform(lane: Lane, environment: Environment) -> Term:
    kept = environment.platform == lane.platform
    return Term("platform", lane.platform, environment.platform, kept, environment.reason)


def _devices(lane: Lane, environment: Environment) -> Iterator[Term]:
    usable = environment.usable_devices
    if lane.min_devices:
        masks = [f"{name}={value!r}" for name, value in environment.masks.items()]
        bad = [f"device {d.index} is {d.state}: {d.reason}" for d in environment.devices if d.state != "available"]
        kept = len(usable) >= lane.min_devices
        yield Term("devices", f"at least {lane.min_devices}", str(len(usable)), kept, "; ".join((*bad, *masks)))
    if lane.archs:
        found = [device.arch or "unknown" for device in usable]
        kept = bool(found) and set(found) <= set(lane.archs)
        yield Term("archs", " or ".join(lane.archs), ", ".join(dict.fromkeys(found)) or "no device", kept)


def _capability(name: str, environment: Environment) -> Term:
    state = environment.capability(name)
    evidence = "; ".join(text for text in (state.reason, *state.evidence) if text)
    return Term(name, "available", state.state, state.state == "available", evidence)


def unmet_table(lane: Lane, found: Iterable[Term]) -> str:
    """Say which terms this machine does not meet, beside those it does."""
    rows = [("  ", "promised", "found", "evidence")]
    rows += [(("  " if term.kept else "x ") + term.what, *_cells(term)) for term in found]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join((*map(str.ljust, row[:3], widths), row[3])).rstrip() for row in rows]
    return "\n".join(
        (
            f"this machine is not what {lane} promises:",
            "",
            *(f"  {line}" for line in lines),
            "",
            UNMET.format(lane=lane.name),
        )
    )


def _cells(term: Term) -> tuple[str, str, str]:
    return term.promised, term.found, " ".join(term.evidence.split())


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to say at the end of a lane's run. A breach fails the run."""

    breach: bool
    heading: str
    lines: tuple[str, ...] = ()


class Results:
    """What came of a lane's tests, as far as its promise asks."""

    def __init__(self, lane: Lane, policy: LanePolicy, shard: Shard | None) -> None:
        self._lane = lane
        self._policy = policy
        self._shard = shard
        self._tests: dict[str, TestResult] = {}
        self._files: list[FileResult] = []

    def add_test(self, result: TestResult) -> None:
        """Take the result of a test; of several attempts the last one counts."""
        if not result.rerun:
            self._tests[result.nodeid] = result

    def add_file(self, result: FileResult) -> None:
        """Take a file that gave no test."""
        self._files.append(result)

    @property
    def executed(self) -> dict[str, Sequence[str]]:
        """The tests that ran to a verdict, each with its marks."""
        return {test: result.facts.get("marks", ()) for test, result in self._tests.items() if result.executed}

    @property
    def total(self) -> int:
        """How many tests there were."""
        return len(self._tests)

    def contradictions(self) -> list[str]:
        """Name the tests and files that were skipped for a reason of ours that the lane does not allow."""
        skips: list[tuple[TestResult | FileResult, str, str]]
        skips = [(result, result.facts.get("mark", ""), result.facts["reason_code"]) for result in self._ours()]
        skips += [(file, *left) for file in self._files if file.outcome == "skipped" and (left := left_by(file.reason))]
        return [f"{it.nodeid} [{code}]: {it.reason}" for it, mark, code in skips if not self._policy.allows(mark, code)]

    def findings(self) -> list[Finding]:
        """Compare promise and results: the breaches first, then what a maintainer should see."""
        found = [*_contradictions(self._lane, self.contradictions()), *_not_run(self._of("not_run")), *self._minima()]
        return [*found, *_files_without_tests(self._files), *_skips_of_others(self._of_others())]

    def _of(self, outcome: str) -> list[TestResult]:
        return [result for result in self._tests.values() if result.outcome == outcome]

    def _ours(self) -> list[TestResult]:
        return [result for result in self._of("skipped") if result.facts.get("reason_code")]

    def _of_others(self) -> list[TestResult]:
        return [result for result in self._of("skipped") if not result.facts.get("reason_code")]

    def _minima(self) -> Iterator[Finding]:
        counted = list(minima(self._lane.to_json(), self.executed))
        if self._shard is not None:
            if any(least for _, least, _ in counted):
                yield Finding(False, f"this is shard {self._shard}: sglhw merge checks the minima of the lane")
            return
        for promised, least, count in counted:
            if count < least:
                yield Finding(True, f"too few tests were executed: {promised} = {least}, executed {count}")


def _contradictions(lane: Lane, skips: list[str]) -> Iterator[Finding]:
    if skips:
        allowed = ", ".join(lane.allow_skips) or "nothing"
        count = f"{len(skips)} skip{'s contradict' if len(skips) > 1 else ' contradicts'}"
        yield Finding(True, f"{count} the promise (allow_skips: {allowed})", named(skips))


def _files_without_tests(files: list[FileResult]) -> Iterator[Finding]:
    if files:
        lines = [f"{file.nodeid} ({file.outcome}): {_first_line(file.reason)}" for file in files]
        yield Finding(False, f"files that gave no test: {len(files)}", named(lines))


def _not_run(tests: list[TestResult]) -> Iterator[Finding]:
    if tests:
        yield Finding(True, f"tests that were not run: {len(tests)}", named(_by_reason(tests)))


def _skips_of_others(skips: list[TestResult]) -> Iterator[Finding]:
    if skips:
        yield Finding(False, f"skips that this plugin did not cause: {len(skips)}", named(_by_reason(skips)))


def _by_reason(results: list[TestResult]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for result in results:
        reasons.setdefault(result.reason, []).append(result.nodeid)
    return [f"{len(tests)} x {_first_line(reason)}: {', '.join(named(tests, 3))}" for reason, tests in reasons.items()]


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0] or "no reason given"


def named(names: list[str], limit: int = NAMED) -> tuple[str, ...]:
    """Give the first ``limit`` names, and how many more there are."""
    more = len(names) - limit
    return (*names[:limit], f"... and {more} more") if more > 0 else tuple(names)
