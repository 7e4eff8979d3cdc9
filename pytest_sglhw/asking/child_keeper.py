"""A process between the one that asks and the one that answers: it inherits what the code under test leaves behind.

Loaded by its place in the child, which imports nothing of this package.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36


def go_on_below(processes: Callable[[], Any], cookie: str, ended: str) -> None:
    """Go on in a child of this process, which stays behind to be the parent of every orphan below it.

    A process that changed its session, cleared its environment and lost its parent would be found by nobody. This one
    ends as its child did, after all that is left has been ended. Where the system has no such thing, nothing happens.

    :param processes: loads the module that finds and ends strays.
    :param cookie: by which they are found too.
    :param ended: file for the exit status of the child: who asked may be unable to learn it from the system.
    """
    with contextlib.suppress(AttributeError):  # Windows
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    if not _inherits_orphans():
        return
    with contextlib.suppress(ValueError, OSError):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, nobody learns how a child ended
    try:
        below = os.fork()
    except OSError:  # no more processes to be had: then without
        return
    if below:
        _end_as(_status(below), processes, cookie, ended)


def _inherits_orphans() -> bool:
    if sys.platform != "linux":
        return False
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def _status(below: int) -> int:
    """Wait for the child and reap the orphans that end before it."""
    while True:
        pid, status = os.wait()
        if pid == below:
            return os.waitstatus_to_exitcode(status)


def _end_as(status: int, processes: Callable[[], Any], cookie: str, ended: str) -> None:
    try:
        with contextlib.suppress(OSError), open(ended, "w", encoding="ascii") as file:
            file.write(str(status))
        processes().end_strays(cookie, os.getpid())
    finally:
        if status < 0:
            _end_by(-status)
        os._exit(status)


def leave_no_core_file() -> None:
    """See that this process, and what it starts, leaves none when it crashes."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end_by(number: int) -> None:
    leave_no_core_file()
    with contextlib.suppress(ValueError, OSError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
