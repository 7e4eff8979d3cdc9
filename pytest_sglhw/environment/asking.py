"""Ask a child process one stage at a time; a stage that hangs or kills it costs that stage and no other."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pytest_sglhw.record import Record

if TYPE_CHECKING:
    from pytest_sglhw.environment.conversation import Child

Fault = Literal["hung", "crashed", "garbled"]


class Answer(Record):
    """What came of one stage: a ``value``, an ``error`` that it raised, or a ``fault`` of the whole process."""

    stage: str
    value: Any = None
    error: str = ""
    fault: Fault | None = None
    detail: str = ""
    output: str = ""
    warnings: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Shared libraries that the error names as not found."""
    undecided: bool = False
    """Whether the error says of itself that it decides nothing (a check that could not be made)."""

    @property
    def ok(self) -> bool:
        """Whether the stage ended and gave a value."""
        return self.fault is None and not self.error

    @property
    def told(self) -> str:
        """One line that says how the stage went wrong."""
        return self.error or self.detail


class Asker:
    """A child process that answers, started when it is first asked and started again past a stage that broke it.

    :param timeout: seconds for one stage. The whole probe may take four times as long, or a minute.
    :param environ: environment of the child; this process's own where ``None``.
    """

    def __init__(self, timeout: float, environ: Mapping[str, str] | None = None) -> None:
        self.timeout = timeout
        self.cap = max(4 * timeout, 60.0)
        self.seconds = 0.0
        self.poisoned: dict[str, str] = {}
        self._environ = dict(os.environ if environ is None else environ)
        self._child: Child | None = None
        self._before: list[tuple[str, str, dict[str, Any]]] = []

    def __enter__(self) -> Asker:  # noqa: PYI034 (Self came with Python 3.11)
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    def ask(self, stage: str, do: str, *, imports: str = "", again: bool = False, **arguments: Any) -> Answer:
        """Ask for one stage.

        ``imports`` is the module whose import may break the child: if it does, it is not imported again in this probe.
        ``again`` marks a stage that has to be repeated in each new child before anything else (the import of torch).
        """
        top = imports.partition(".")[0]
        if top in self.poisoned:
            return Answer(stage, fault="crashed", detail=f"not asked again: {self.poisoned[top]}")
        if self.seconds >= self.cap:
            return Answer(stage, fault="hung", detail=f"not asked: the probe's cap of {self.cap:g} s is used up")
        started = time.monotonic()
        try:
            answer = self._ask(stage, do, arguments)
        except OSError as error:
            answer = Answer(stage, fault="crashed", detail=f"no child process could be started: {error}")
        finally:
            self.seconds += time.monotonic() - started
        if answer.fault:
            self._end()
            if top:
                self.poisoned[top] = f"{stage} {answer.detail}"
        elif again:
            self._before.append((stage, do, arguments))
        return answer

    def _ask(self, stage: str, do: str, arguments: dict[str, Any]) -> Answer:
        # A settled platform asks nobody: it does not pay for the import of subprocess and its kind.
        from pytest_sglhw.environment.conversation import Child

        status, output = "", ""
        for _ in range(2):
            if self._child is None:
                self._child = Child(self.timeout, self.cap, self._environ, tuple(self.poisoned))
                for before in self._before:
                    answer = self._child.ask(*before)
                    if answer is None or answer.fault:
                        self._end()
                        return Answer(
                            stage, fault="crashed", detail=f"not asked: {before[0]} failed when it was repeated"
                        )
            answer = self._child.ask(stage, do, arguments)
            if answer is not None:
                return answer
            status, output = self._child.last_words()
            self._end()  # it died before the stage began, a late effect of an earlier one: the stage is asked again
        words = [f"it {status}" if status else "", *output.splitlines()[-1:]]
        detail = ": ".join(filter(None, ("the child process ends before it answers", *words)))
        return Answer(stage, fault="crashed", detail=detail, output=output)

    def _end(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None
