"""Workers that died where no test takes the blame: while they collected, between tests, or on their way out."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pytest_sglhw.environment.pinned import is_local

#: How xdist gives the end of a worker: its gateway, and what was wrong (``None``: it finished).
Ended = tuple[Any, object]

_USAGE_ERROR = r"(?ms)^(?:[\w.]+\.)?UsageError: (.*)"


class Death(NamedTuple):
    """One worker that died outside of a test."""

    worker: str
    reason: str

    def record(self) -> dict[str, str]:
        """The death as keys of a ``worker`` record."""
        return {"worker": self.worker, "outcome": "crashed", "reason": self.reason}


def why_not_started(error: object, *, ready: bool) -> str | None:
    """What the exception says that ended a worker at its start, or a usage error later; ``None`` for other ends."""
    text = str(error).strip()
    if found := re.search(_USAGE_ERROR, text):
        return found[1]
    if ready or not hasattr(error, "formatted"):
        return None
    return f"it could not start: {_message(text)}"


def _message(formatted: str) -> str:
    """The last exception of a formatted one, without the lines that say where it was raised."""
    lines = formatted.splitlines() or [""]
    frames = [number for number, line in enumerate(lines[:-1]) if line.startswith("  ")]
    return "\n".join(lines[frames[-1] + 1 :] if frames else lines)


def restarts(option: Any) -> int | None:
    """How many workers xdist replaces before it gives up; ``None``: it never does."""
    if option.maxworkerrestart is not None:
        return int(option.maxworkerrestart)
    return 4 * option.numprocesses if option.numprocesses else None


def endless(count: int, last: Any) -> str:
    """Say that workers die as fast as xdist starts them."""
    return (
        f"{count} workers in a row died before they had collected, the last one {last.id} ({end_of(last)}). "
        "xdist would start others for ever; --max-worker-restart N sets a limit."
    )


def end_of(gateway: Any) -> str:
    """How a local worker's process ended; xdist keeps it no longer than the connection."""
    process = getattr(getattr(gateway, "_io", None), "popen", None)
    if process is None or not is_local(gateway.spec):  # the process here is that of ssh
        return "on a remote machine"
    try:
        status = process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return "its process still lives"
    from pytest_sglhw.asking.processes import told_end  # most runs meet no death

    return told_end(status)


def deaths(ended: Mapping[str, Ended]) -> Iterator[Death]:
    """Those of the workers that no test was blamed for, and that neither finished in peace nor were interrupted."""
    for worker, (gateway, error) in sorted(ended.items(), key=lambda item: (len(item[0]), item[0])):
        if error is None:
            if _died_on_its_way_out(gateway):
                yield Death(worker, f"died after its last test: {end_of(gateway)}")
        elif hasattr(error, "formatted"):  # raised in the worker, whose process lives
            *_, last_line = str(error).strip().splitlines() or [""]
            yield Death(worker, f"ended outside of a test: {last_line}")
        elif error != "keyboard-interrupt":
            yield Death(worker, f"died outside of a test: {end_of(gateway)}")


def _died_on_its_way_out(gateway: Any) -> bool:
    if not is_local(gateway.spec):
        return False
    status = gateway._io.popen.poll()
    # SIGKILL is how execnet ends a worker that takes long to end.
    return status is not None and status < 0 and status != -signal.SIGKILL


def lines(found: Iterable[Death]) -> list[str]:
    """One line for each way in which workers died."""
    workers: dict[str, list[str]] = {}
    for death in found:
        workers.setdefault(death.reason, []).append(death.worker)
    return [f"sglhw: {', '.join(names)} {reason}" for reason, names in workers.items()]
