"""A file of JSON Lines that one run writes and nobody else at the same time."""

from __future__ import annotations

import json
import os
import stat
import weakref
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_encode = json.JSONEncoder(default=str, separators=(",", ":")).encode

_REPLACED = "the file was removed or replaced while the run wrote it"


class TakenError(Exception):
    """Another run writes the file."""


class RecordWriter:
    """A file of JSON Lines that holds every whole record even if this process is killed.

    Only the process that opened it writes: a test that forks and goes on in the child adds nothing. It holds a lock on
    the file, which ends with the process; where there are no locks (Windows, some network file systems) there is none.

    :raises TakenError: another run holds the lock.
    :raises OSError: the file can't be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.error: OSError | None = None
        self._owner = os.getpid()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # To append: what the file holds may be the report of the run that has the lock.
        self._file: IO[bytes] = open(path, "ab")  # noqa: SIM115 - open as long as the run
        self._regular = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)  # and neither /dev/null nor a pipe
        if self._regular:
            self._take()

    def _take(self) -> None:
        if not _locked(self._file):
            self._file.close()
            raise TakenError(self.path)
        _open.add(self)
        self._file.truncate(0)

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        """Append one record and flush it; after the first write that fails the report is over and says so."""
        if self.error is None and os.getpid() == self._owner:
            try:
                self._file.write(_encode({"kind": kind, **record}).encode("ascii") + b"\n")
                self._file.flush()
            except OSError as error:
                self.error = error

    def check(self) -> None:
        """Note as an error where what was written is not in the place any more where it is looked for."""
        if self.error is None and self._regular and os.getpid() == self._owner:
            try:
                there = os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
            except OSError:
                there = False
            if not there:
                self.error = OSError(0, _REPLACED)

    def close(self) -> None:
        """Close the file; what could not be written is lost and ``error`` says why."""
        try:
            self._file.close()
        except OSError as error:
            self.error = self.error or error


def _locked(file: IO[bytes]) -> bool:
    """Take the lock; ``False`` where another holds it, ``True`` as well where there are no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


_open: weakref.WeakSet[RecordWriter] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close the files in a child that this process forked: one that outlives it would keep the lock."""
    for writer in list(_open):
        writer.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
