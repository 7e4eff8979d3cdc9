"""xdist's schedulers, mended for crashes.

As they are (3.8), all of them break the run where they send a test to a worker that died a moment ago. ``loadscope``,
``loadfile`` and ``loadgroup`` hand the test that took its worker with it to the next one, which dies of it too, until
xdist gives up; a replacement that is left with a single test waits for ever, since a worker begins a test when it knows
the one after it, or that there is none; and a crash while a replacement collects breaks the run.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from xdist.scheduler import (
    LoadFileScheduling,
    LoadGroupScheduling,
    LoadScheduling,
    LoadScopeScheduling,
    WorkStealingScheduling,
)


class _OncePerTest(LoadScopeScheduling):  # type: ignore[misc]
    """A test that crashed has had its turn; a worker that waits gets work, or the word that there is no more."""

    def remove_node(self, node: Any) -> str | None:
        """Forget a worker; give the test that it was at, and hand on the others that it had."""
        units = self.assigned_work.pop(node)
        pending = [(unit, nodeid) for unit in units.values() for nodeid, completed in unit.items() if not completed]
        if not pending:
            return None
        unit, crashed = pending[0]
        unit[crashed] = True
        self.workqueue.update({scope: unit for scope, unit in units.items() if not all(unit.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return str(crashed)

    def _reschedule(self, node: Any) -> None:
        if node not in self.registered_collections:
            return  # a replacement that still collects: its turn comes when it has
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        with suppress(OSError):  # it died a moment ago: what it was given is taken back when that is told
            super()._assign_work_unit(node)


class _Load(LoadScheduling):  # type: ignore[misc]
    def _send_tests(self, node: Any, num: int) -> None:
        with suppress(OSError):
            super()._send_tests(node, num)


class _Steal(WorkStealingScheduling):  # type: ignore[misc]
    def _send_tests(self, node: Any, num: int) -> None:
        with suppress(OSError):
            super()._send_tests(node, num)


class _Scope(_OncePerTest):
    pass


class _File(_OncePerTest, LoadFileScheduling):  # type: ignore[misc]
    pass


class _Group(_OncePerTest, LoadGroupScheduling):  # type: ignore[misc]
    pass


#: By the value of ``--dist``.
SCHEDULERS = {"load": _Load, "worksteal": _Steal, "loadscope": _Scope, "loadfile": _File, "loadgroup": _Group}
