"""The plan: what each test would do in each lane, and what no lane would do. No pytest item, no machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pytest_sglhw.errors import RecordError
from pytest_sglhw.gates.contradiction import contradiction
from pytest_sglhw.gates.requirement import describe
from pytest_sglhw.gates.verdict import decide
from pytest_sglhw.lanes.promise import Word, settle

if TYPE_CHECKING:
    from pytest_sglhw.environment.records import Environment
    from pytest_sglhw.gates.requirement import Requirement
    from pytest_sglhw.lanes.config import Lane
    from pytest_sglhw.registry.registry import Registry

#: Words after which a test has been executed.
EXECUTING: frozenset[Word] = frozenset({"run", "raise"})

#: The requirement of a test that pytest's own mark ``skip`` keeps from running anywhere.
SKIPPED = "skip"

NO_LANES = (
    "--sglhw-plan needs lanes, and none is configured. Configure some as [tool.sglhw.lanes.NAME] in pyproject.toml or "
    "[lanes.NAME] in sglhw.toml, or give a machine: --sglhw-plan-for cuda:sm90*2."
)


class Column(NamedTuple):
    """One lane or machine of a plan."""

    name: str
    decide: Callable[[Requirement], Word]


class Row(NamedTuple):
    """One test of a plan: a word for each column."""

    nodeid: str
    requirement: str
    words: tuple[Word, ...]
    contradiction: str | None

    @property
    def executed(self) -> bool:
        """Whether some lane would execute the test."""
        return not EXECUTING.isdisjoint(self.words)


class Plan(NamedTuple):
    """What a collected suite would do. Files are ``(node id, reason)``."""

    columns: tuple[str, ...]
    rows: list[Row]
    failed: list[tuple[str, str]]
    skipped: list[tuple[str, str]]

    @property
    def nowhere(self) -> list[Row]:
        """The tests that no lane would execute."""
        return [row for row in self.rows if not row.executed]

    @property
    def contradictory(self) -> list[Row]:
        """The tests whose requirement no machine can meet."""
        return [row for row in self.rows if row.contradiction]

    @property
    def fine(self) -> bool:
        """Whether every test would be executed somewhere and every file was collected."""
        return not (self.failed or any(row.contradiction or not row.executed for row in self.rows))

    def counts(self) -> list[Counter[Word]]:
        """Count the words of each column."""
        return [Counter(row.words[at] for row in self.rows) for at in range(len(self.columns))]


class Columns:
    """The columns of a plan, and the words that each requirement gets in them, worked out once."""

    def __init__(self, columns: Iterable[Column], registry: Registry) -> None:
        self._columns = tuple(columns)
        self._registry = registry
        self._known: dict[Requirement, tuple[str, tuple[Word, ...], str | None]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self._columns)

    def row(self, nodeid: str, requirement: Requirement) -> Row:
        """Give the row of a test with this requirement (empty: it asks nothing)."""
        known = self._known.get(requirement)
        if known is None:
            words: tuple[Word, ...] = tuple(column.decide(requirement) for column in self._columns)
            known = describe(requirement), words, contradiction(requirement, self._registry)
            self._known[requirement] = known
        return Row(nodeid, *known)

    def skipped_row(self, nodeid: str) -> Row:
        """Give the row of a test that is skipped everywhere by pytest's own mark."""
        word: Word = "skip"
        return Row(nodeid, SKIPPED, (word,) * len(self._columns), None)


def plan_columns(wanted: Iterable[str], lanes: dict[str, Lane], registry: Registry) -> Columns:
    """Make a column of each configured lane, or of each lane or machine in ``wanted``.

    :raises pytest.UsageError: no lane at all, or a name that is neither a lane nor a machine.
    """
    names = tuple(dict.fromkeys(wanted)) or tuple(lanes)
    if not names:
        raise pytest.UsageError(NO_LANES)
    return Columns((_column(name, lanes, registry) for name in names), registry)


def _column(name: str, lanes: dict[str, Lane], registry: Registry) -> Column:
    lane = lanes.get(name)
    if lane is not None:
        return Column(name, lambda requirement: settle(requirement, lane, registry))
    from pytest_sglhw.environment.fakes import fake_environment

    try:
        environment = fake_environment(name, registry)
    except RecordError as error:
        known = f"Lanes: {', '.join(lanes)}." if lanes else "No lane is configured."
        raise pytest.UsageError(
            f"--sglhw-plan-for {name!r} is neither a lane nor a machine. {known} {error}"
        ) from error
    return Column(name, lambda requirement: _on_machine(requirement, environment))


def _on_machine(requirement: Requirement, environment: Environment) -> Word:
    verdict = decide(requirement, environment)
    if not verdict.settled:
        return "not promised"
    return "skip" if verdict.action == "fail" else verdict.action
