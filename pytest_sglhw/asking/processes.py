"""What a child process is started with, and how it ends with everything that it started.

It ends also when the process that started it is killed first.

Run as a file, it is the watch over one child: it stands alone and imports nothing of this package.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

#: Seconds to end what a child started, and to wait for itself: no signal ends a process that waits for a wedged driver.
_PATIENCE = 5.0

#: Set in the environment of a probe's child, inherited by whatever it starts: how strays are found again.
COOKIE = "SGLHW_PROBE_COOKIE"


def search_flags() -> list[str]:
    """What this Python was told of where to look for modules: a child is to find no others."""
    flags = {"-I": "isolated", "-E": "ignore_environment", "-s": "no_user_site", "-P": "safe_path"}
    return [flag for flag, name in flags.items() if getattr(sys.flags, name, False)]


class Watch:
    """A process that ends a child where this process can't any more, since it was killed: it sees that a pipe closes.

    A signal handler would be the host program's to set, and none sees SIGKILL.
    """

    def __init__(self, cookie: str, folder: str) -> None:
        """Begin; ``folder`` is removed too."""
        import subprocess

        self._process: subprocess.Popen[bytes] | None = None
        if os.name == "posix":
            with contextlib.suppress(Exception):  # no process to be had (an audit hook raises what it likes): without
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", __file__, cookie, folder],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )

    def over(self, child: int) -> None:
        """Say which process it is about."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(b"%d\n" % child)
                self._process.stdin.flush()

    def end(self) -> None:
        """Call it off."""
        if self._process is not None and self._process.stdin is not None:
            self._process.kill()  # before the pipe closes, which means that this process is gone
            self._process.wait()
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def _watch(cookie: str, folder: str) -> None:
    said = sys.stdin.buffer.read().split()  # until the other end is gone
    if said:
        _hold(int(said[0]))
        _kill(int(said[0]), cookie)
    shutil.rmtree(folder, ignore_errors=True)


def end(process: subprocess.Popen[bytes], cookie: str) -> None:
    """Kill the child, its process group and its strays, and reap the child."""
    import subprocess

    if process.poll() is None:
        _hold(process.pid)
    _kill(process.pid, cookie)
    with contextlib.suppress(OSError):
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE)


def _hold(child: int) -> None:
    """Stop the child: what it started, or inherited, is found by its parent as long as that lives."""
    with contextlib.suppress(OSError, AttributeError):
        os.kill(child, signal.SIGSTOP)


def _kill(child: int, cookie: str) -> None:
    end_strays(cookie, child)
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
    end_strays(cookie, child)  # where nobody held the child, it may have started another one in the meantime


def end_strays(cookie: str, child: int) -> None:
    """Kill what ``child`` started until nothing of it is alive: one may have been starting another while it was found.

    Gives up on what no signal ends after some seconds.
    """
    deadline = time.monotonic() + _PATIENCE
    while found := list(strays(cookie, child)):
        for stray in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(stray, signal.SIGKILL)
        if time.monotonic() > deadline:
            return


def strays(cookie: str, child: int) -> Iterator[int]:
    """Yield what ``child`` started and is alive, where ``/proc`` tells.

    That is what has it for an ancestor, is of its session or carries ``cookie`` in its environment. A child that
    inherits orphans is an ancestor of whatever was started below it; without that, nothing is left to tell by of a
    process that changed its session, cleared its environment and whose parent has ended.
    """
    parents: dict[int, int] = {}
    sessions: dict[int, int] = {}
    for pid in _pids():
        with contextlib.suppress(OSError):  # gone
            state, parent, _, session = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:4]
            if state != b"Z":
                parents[pid], sessions[pid] = int(parent), int(session)
    for pid in parents.keys() - {os.getpid(), child}:
        if sessions[pid] == child or child in _ancestors(pid, parents) or _carries(pid, cookie):
            yield pid


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    seen: set[int] = set()  # a number may have been given anew in the meantime
    while pid in parents and pid not in seen:
        seen.add(pid)
        pid = parents[pid]
        yield pid


def _carries(pid: int, cookie: str) -> bool:
    try:
        return f"{COOKIE}={cookie}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, or somebody else's
        return False


def told_exit(status: int) -> str:
    """Say in words how a process ended."""
    if status >= 0:
        return f"exited with status {status}"
    return f"was killed by {signal_name(-status)}"


def told_end(status: int) -> str:
    """Say in the words of reports how a process ended.

    >>> told_end(-9), told_end(-40), told_end(3)
    ('signal SIGKILL', 'signal 40', 'exit status 3')
    """
    return f"signal {signal_name(-status).removeprefix('signal ')}" if status < 0 else f"exit status {status}"


def signal_name(number: int) -> str:
    """Name a signal; most of the real-time ones have none.

    >>> signal_name(9), signal_name(40)
    ('SIGKILL', 'signal 40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


if __name__ == "__main__":
    _watch(*sys.argv[1:])
