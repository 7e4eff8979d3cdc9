"""Ask a child process one stage at a time; a stage that hangs or kills it costs that stage and no other."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pytest_sglhw.record import Record, replace

if TYPE_CHECKING:
    from pytest_sglhw.asking.conversation import Child

#: Seconds below which a stage is not asked any more: no child could start and answer in it.
_LEAST = 0.2

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
    absent: str = ""
    """The top-level package that could not be imported since there is none in the child."""
    changed: tuple[str, ...] = ()
    """What the stage changed that everybody's imports depend on (``sys.path``, a builtin)."""

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

    The whole probe has a cap. No stage may take more than half of what is left of it, so that however many stages hang,
    those behind them are asked too.

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
        self._hung: list[str] = []
        self._guests: dict[str, None] = {}  # whose code the present child has run
        self.ended_late: dict[str, str] = {}
        """Packages whose import or check went well and that ended the child later, with how that was seen."""
        self.late: list[str] = []
        """A sentence for each time that a child ended late, naming everybody who may have done it."""

    def __enter__(self) -> Asker:  # noqa: PYI034 (Self came with Python 3.11)
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    def ask(
        self, stage: str, do: str, *, imports: str = "", guest: str = "", again: bool = False, **arguments: Any
    ) -> Answer:
        """Ask for one stage.

        ``imports`` is the module whose import may break the child: if it does, it is not imported again in this probe.
        ``guest`` is whose code runs, where that is not what is imported.
        ``again`` marks a stage that has to be repeated in each new child before anything else (the import of torch).
        """
        top = imports.partition(".")[0]
        if top in self.poisoned:
            return Answer(stage, fault="crashed", detail=f"not asked again: {self.poisoned[top]}")
        if self._half < _LEAST:
            return Answer(stage, fault="hung", detail=f"not asked: {self._used_up}")
        answer = self._fairly(stage, do, arguments, guest or top)
        if answer.fault == "hung":
            self._hung.append(stage)
        if answer.fault:
            self._end()
            if top:
                self.poisoned[top] = f"{stage} {answer.detail}"
        elif again:
            self._before.append((stage, do, arguments))
        elif answer.changed:  # the next one is asked in a process as fresh as this one was
            self._end()
        elif guest or top:
            self._guests[guest or top] = None
        return answer

    @property
    def _half(self) -> float:
        """Half of the seconds that are left."""
        return (self.cap - self.seconds) / 2

    @property
    def _used_up(self) -> str:
        hung = f" by what hung: {', '.join(self._hung)}" if self._hung else ""
        return (
            f"the {self.cap:g} s that the whole probe may take are nearly used up{hung}. A longer --probe-timeout"
            " (pytest: --sglhw-probe-timeout) raises that to four times as long"
        )

    def fresh(self) -> None:
        """Ask the next stage in a new child."""
        self._end()

    def _fairly(self, stage: str, do: str, arguments: dict[str, Any], guest: str) -> Answer:
        """Ask again in a child of its own what ended in one that others had been in: it may have been their doing."""
        answer = self._ask(stage, do, arguments)
        suspects = [name for name in self._guests if name != guest]
        if answer.fault not in ("crashed", "garbled") or not suspects:
            return answer
        self._end()
        alone = self._ask(stage, do, arguments)
        if alone.fault:
            return alone
        self._suspect(suspects, f"the child process {answer.detail} during {stage}, which goes well by itself")
        return alone

    def _suspect(self, names: list[str], seen: str) -> None:
        if len(names) == 1:
            self.ended_late[names[0]] = seen
        self.late.append(f"{' or '.join(names)} ended the probe's child late: {seen}")

    def _ask(self, stage: str, do: str, arguments: dict[str, Any]) -> Answer:
        # A settled platform asks nobody: it does not pay for the import of subprocess and its kind.
        from pytest_sglhw.asking.conversation import Child

        status, output = "", ""
        for _ in range(2):
            if self._child is None:
                try:
                    self._child = Child(self.cap, self._environ, tuple(self.poisoned))
                except Exception as error:  # noqa: BLE001 (an audit hook raises what it likes)
                    told = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                    return Answer(stage, fault="crashed", detail=f"no child process could be started: {told}")
                for before in self._before:
                    answer = self._put(self._child, *before)
                    if answer is None or answer.fault:
                        self._end()
                        said = f" ({answer.fault}: {answer.detail})" if answer else ""
                        detail = f"not asked: {before[0]} failed when it was repeated{said}"
                        return Answer(stage, fault="crashed", detail=detail)
            answer = self._put(self._child, stage, do, arguments)
            if answer is not None:
                return answer
            status, output = self._child.last_words()
            if self._guests:
                self._suspect([*self._guests], f"the child process was gone before {stage} began")
            self._end()  # a late effect of an earlier stage: this one is asked again
        lines = output.splitlines()
        last = next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "")
        words = [f"it {status}" if status else "", last]
        detail = ": ".join(filter(None, ("the child process ends before it answers", *words)))
        return Answer(stage, fault="crashed", detail=detail, output=output)

    def _put(self, child: Child, stage: str, do: str, arguments: dict[str, Any]) -> Answer | None:
        seconds, started = min(self.timeout, self._half), time.monotonic()
        try:
            answer = child.ask(stage, do, arguments, seconds)
        finally:
            self.seconds += time.monotonic() - started
        if answer is None or answer.fault != "hung" or seconds == self.timeout:
            return answer
        return replace(answer, detail=f"{answer.detail}, which was all that was left for it: {self._used_up}")

    def _end(self) -> None:
        self._guests.clear()
        if self._child is not None:
            self._child.end()
            self._child = None
