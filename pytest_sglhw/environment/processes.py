"""End a child process and everything that it started."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

#: Set in the environment of a probe's child, inherited by whatever it starts: how strays are found again.
COOKIE = "SGLHW_PROBE_COOKIE"


def end(process: subprocess.Popen[bytes], cookie: str) -> None:
    """Kill the child, its process group and its strays, and reap the child."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        process.kill()
    # Twice: a stray may have been starting another one while it was being looked for.
    for _ in range(2):
        for stray in strays(cookie, process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(stray, signal.SIGKILL)
    process.wait()


def strays(cookie: str, session: int) -> Iterator[int]:
    """Yield the processes that carry ``cookie`` in their environment or are of ``session``, where ``/proc`` tells."""
    wanted = f"{COOKIE}={cookie}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if pid in (os.getpid(), session):
            continue
        try:
            stat = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            carries = wanted in (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # gone, or somebody else's
            continue
        if stat[0] != b"Z" and (carries or int(stat[3]) == session):
            yield pid


def told_exit(status: int) -> str:
    """Say in words how a process ended."""
    if status >= 0:
        return f"exited with status {status}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"was killed by signal {-status}"
