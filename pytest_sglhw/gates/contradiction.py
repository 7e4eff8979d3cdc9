"""Why no machine at all can meet what the marks of a test ask together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_sglhw.gates.values import sm_number

if TYPE_CHECKING:
    from pytest_sglhw.gates.requirement import Need, Requirement
    from pytest_sglhw.registry.registry import Registry


def contradiction(requirement: Requirement, registry: Registry) -> str | None:
    """Say on what each need holds where no machine can meet all of them, or ``None`` where one could.

    A need that must raise elsewhere narrows nothing: the test does its work where it does not hold.
    """
    needs = [need for need in requirement if need.otherwise == "skip"]
    if not needs:
        return None
    possible = [_platforms(need, registry) for need in needs]
    left = set.intersection(*possible)
    if any(_has_an_arch(needs, platform, registry) for platform in left):
        return None
    said = [_said(need, platforms, archs=bool(left)) for need, platforms in zip(needs, possible, strict=True)]
    return " and ".join(said)


def _said(need: Need, platforms: set[str], *, archs: bool) -> str:
    asked = [" or ".join(need.archs)] if need.archs else []
    asked += [f"{need.min_arch} or above"] if need.min_arch else []
    with_arch = f" with {' and '.join(asked)}" if archs and asked else ""
    return f"{need.text} holds on {', '.join(sorted(platforms)) or 'no platform'}{with_arch}"


def _platforms(need: Need, registry: Registry) -> set[str]:
    """The platforms on which ``need`` can hold."""
    found = set(registry.platforms if need.platforms in ((), None) else need.platforms or ())
    if need.platforms is None or need.asks_devices:
        found.discard("cpu")
    if need.archs:
        found = {name for name in found if any(is_arch_of(name, text, registry) for text in need.archs)}
    if need.min_arch:
        found &= {"cuda"}
    for name in need.capabilities:
        found &= set(registry.capabilities[name].platforms)
    return found


def _has_an_arch(needs: Sequence[Need], platform: str, registry: Registry) -> bool:
    """Whether one device can have the arch that every need asks of the first device."""
    asked = [{name for name in need.archs if is_arch_of(platform, name, registry)} for need in needs if need.archs]
    least = max((sm_number(need.min_arch) or 0 for need in needs if need.min_arch), default=0)
    return not asked or any((sm_number(name) or 0) >= least for name in set.intersection(*asked))


def is_arch_of(platform: str, name: str, registry: Registry) -> bool:
    """Whether ``name`` can be an arch of ``platform``: a pattern that takes any word leaves others their own."""
    fitting = [row for row in registry.platforms.values() if row.arch_pattern and re.fullmatch(row.arch_pattern, name)]
    exact = [row for row in fitting if not re.fullmatch(row.arch_pattern, "anyword")]
    return platform in (row.name for row in exact or fitting)
