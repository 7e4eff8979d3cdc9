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

_USAGE_ERROR = re.compile(r"^(?:[\w.]+\.)?UsageError: (.*)", re.MULTILINE | re.DOTALL)


class Death(NamedTuple):
    """One worker that died outside of a test."""

    worker: str
    reason: str

    def record(self) -> dict[str, str]:
        """The death as keys of a ``worker`` record."""
        return {"worker": self.worker, "outcome": "crashed", "reason": self.reason}


def usage_error(error: object) -> str | None:
    """The message of the usage error that ended a worker; ``None`` where something else did."""
    found = _USAGE_ERROR.search(str(error).strip())
    return found[1] if found else None


def end_of(gateway: Any) -> str:
    """How a local worker's process ended; xdist keeps it no longer than the connection."""
    process = getattr(getattr(gateway, "_io", None), "popen", None)
    if process is None or not is_local(gateway.spec):  # the process here is that of ssh
        return "on a remote machine"
    try:
        status = process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return "its process still lives"
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


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
