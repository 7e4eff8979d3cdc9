"""Run one cell: its covering rows, then Hypothesis' draws; reduce the first failure and say it.

Hypothesis draws, and we reduce: its shrinker works on draws alone, while a covering row must become small too; it
needs thousands of calls where an isolated kernel costs a process each; and it must stop where a device is lost.
"""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from pytest_sglhw.conformance import covering, known_inputs
from pytest_sglhw.conformance.checks import examine
from pytest_sglhw.conformance.failures import CellError, RejectedError
from pytest_sglhw.conformance.family import Sequences
from pytest_sglhw.conformance.strategies import Block, Example, PinnedDraw, blocks
from pytest_sglhw.environment.sticky import is_sticky

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.stateful import RuleBasedStateMachine

    from pytest_sglhw.conformance.bench import Bench
    from pytest_sglhw.conformance.family import Law


class Effort(NamedTuple):
    """How many examples each cell gets."""

    rows: int
    draws: int
    reduction: int = 400
    """Calls that the reduction of a failing case may take."""
    steps: int = 20
    """Steps of a sequence."""
    large_trials: int = 0
    """Trials of each cell that may take gigabytes of a device's memory."""


PROFILES = {"quick": Effort(2, 3, steps=10), "ci": Effort(8, 20), "deep": Effort(8, 1100, steps=50, large_trials=1)}

#: A sequence costs as much as some 30 examples.
_MOST_SEQUENCES = 100

#: Examples that one draw of Hypothesis stands for.
_BLOCK = 10

_RAW_SKIP = "called pytest.{name} inside an example of the matrix; reject the example with bench.reject(reason) instead"


@dataclass
class Tally:
    """What a cell has run: the facts of its report."""

    examples: int = 0
    rejected: int = 0
    laws: dict[str, int] = field(default_factory=dict)
    levels: set[tuple[tuple[str, Any], ...]] = field(default_factory=set)
    """Combinations of factor values that were met."""


class CellRun:
    """One run of one cell of one provider.

    :param run_seed: 0, or the number that the user gave.
    :param only: one case to run instead of the rows and draws.
    """

    def __init__(self, bench: Bench, effort: Effort, run_seed: int = 0, only: Any = None) -> None:
        self.bench, self.effort, self.run_seed = bench, effort, run_seed
        self.only = only
        bench.large_trials = effort.large_trials
        self.tally = Tally()
        self._seed = zlib.crc32(bench.cell.id.encode()) ^ (run_seed * 0x9E3779B1 & 0xFFFFFFFF)
        self._known = known_inputs.known_in(bench.provider_name, bench.kernel.name, bench.place.platform)
        self._failure: CellError | None = None
        self._failing: Any = None
        self._wanted = effort.draws
        self.announce: Callable[[Law | None, Any, str], None] | None = None
        """Told of each ``example``, and of each ``smaller`` one while it is reduced, before it runs: what is left of a
        process that a kernel crashed."""

    def run(self) -> Tally:
        """Run every example.

        :raises CellError: the first example that broke a law, reduced.
        """
        if self.only is not None:
            self._example(Example(None, self.only, {}))
        else:
            self._run_rows()
            self._run_draws()
        if not self.bench.calls or not self.tally.examples:
            raise CellError(self.bench, None, None, AssertionError(self._idle()), 0)
        return self.tally

    def _idle(self) -> str:
        if self.tally.examples:
            return "the kernel was never called"
        reasons = [f"{reason} ({count} times)" for reason, count in self.bench.rejected.items()]
        return "\n  ".join(("every example was rejected:", *reasons))

    def _run_rows(self) -> None:
        kernel, cell = self.bench.kernel, self.bench.cell
        for number, row in enumerate(covering.rows(kernel, self.effort.rows)[cell], self._seed):
            source = PinnedDraw(number, row)
            self._run_row(number, kernel.workload.draw(cell, source), source.chosen)
        large = kernel.workload.large(cell, random.Random(self._seed))
        if large is not None:
            self._run_row(self._seed, large, {})

    def _run_row(self, number: int, case: Any, chosen: dict[str, Any]) -> None:
        """Hold one row to one law, the first in its turn that has something to say of it."""
        laws = self.bench.kernel.laws
        for turn in range(len(laws) or 1):
            law = laws[(number + turn) % len(laws)] if laws else None
            if self._example(Example(law, case, chosen)) or self._is_known(case):
                return

    def _run_draws(self) -> None:
        if isinstance(self.bench.kernel.workload, Sequences):
            self._run_machines(self.bench.kernel.workload)
            return

        @seed(self._seed)
        @self._settings(-(-self.effort.draws // _BLOCK))
        @given(blocks(self.bench.kernel, self.bench.cell, self._seed))
        def draw(block: Block) -> None:
            self._drawn(block)

        draw()

    def _settings(self, draws: int) -> settings:
        return settings(
            max_examples=draws,
            stateful_step_count=self.effort.steps,
            deadline=None,
            database=None,
            derandomize=False,  # each cell has its seed
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
            print_blob=False,
            report_multiple_bugs=False,
            backend="hypothesis",
        )

    def _run_machines(self, workload: Sequences) -> None:
        @seed(self._seed)
        def machine() -> RuleBasedStateMachine:
            return workload.machine(self.bench, self._attempt, self._finished)

        run_state_machine_as_test(machine, settings=self._settings(min(self.effort.draws, _MOST_SEQUENCES)))  # type: ignore[arg-type] # any factory will do

    def _attempt(self, case: Any, action: Callable[[], None]) -> None:
        """Run one step of a sequence, the last of ``case``.

        Hypothesis asks for the failing sequence a second time: it then ends at the same step, with no kernel called.
        """
        if self._failure:
            if case == self._failing:
                raise self._failure
            return
        if self.announce:
            self.announce(None, case, "example")
        error = _error_of(action)
        if error is not None:
            self._failing, self._failure = case, self._reduced(None, case, error)
            raise self._failure

    def _finished(self, chosen: Mapping[str, Any]) -> None:
        if not self._failure:
            self._count(None, chosen)

    def _drawn(self, block: Block) -> None:
        if self._failure:
            raise self._failure  # Hypothesis asks a second time; the kernel is not called again
        missing = min(_BLOCK, self._wanted)
        try:
            # others take the place of examples that do not count, but not for ever
            for example in itertools.islice(block, 10 * _BLOCK):
                missing -= self._example(example)
                if not missing:
                    break
        except CellError as failure:
            self._failure = failure
            raise
        self._wanted -= min(_BLOCK, self._wanted)

    def _example(self, example: Example) -> bool:
        """Run one example; say whether it counted."""
        law, case, chosen = example
        if self.only is None and self._is_known(case):
            self.tally.rejected += 1  # it has an item of its own
            return False
        if self.announce:
            self.announce(law, case, "example")
        error = self._broken(law, case)
        if isinstance(error, RejectedError):
            self.tally.rejected += 1
            return False
        if error is not None:
            raise self._reduced(law, case, error)
        self._count(law, chosen)
        return True

    def _count(self, law: Law | None, chosen: Mapping[str, Any]) -> None:
        self.tally.examples += 1
        name = law.name if law else "reference"
        self.tally.laws[name] = self.tally.laws.get(name, 0) + 1
        if chosen:
            self.tally.levels.add(tuple(sorted(chosen.items())))

    def _broken(self, law: Law | None, case: Any) -> BaseException | None:
        return _error_of(lambda: examine(self.bench, law, case))

    def _reduced(self, law: Law | None, case: Any, error: BaseException) -> CellError:
        """Make the case smaller as long as it fails in the same way; not at all once the device is lost."""
        steps = 0

        def fails(smaller: Any) -> BaseException | None:
            if self.announce:
                self.announce(law, smaller, "smaller")
            return self._broken(law, smaller)

        if not is_sticky(error):
            case, error, steps = reduce_case(fails, self._smaller, case, error, self.effort.reduction)
        return CellError(self.bench, law, case, error, steps)

    def _smaller(self, case: Any) -> Iterator[Any]:
        """Simpler cases, without the inputs that would end this process or fail in a way of their own."""
        for simpler in self.bench.kernel.workload.smaller(self.bench.cell, case):
            if not self._is_known(simpler):
                yield simpler

    def _is_known(self, case: Any) -> bool:
        bench = self.bench
        return any(row.covers(bench.cell, case, bench.place) for row in self._known)


def reduce_case(
    fails: Callable[[Any], BaseException | None],
    smaller: Callable[[Any], Any],
    case: Any,
    error: BaseException,
    limit: int,
) -> tuple[Any, BaseException, int]:
    """Take smaller cases greedily as long as they fail with the same law (or class of error), in ``limit`` calls."""
    steps, progress = 0, True
    while progress:
        progress = False
        for candidate in smaller(case):
            if steps >= limit:
                return case, error, steps
            steps += 1
            found = fails(candidate)
            if found is not None and is_sticky(found):
                return case, error, steps
            if _kind(found) == _kind(error):
                assert found is not None
                case, error, progress = candidate, found, True
                break
    return case, error, steps


def _error_of(action: Callable[[], None]) -> BaseException | None:
    try:
        action()
    except (pytest.skip.Exception, pytest.xfail.Exception) as outcome:
        name = "skip" if isinstance(outcome, pytest.skip.Exception) else "xfail"
        return AssertionError(_RAW_SKIP.format(name=name))
    except (Exception, SystemExit, pytest.exit.Exception) as error:  # noqa: BLE001 - the cell's result
        return error
    return None


def _kind(error: BaseException | None) -> object:
    return getattr(error, "law", type(error))
