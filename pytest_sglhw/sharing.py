"""What is asked once for all processes of a run on a machine: who needs it first asks under a lock, the others read."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any


class SharedFolder:
    """Plain data by name in a folder, each with a lock that dies with the process that holds it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @classmethod
    def create(cls) -> SharedFolder:
        """Make a folder that only this user can read."""
        return cls(tempfile.mkdtemp(prefix="sglhw-shared-"))

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def file(self, name: str) -> Path:
        """Say where the data of that name is."""
        return Path(self.folder, f"{name}.json")

    def read(self, name: str) -> Any:
        """Return the data of that name; ``None`` where there is none that can be read: it is asked for again."""
        try:
            return json.loads(self.file(name).read_bytes())
        except (OSError, ValueError):  # not written yet, or what cleans the temporary folder was at it
            return None

    def write(self, name: str, data: Any) -> None:
        """Put data in place at once, so that a reader without the lock sees it whole or not at all.

        What can't be written is not shared: the next process that needs it asks.
        """
        half = Path(self.folder, f"{name}.{os.getpid()}")
        with suppress(OSError):
            half.write_text(json.dumps(data), encoding="utf-8")
            half.replace(self.file(name))

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold the lock of that name, which ends with the process; without its folder there is nothing to lock."""
        with ExitStack() as stack:
            with suppress(OSError):
                lock = stack.enter_context(Path(self.folder, f"{name}.lock").open("a+b"))
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
