"""Mistakes that no test can show, found while files are collected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.environment.loaded_torch import device_contexts
from pytest_sglhw.gates.marks import spelled

if TYPE_CHECKING:
    from pytest_sglhw.gates.reading import Asked, Node, Reading
    from pytest_sglhw.gates.requirement import Need, Requirement
    from pytest_sglhw.registry import Registry

_VERSION = re.compile(r"\s*\d+(\.\d+)*([-+.~]?\w+)*\s*")
_ARCH_OF = {"sm": "cuda", "gfx": "rocm", "mp": "musa"}


def version_condition(mark: pytest.Mark) -> str | None:
    """Refuse a ``skipif`` or ``xfail`` whose condition is a version string.

    pytest evaluates a string as Python: ``skipif(torch.version.hip)`` is ``skipif("6.4.1")`` on ROCm, an error at best
    and, for ``"6"``, a condition that always holds.
    """
    condition = mark.args[0]
    if condition in ("0", "1") or not _VERSION.fullmatch(condition):
        return None
    return (
        f"{spelled(mark)}: the condition is the version string {condition!r}, which pytest would evaluate as Python "
        "code. Compare the version, or ask for the platform with a mark such as rocm_only."
    )


def contradiction(requirement: Requirement, registry: Registry) -> str | None:
    """Say why no machine can meet a requirement, as far as its marks tell; ``None`` where one could.

    A mark that must raise elsewhere narrows nothing: the test does its work where the mark does not hold.
    """
    left = set(registry.platforms)
    for need in requirement:
        if need.otherwise == "raise":
            continue
        for what, platforms in _narrowed(need, registry):
            if left.isdisjoint(platforms):
                marks = ", ".join(other.text for other in requirement)
                return f"{marks} contradict each other: {what} leaves no platform of {', '.join(sorted(left))}."
            left &= platforms
    return None


def _narrowed(need: Need, registry: Registry) -> Iterator[tuple[str, set[str]]]:
    if need.platforms is None:
        yield need.text, set(registry.platforms) - {"cpu"}
    elif need.platforms:
        yield need.text, set(need.platforms)
    for name in need.capabilities:
        yield name, set(registry.capabilities[name].platforms)
    if need.min_arch:
        yield f"min_arch={need.min_arch!r}", {"cuda"}
    known = {_ARCH_OF.get(arch.rstrip("0123456789abcdef") or arch, "") for arch in need.archs}
    if known and "" not in known:
        yield f"archs={need.archs!r}", known


def contradictions(items: Iterable[pytest.Item], reading: Reading, seen: set[Asked]) -> Iterator[tuple[Node, str]]:
    """Find each combination of marks that no machine can meet, once, at its first test."""
    for item in items:
        asked = reading.asked(item)
        if asked is not None and asked not in seen:
            seen.add(asked)
            text = contradiction(asked.requirement, reading.registry)
            if text:
                yield item, text


def context_created(collector: pytest.Collector) -> Iterator[tuple[Node, str]]:
    """Name the file that was collected when this process got a device context."""
    device_type = next((name for name, _ in device_contexts()), None)
    if device_type:
        text = f"{collector.nodeid} created a {device_type} context while it was collected. From here on a forked child"
        text += " can't use the device, and every worker holds memory on it. Move the call into a test or a fixture."
        yield collector, text
