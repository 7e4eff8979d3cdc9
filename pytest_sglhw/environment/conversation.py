"""One child process with its two files: requests go in by a pipe, answers come back by a file of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pytest_sglhw.environment.asking import Answer, Fault
from pytest_sglhw.environment.processes import COOKIE, Watch, end, search_flags, told_exit

CHILD = Path(__file__).with_name("child.py")

#: How much of the child's output is kept; a child that writes more loses the rest.
OUTPUT_LIMIT = 1 << 20


class Child:
    """A process that answers until it is ended, or until a stage ends it."""

    def __init__(self, timeout: float, cap: float, environ: dict[str, str], poisoned: tuple[str, ...]) -> None:
        self._timeout = timeout
        self._nonce = os.urandom(16).hex()
        if not sys.executable:
            raise OSError("this program does not say which Python it is (sys.executable is empty)")
        self._folder = tempfile.mkdtemp(prefix="sglhw-probe-")
        answers = Path(self._folder, "answers")
        job = {
            "nonce": self._nonce,
            "answers": str(answers),
            "path": [*map(str, sys.path)],
            "poisoned": poisoned,
            "seconds": cap,
        }
        self._watch = Watch(self._nonce, self._folder)
        try:
            answers.touch()
            self._reader = answers.open("rb")
            self._output = Path(self._folder, "output").open("a+b")  # noqa: SIM115
            self._process = subprocess.Popen(
                [sys.executable, *search_flags(), str(CHILD), json.dumps(job)],
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                env={**environ, COOKIE: self._nonce, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
            self._watch.over(self._process.pid)
        except BaseException:
            self._watch.end()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

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
            if damage := self._damage():
                return self._fault(stage, "garbled", damage)
            if gone:
                return self._fault(stage, "crashed", told_exit(self._process.returncode)) if announced else None
            if time.monotonic() > deadline:
                return self._fault(stage, "hung", f"did not end within {self._timeout:g} s")
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
        status = self._process.poll()
        return "" if status is None else told_exit(status), self._tail()

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
        self._watch.end()


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
