"""Ask a child process one stage at a time; a stage that hangs or kills it costs that stage and no other."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_sglhw.environment.processes import COOKIE, end, told_exit

if TYPE_CHECKING:
    from typing_extensions import Self

CHILD = Path(__file__).with_name("child.py")

#: How much of the child's output is kept; a child that writes more loses the rest.
OUTPUT_LIMIT = 1 << 20

Fault = Literal["hung", "crashed", "garbled"]


@dataclass(frozen=True, slots=True)
class Answer:
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
        self._child: _Child | None = None
        self._before: list[tuple[str, str, dict[str, Any]]] = []

    def __enter__(self) -> Self:
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
        for _ in range(2):
            if self._child is None:
                self._child = _Child(self.timeout, self.cap, self._environ, tuple(self.poisoned))
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
            self._end()  # it died before the stage began, a late effect of an earlier one: the stage is asked again
        return Answer(stage, fault="crashed", detail="the child process ends before it answers")

    def _end(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


class _Child:
    """One child process with its two files."""

    def __init__(self, timeout: float, cap: float, environ: dict[str, str], poisoned: tuple[str, ...]) -> None:
        self._timeout = timeout
        self._nonce = secrets.token_hex(16)
        self._folder = tempfile.mkdtemp(prefix="sglhw-probe-")
        self._answers = Path(self._folder, "answers")
        self._answers.touch()
        self._reader = self._answers.open("rb")
        self._output = Path(self._folder, "output").open("a+b")  # noqa: SIM115
        job = {
            "nonce": self._nonce,
            "answers": str(self._answers),
            "path": [*map(str, sys.path)],
            "poisoned": poisoned,
            "seconds": cap,
        }
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD), json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            env={**environ, COOKIE: self._nonce, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )

    def ask(self, stage: str, do: str, arguments: dict[str, Any]) -> Answer | None:
        """Return the answer; ``None`` if the child was gone before it announced the stage."""
        deadline = time.monotonic() + self._timeout
        request = {"id": stage, "do": do, "with": arguments, "deadline": self._timeout}
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
        except OSError:
            return None
        return self._await(stage, deadline)

    def _await(self, stage: str, deadline: float) -> Answer | None:
        announced, rest, pause = False, b"", 0.001
        while True:
            gone = self._process.poll() is not None  # asked before the file is read: what it wrote last is not missed
            rest += self._reader.read()
            *lines, rest = rest.split(b"\n")
            for line in lines:
                event = self._event(line)
                if event is None:
                    return self._fault(stage, "garbled", "wrote something else into the file of answers")
                if event.get("id") == stage and event.get("event") == "end":
                    return _answer(stage, event)
                announced = announced or event.get("id") == stage
            if gone:
                return self._fault(stage, "crashed", told_exit(self._process.returncode)) if announced else None
            if time.monotonic() > deadline:
                return self._fault(stage, "hung", f"did not end within {self._timeout:g} s")
            self._bound_output()
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)

    def _event(self, line: bytes) -> dict[str, Any] | None:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return None
        return event if isinstance(event, dict) and event.get("nonce") == self._nonce else None

    def _fault(self, stage: str, fault: Fault, detail: str) -> Answer:
        return Answer(stage, fault=fault, detail=detail, output=self._tail())

    def _bound_output(self) -> None:
        if os.fstat(self._output.fileno()).st_size > OUTPUT_LIMIT:
            os.ftruncate(self._output.fileno(), 0)

    def _tail(self) -> str:
        """The last lines of the output, which say where a crash or a hang was."""
        size = os.fstat(self._output.fileno()).st_size
        self._output.seek(max(0, size - 4096))
        lines = self._output.read(4096).decode(errors="replace").split("\n")
        return "\n".join(line.rstrip() for line in lines[-12:] if line.strip())

    def end(self) -> None:
        """Kill the process with all that it started and remove its files."""
        assert self._process.stdin is not None
        end(self._process, self._nonce)
        for stream in (self._process.stdin, self._reader, self._output):
            try:
                stream.close()
            except OSError:
                continue
        shutil.rmtree(self._folder, ignore_errors=True)


def _answer(stage: str, event: dict[str, Any]) -> Answer:
    return Answer(
        stage,
        value=event.get("value"),
        error=str(event.get("error", "")),
        warnings=tuple(event.get("warnings", ())),
        missing=tuple(event.get("missing", ())),
    )
