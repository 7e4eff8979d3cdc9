"""Run pytest so that its own end is told from that of a kernel which ends the process, with whatever exit status.

The process leaves two files: ``where``, what it is doing that a kernel or a provider could end, and ``status``, what
pytest returned. Without the second the run is not over, whatever the process said.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytest_sglhw.asking.processes import search_flags, signal_name

#: Option of pytest that names the file ``where``.
OPTION = "--sglhw-matrix-where"

# Not -m: the package must not be imported before pytest can rewrite its assertions. The current folder comes first on
# the path as with `python -m pytest`: not at all where Python was told not to trust it (`-P`, PYTHONSAFEPATH).
_LAUNCH = """\
import os, pathlib, sys
file = sys.argv.pop(1)
sys.argv[0] = "pytest"
if sys.path[0] == "":
    sys.path[0] = os.getcwd()
import pytest
status = int(pytest.main())
pathlib.Path(file).write_text(str(status))
sys.exit(status)
"""

_FAILED, _INTERNAL_ERROR = 1, 3


def run_pytest(arguments: Sequence[str]) -> int:
    """Run pytest in a process of its own; return its exit status, or a failing one where the process ended early.

    :returns: pytest's own exit status; 1 where something that was running ended the process; 3 where nothing was.
    """
    with tempfile.TemporaryDirectory(prefix="sglhw-") as folder:
        where, status = Path(folder, "where"), Path(folder, "status")
        command = [sys.executable, *search_flags(), "-c", _LAUNCH, str(status), f"{OPTION}={where}", *arguments]
        code = subprocess.call(command)
        result, problem = judge(code, _read(status), _read(where))
    if problem:
        print(f"\nsglhw conformance: {problem}", file=sys.stderr, flush=True)
    return result


def judge(code: int, returned: str, where: str) -> tuple[int, str | None]:
    """Return the exit status of the run, and what is to be said of its end.

    :param code: return code of the process, as :mod:`subprocess` gives it.
    :param returned: what pytest returned; empty where it did not.
    :param where: what was running; empty where nothing was.

    >>> judge(0, "0", "")
    (0, None)
    """
    if not returned:
        doing = f"while it was {where}" if where else "while no test was running"
        advice = "Nothing after that ran. With --isolate, a cell whose kernel ends its process is one failed cell."
        return _FAILED if where else _INTERNAL_ERROR, f"pytest's process {_end(code)} {doing}. {advice}"
    status = int(returned)
    if code == status:
        return status, None
    return status or _FAILED, f"pytest returned exit status {status}, and then its process {_end(code)}."


def _end(code: int) -> str:
    return f"ended with exit status {code}" if code >= 0 else f"was ended by {signal_name(-code)}"


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


class Trail:
    """Says in a file what this process is doing; in none where nobody reads it."""

    def __init__(self, file: str | None) -> None:
        self._file = Path(file) if file else None

    @contextmanager
    def at(self, doing: str) -> Iterator[None]:
        """Say that the process is ``doing`` something, until it is done."""
        if self._file is None:
            yield
            return
        self._file.write_text(doing, encoding="utf-8")
        try:
            yield
        finally:
            self._file.write_text("", encoding="utf-8")
