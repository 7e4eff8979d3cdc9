"""Questions about the platform that answer alike with and without a call: ``if is_rocm`` and ``if is_rocm()``.

A bare function would be true whatever the machine, and nobody would notice.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_sglhw.environment.records import Environment


def _environment() -> Environment:
    # Outside pytest nobody has imported the settings, and who asks there does not pay for an import of pytest.
    settings = sys.modules.get("pytest_sglhw.settings")
    run = settings.current_run() if settings else None
    if run is None:
        _refuse_an_unread_fake()
        return _outside_pytest()
    from pytest_sglhw.environment.detection import detection_of

    return detection_of(run).environment(())


def _refuse_an_unread_fake() -> None:
    """Answer no plugin that is imported for ``-p`` about the live machine where the run is about to be given a fake.

    Such a plugin is imported before pytest has read the options; the arguments are seen in the frame that reads them.
    """
    frame = sys._getframe() if "_pytest.config" in sys.modules else None
    while frame is not None:
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) == ("_pytest.config", "parse"):
            if any(str(argument).startswith("--sglhw-fake") for argument in frame.f_locals.get("args", ())):
                import pytest

                raise pytest.UsageError(_TOO_EARLY)
            return
        frame = frame.f_back


_TOO_EARLY = (
    "a plugin that pytest imports before it has read --sglhw-fake asks for the machine. Let it ask later: in a hook"
    " such as pytest_configure, in a conftest.py or in a test module."
)


@cache
def _outside_pytest() -> Environment:
    from pytest_sglhw.environment.probe import probe_environment

    return probe_environment(())


class Predicate:
    """Whether the platform is one of some; asks the machine when it is first used, not when it is imported."""

    __slots__ = ("_accept", "_name")

    def __init__(self, name: str, *accept: str) -> None:
        self._name = name
        self._accept = accept

    def __bool__(self) -> bool:
        environment = _environment()
        platform = environment.platform
        if platform == "unknown":
            from pytest_sglhw.warning import PytestSglhwWarning

            text = f"{self._name} answers False: the platform is unknown ({environment.reason})"
            warnings.warn(text, PytestSglhwWarning, stacklevel=2)
            return False
        return platform in self._accept if self._accept else platform != "cpu"

    def __call__(self) -> bool:
        return bool(self)

    def __eq__(self, other: object) -> bool:
        """Compare as the answer would: ``is_rocm == False`` is not true for being an object."""
        return bool(self) == bool(other) if isinstance(other, (bool, Predicate)) else NotImplemented

    __hash__ = object.__hash__

    def __and__(self, other: object) -> bool:
        return bool(self) & bool(other) if isinstance(other, (bool, Predicate)) else NotImplemented

    def __or__(self, other: object) -> bool:
        return bool(self) | bool(other) if isinstance(other, (bool, Predicate)) else NotImplemented

    __rand__ = __and__
    __ror__ = __or__

    def __repr__(self) -> str:
        return f"<{self._name}: ask it with or without ()>"


is_cpu = Predicate("is_cpu", "cpu")
is_cuda = Predicate("is_cuda", "cuda")
is_gpu = Predicate("is_gpu")
is_hpu = Predicate("is_hpu", "hpu")
is_mps = Predicate("is_mps", "mps")
is_musa = Predicate("is_musa", "musa")
is_npu = Predicate("is_npu", "npu")
is_rocm = Predicate("is_rocm", "rocm")
is_xpu = Predicate("is_xpu", "xpu")

PREDICATES = {p._name: p for p in (is_cpu, is_cuda, is_gpu, is_hpu, is_mps, is_musa, is_npu, is_rocm, is_xpu)}
