"""One record for all workers on a machine: the first that needs it probes under a lock, the others read."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pytest_sglhw.environment.records import Environment


class SharedRecord:
    """An environment record in a folder, with a lock that dies with the process that holds it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._file = Path(folder, "environment.json")

    @classmethod
    def create(cls) -> SharedRecord:
        """Make a folder that only this user can read."""
        return cls(tempfile.mkdtemp(prefix="sglhw-shared-"))

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self) -> Environment | None:
        """Return the record; ``None`` where there is none that can be read: it is then probed and written again."""
        try:
            return Environment.from_json(json.loads(self._file.read_bytes()), str(self._file))
        except (OSError, ValueError):  # not written yet, or what cleans the temporary folder was at it
            return None

    def write(self, environment: Environment) -> None:
        """Put the record in place at once, so that a reader without the lock sees it whole or not at all.

        A record that can't be written is not shared: the next process that needs it probes.
        """
        half = self._file.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            half.write_text(json.dumps(environment.to_json()), encoding="utf-8")
            half.replace(self._file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock. It ends with the process that holds it; without its folder there is nothing to lock."""
        with ExitStack() as stack:
            with suppress(OSError):
                lock = stack.enter_context(Path(self.folder, "lock").open("a+b"))
                _wait_for(lock.fileno())
            yield


def _wait_for(descriptor: int) -> None:
    """Lock an open file; closing it unlocks."""
    try:
        import fcntl
    except ImportError:  # Windows
        _wait_on_windows(descriptor)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _wait_on_windows(descriptor: int) -> None:
    import msvcrt

    while True:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]
        except OSError:  # ten seconds have passed
            continue
        return
