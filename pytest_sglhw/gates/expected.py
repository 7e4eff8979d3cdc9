"""``otherwise="raise"``: whether an error is the documented one, and what is said where it is not."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_sglhw.gates.requirement import Documented
    from pytest_sglhw.gates.verdict import Verdict

#: Errors of a program that is broken rather than refusing: they count only where the mark names them.
_SLIPS = (NameError, ImportError, AttributeError)

#: What torch and its companions say when code reaches for a device that is not there: the gate crashed before its own
#: message. Such a text counts only where ``match`` asks for these very words.
_CRASHES = tuple(
    re.compile(pattern)
    for pattern in (
        r"not compiled with \w+ (enabled|support)",
        r"compiled without \w+ support",
        r"Found no \w+ driver",
        r"\w+ driver on your system is too old",
        r"No (CUDA|HIP|XPU|MUSA|NPU) (GPUs|devices) are available",
        r"Unexpected error from (cuda|hip)GetDeviceCount",
        r"Cannot initialize \w+ without ATen_\w+ library",
        r"no (CUDA|ROCm)-capable device is detected",
        r"driver initialization failed",
        r"active drivers \(\[\]\)",
        r"Could not run '[^']+' with arguments from the '\w+' backend",
    )
)


def is_documented(error: BaseException, expected: Iterable[Documented]) -> bool:
    """Say whether ``error`` is one of the documented ones; a group of errors is if all of its errors are."""
    if leaves := getattr(error, "exceptions", None):  # BaseExceptionGroup, without needing Python 3.11
        return all(is_documented(leaf, expected) for leaf in leaves)
    return any(_is(error, documented) for documented in expected)


def _is(error: BaseException, documented: Documented) -> bool:
    named = [cls for cls in documented.classes if _has_class(error, cls)]
    if isinstance(error, _SLIPS):
        named = [cls for cls in named if isinstance(cls, type) and issubclass(cls, _SLIPS)]
    if not named:
        return False
    text = str(error)
    found = documented.pattern.search(text) if documented.pattern else None
    if documented.pattern and not found:
        return False
    crash = _crash(text)
    return crash is None or (found is not None and found.start() <= crash.start() and crash.end() <= found.end())


def _has_class(error: BaseException, cls: type[BaseException] | str) -> bool:
    if isinstance(cls, type):
        return isinstance(error, cls)
    return any(cls in (base.__name__, f"{base.__module__}.{base.__qualname__}") for base in type(error).__mro__)


def _crash(text: str) -> re.Match[str] | None:
    return next((match for pattern in _CRASHES if (match := pattern.search(text))), None)


def did_not_raise(verdict: Verdict) -> str:
    """Give the text of a test that ended without the error it must end in."""
    return f"DID NOT RAISE {_wanted(verdict)}\nwhy an error was expected: {verdict.reason}"


def not_documented(error: BaseException, verdict: Verdict) -> str:
    """Say that ``error`` is not the documented one, and whether the gate crashed before it could speak."""
    lines = [f"This is not the documented error. Expected: {_wanted(verdict)}"]
    if _crash(str(error)):
        lines.append("The gate crashed before its own message: it reached for a device that is not there.")
    elif isinstance(error, _SLIPS):
        lines.append(f"{type(error).__name__} counts as a refusal only where raises= names it.")
    return "\n".join([*lines, f"Why an error was expected: {verdict.reason}"])


def _wanted(verdict: Verdict) -> str:
    return "\n  or ".join(map(str, verdict.expected))


@contextmanager
def watched_warnings(expected: Sequence[Documented]) -> Iterator[list[Warning]]:
    """Collect the documented warnings that are issued inside; every warning still reaches whoever listens outside."""
    found: list[Warning] = []
    recorded: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as recorded:
            for documented in filter(is_warning, expected):
                for cls in documented.classes:
                    if isinstance(cls, type) and issubclass(cls, Warning):
                        warnings.simplefilter("always", cls)
            yield found
    finally:
        found += [w.message for w in recorded if isinstance(w.message, Warning) and is_documented(w.message, expected)]
        _pass_on(recorded)


def _pass_on(recorded: Iterable[warnings.WarningMessage]) -> None:
    for w in recorded:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno, source=w.source)


def is_warning(documented: Documented) -> bool:
    """Say whether a documented class is a warning, which does not stop the test."""
    return any(isinstance(cls, type) and issubclass(cls, Warning) for cls in documented.classes)
