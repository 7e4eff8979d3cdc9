"""One child process with its two files: requests go in by a pipe, answers come back by a file of their own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pytest_sglhw.asking.asker import Answer, Fault
from pytest_sglhw.asking.processes import COOKIE, Watch, end, search_flags, told_exit

CHILD = Path(__file__).with_name("child.py")

#: How much of the child's output is kept; a child that writes more loses the rest.
OUTPUT_LIMIT = 1 << 20

#: How much of it is read for the place of a crash or hang: the stacks of a few threads.
_TAIL = 1 << 14
_LINES = 12
_STACK = "(most recent call first)"


class Child:
    """A process that answers until it is ended, or until a stage ends it."""

    def __init__(self, cap: float, environ: dict[str, str], poisoned: tuple[str, ...]) -> None:
        self._nonce = os.urandom(16).hex()
        if not sys.executable:
            raise OSError("this program does not say which Python it is (sys.executable is empty)")
        self._folder = tempfile.mkdtemp(prefix="sglhw-probe-")
        answers = Path(self._folder, "answers")
        job = {
            "nonce": self._nonce,
            "answers": str(answers),
            "ended": str(Path(self._folder, "ended")),
            "path": [folder for folder in sys.path if isinstance(folder, str)],
            "poisoned": poisoned,
            "seconds": cap,
        }
        self._watch = Watch(self._nonce, self._folder)
        try:
            answers.touch()
            # Not on the command line: the search path alone may be longer than that can be.
            Path(self._folder, "job").write_text(json.dumps(job), encoding="ascii")
            self._reader = answers.open("rb")
            self._output = Path(self._folder, "output").open("a+b")  # noqa: SIM115
            self._process = subprocess.Popen(
                [sys.executable, *search_flags(), _script(self._folder), str(Path(self._folder, "job"))],
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                env={**environ, COOKIE: self._nonce, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
            self._watch.over(self._process.pid)
            assert self._process.stdin is not None
            with contextlib.suppress(AttributeError):  # Windows, before Python 3.12
                os.set_blocking(self._process.stdin.fileno(), False)
        except BaseException:
            self._watch.end()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def ask(self, stage: str, do: str, arguments: dict[str, Any], seconds: float) -> Answer | None:
        """Return the answer within so many seconds; ``None`` if the child was gone before it announced the stage."""
        deadline = time.monotonic() + seconds
        request = {"id": stage, "do": do, "with": arguments, "deadline": seconds}
        try:
            sent = self._send(json.dumps(request).encode() + b"\n", deadline)
        except OSError:
            return None
        return self._await(stage, deadline, seconds) if sent else self._late(stage, seconds)

    def _send(self, line: bytes, deadline: float) -> bool:
        """Write a request; say whether it was taken in time: one that is longer than a pipe waits for its reader."""
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        while line and time.monotonic() < deadline:
            try:
                line = line[os.write(pipe, line) :]
            except BlockingIOError:
                time.sleep(0.001)
        return not line

    def _late(self, stage: str, seconds: float) -> Answer:
        return self._fault(stage, "hung", f"did not end within {seconds:.3g} s")

    def _await(self, stage: str, deadline: float, seconds: float) -> Answer | None:
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
            if damage := self._damage():
                return self._fault(stage, "garbled", damage)
            if gone:
                return self._fault(stage, "crashed", told_exit(self._status())) if announced else None
            if time.monotonic() > deadline:
                return self._late(stage, seconds)
            self._bound_output()
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)

    def _damage(self) -> str:
        """Say what was done to the file of answers; empty where it is whole."""
        status = os.fstat(self._reader.fileno())
        if not status.st_nlink:
            return "removed the file of answers"
        return "cut the file of answers short" if status.st_size < self._reader.tell() else ""

    def _event(self, line: bytes) -> dict[str, Any] | None:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return None
        return event if isinstance(event, dict) and event.get("nonce") == self._nonce else None

    def _fault(self, stage: str, fault: Fault, detail: str) -> Answer:
        return Answer(stage, fault=fault, detail=detail, output=self._tail())

    def last_words(self) -> tuple[str, str]:
        """Say how the process ended, if it did, and the last lines of its output."""
        gone = self._process.poll() is not None
        return told_exit(self._status()) if gone else "", self._tail()

    def _status(self) -> int:
        """How the process ended, as it says itself: the system does not tell one that ignores SIGCHLD."""
        try:
            return int(Path(self._folder, "ended").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return self._process.returncode

    def _bound_output(self) -> None:
        if os.fstat(self._output.fileno()).st_size > OUTPUT_LIMIT:
            os.ftruncate(self._output.fileno(), 0)

    def _tail(self) -> str:
        """The lines of the output that say where a crash or a hang was, or else its last."""
        size = os.fstat(self._output.fileno()).st_size
        self._output.seek(max(0, size - _TAIL))
        lines = self._output.read(_TAIL).decode(errors="replace").split("\n")
        return "\n".join(_telling([line.rstrip() for line in lines if line.strip()]))

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
        self._watch.end()


def _script(folder: str) -> str:
    """Return the file of the child; where this package lies in an archive, one that is laid into ``folder``."""
    if CHILD.is_file():
        return str(CHILD)
    from pkgutil import get_data

    for name in ("child.py", "child_errors.py", "child_keeper.py", "child_state.py", "processes.py"):
        Path(folder, name).write_bytes(get_data(__package__, name) or b"")
    return str(Path(folder, CHILD.name))


def _telling(lines: list[str]) -> list[str]:
    """Return the top of the stack on which a process crashed or hung, or else the last lines.

    Python writes a stack from its top down, and those of the other threads before that of the main one. What lies
    between the code under test and us, the import system, is left out.
    """
    stacks = [index for index, line in enumerate(lines) if line.endswith((_STACK, f"{_STACK}:"))]
    if not stacks:
        return lines[-_LINES:]
    first, last = stacks[0], next((index for index in stacks if lines[index].startswith("Current")), stacks[-1])
    end = next((index for index in stacks if index > last), len(lines))
    frames = [line for line in lines[last:end] if not any(name in line for name in ("<frozen importlib", str(CHILD)))]
    return [*lines[max(0, first - 2) : first], *frames][:_LINES]


def _answer(stage: str, event: dict[str, Any]) -> Answer:
    return Answer(
        stage,
        value=event.get("value"),
        error=str(event.get("error", "")),
        warnings=tuple(event.get("warnings", ())),
        missing=tuple(event.get("missing", ())),
        undecided=bool(event.get("undecided")),
        absent=str(event.get("absent", "")),
        changed=tuple(event.get("changed", ())),
    )
