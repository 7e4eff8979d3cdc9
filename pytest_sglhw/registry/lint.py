"""Look over a registry: rows that are well formed and still can't mean what they say."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_sglhw.registry.capabilities import Capability, Ladder, Signal
    from pytest_sglhw.registry.registry import Registry

_RELEASE = re.compile(r"(\d+(\.\d+)+)?")
_OPERATOR = re.compile(r"\w+::\w+")
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_CHECK = re.compile(r"\w+(\.\w+)*:\w+")


def problems(registry: Registry) -> list[str]:
    """Say what is wrong with the capabilities of ``registry``, each with its name and its origin."""
    rows = registry.capabilities.values()
    return [f"{row.name} ({row.origin}): {problem}" for row in rows for problem in _of_row(row, registry)]


def _of_row(row: Capability, registry: Registry) -> Iterator[str]:
    if not row.platforms:
        yield "no platform has it"
    for platform, since in row.platforms.items():
        if platform not in registry.platforms:
            yield f"platform {platform!r} is not known. Valid: {', '.join(sorted(registry.platforms))}."
        if not _RELEASE.fullmatch(since):
            yield f"{since!r} is not a release since which {platform} counts. Valid: '' or like '0.5.23'."
    for platform in row.archs:
        if platform not in row.platforms:
            yield f"archs are given for {platform!r}, which is not one of its platforms ({', '.join(row.platforms)})"
    for signal in row.signals:
        yield from _of_signal(signal)
    yield from _of_ladder(row.probe) if row.probe else ("it has no probe: nothing can find out whether it is there",)


def _of_signal(signal: Signal) -> Iterator[str]:
    if not _CLASS.fullmatch(signal.exception):
        yield f"{signal.exception!r} is not the dotted name of a class"
    try:
        pattern = re.compile(signal.match)
    except re.error as error:
        yield f"the pattern {signal.match!r} of {signal.exception} is not valid: {error}"
    else:
        if pattern.search(""):
            yield f"the pattern {signal.match!r} of {signal.exception} matches any text"
    found = getattr(builtins, signal.exception, None)
    if isinstance(found, type) and issubclass(found, Warning) != signal.warning:
        yield f"{signal.exception} is {'' if not signal.warning else 'not '}a warning, and its row says otherwise"


def _of_ladder(ladder: Ladder) -> Iterator[str]:
    if not (ladder.distributions or ladder.module or ladder.ops or ladder.check):
        yield "its probe asks nothing"
    for operator in ladder.ops:
        if not _OPERATOR.fullmatch(operator):
            yield f"{operator!r} is not the name of an operator. Valid: like 'sgl_kernel::transfer_kv_direct'."
    if ladder.ops and not ladder.module:
        yield "its probe asks for operators, but imports no module that registers them"
    if ladder.names and not ladder.module:
        yield f"its probe asks for the name {ladder.names[0]!r}, but of no module"
    if ladder.check is not None and not _CHECK.fullmatch(ladder.check):
        yield f"{ladder.check!r} is not a check. Valid: 'package.module:function'."
