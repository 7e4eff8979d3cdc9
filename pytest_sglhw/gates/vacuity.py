"""A test that required a kernel and passed without calling one proved nothing: report it, or fail it.

Off unless asked for. Where a call could have gone unseen (a child process, a replayed or compiled graph, a kernel
without a hook) the test is "not observed", never accused.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple

import pytest

from pytest_sglhw.gates.judge import Judge
from pytest_sglhw.gates.kernel_watch import GRAPH, KernelWatch
from pytest_sglhw.gates.reports import attach, fail

if TYPE_CHECKING:
    from pytest_sglhw.gates.requirement import Need, Requirement
    from pytest_sglhw.registry.registry import Registry

Level = Literal["off", "warn", "fail"]
LEVELS: tuple[Level, ...] = ("off", "warn", "fail")


def strictest(*levels: str) -> Level:
    """The level that counts of those that the settings and the lane name."""
    return next(level for level in reversed(LEVELS) if level in levels)


class Kernels(NamedTuple):
    """Kernels that one mark asks for: the mark, the module they live in, their names and operators."""

    text: str
    module: str | None
    kernels: tuple[str, ...]
    ops: tuple[str, ...]


def kernels_asked(requirement: Requirement, registry: Registry) -> tuple[Kernels, ...]:
    """Give the kernels that a requirement asks for, without those that are excused or that nobody can name."""
    return tuple(
        found
        for need in requirement
        if need.vacuous_because is None
        for name in need.capabilities
        if (found := _asked(need, name, registry)) is not None
    )


def _asked(need: Need, name: str, registry: Registry) -> Kernels | None:
    probe = registry.capabilities[name].probe
    ops = tuple(op for op in (probe.ops if probe else ()) if not need.kernels or op.rpartition("::")[2] in need.kernels)
    if not ops or probe is None:
        return None
    return Kernels(need.text, probe.module, tuple(op.rpartition("::")[2] for op in ops), ops)


class VacuityJudge(Judge):
    """Watch one test for calls of the kernels that it asks for."""

    def __init__(self, watch: KernelWatch, wanted: tuple[Kernels, ...], level: Level) -> None:
        self._watch = watch
        self._wanted = wanted
        self._level = level
        self._before = 0
        self._blind: str | None = None

    @contextmanager
    def watching(self, *, call: bool) -> Iterator[None]:
        """Watch one phase. Kernels that a fixture calls count: setup is watched from its start."""
        if not call:
            self._watch.reset()
            self._before = _reaped()
            self._blind = _children() or _compiled()
        for wanted in self._wanted:
            self._watch.watch(wanted.module, wanted.kernels, wanted.ops)
        with super().watching(call=call):
            yield

    def judge(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Report a pass without a call; a parameter set that was empty is one too."""
        if call.when == "setup" and call.excinfo is not None:
            message = str(getattr(call.excinfo.value, "msg", ""))
            if report.skipped and message.startswith("got empty parameter set"):
                self._accuse(report, f"ran nothing: {message}")
        elif call.when == "call" and report.passed and not self.in_call:
            missed = [wanted for wanted in self._wanted if self._watch.called.isdisjoint(wanted.kernels)]
            if missed:
                self._report(report, missed)

    def _report(self, report: pytest.TestReport, missed: list[Kernels]) -> None:
        blind = self._blind or self._unseen() or next(filter(None, map(self._no_hook, missed)), None)
        names = "; ".join(_or(wanted.kernels) for wanted in missed)
        if blind:
            attach(report, {"vacuous": f"not observed: whether it called {names} ({blind})"})
            return
        impostors = [self._watch.impostor(wanted.module) for wanted in missed if wanted.module]
        why = "".join(f" ({impostor})" for impostor in dict.fromkeys(impostors) if impostor)
        self._accuse(report, f"passed without calling {names}{why}")

    def _accuse(self, report: pytest.TestReport, text: str) -> None:
        attach(report, {"vacuous": text})
        if self._level == "fail":
            marks = ", ".join(wanted.text for wanted in self._wanted)
            excuse = "vacuous_because='...' on the mark says why it need not call them"
            fail(report, f"{text}\nasked for by {marks}; {excuse}")

    def _unseen(self) -> str | None:
        if _reaped() != self._before:
            return "a child process ran"
        if GRAPH in self._watch.called:
            return "a captured graph was replayed"
        return _children() or _compiled()

    def _no_hook(self, wanted: Kernels) -> str | None:
        return next((self._watch.blind[kernel] for kernel in wanted.kernels if kernel in self._watch.blind), None)


def _or(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"any of {', '.join(names)}"


def _children() -> str | None:
    """Say whether this process has children now, whoever started them."""
    if not hasattr(os, "waitid"):
        return "child processes can't be seen on this system"
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return "a child process is running"


def _reaped() -> int:
    """Give a number that grows with every child process that was waited for."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def _compiled() -> str | None:
    """Say whether kernels may run from compiled code, past every hook."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is not None and getattr(utils, "counters", {}).get("frames", {}).get("ok"):
        return "torch.compile is in use"
    return None
