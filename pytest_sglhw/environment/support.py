"""The first rung of a capability: does the platform support it at all? Needs no process and no import."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_sglhw.environment.records import CapabilityState, Device
from pytest_sglhw.registry.platforms import normal_arch

if TYPE_CHECKING:
    from pytest_sglhw.registry.capabilities import Capability

SGLANG_DISTRIBUTIONS = ("sglang", "amd-sglang")


def supported(
    row: Capability, platform: str, devices: Sequence[Device], packages: Mapping[str, str]
) -> CapabilityState:
    """Say whether ``platform`` with these usable ``devices`` and installed ``packages`` should have the capability."""
    if platform not in row.platforms:
        where = ", ".join(row.platforms) or "no platform"
        return CapabilityState(
            "unavailable", f"{row.name} is for {where}; this is {platform}", remedy=f"a {where} machine"
        )
    return _too_old(row, platform, packages) or _other_arch(row, platform, devices) or _fine(row, platform)


def _fine(row: Capability, platform: str) -> CapabilityState:
    return CapabilityState("available", f"{platform} supports {row.name}")


def _too_old(row: Capability, platform: str, packages: Mapping[str, str]) -> CapabilityState | None:
    since = row.platforms[platform]
    found = next((packages[name] for name in SGLANG_DISTRIBUTIONS if name in packages), None)
    # A checkout without tags is 0.0.0.dev0 to its build: it says no release, so the next rungs decide.
    if not since or found is None or not any(release(found)) or release(found) >= release(since):
        return None
    return CapabilityState(
        "unavailable",
        f"{row.name} counts on {platform} since SGLang {since}; SGLang {found} is installed",
        remedy=f"install sglang>={since}",
    )


def _other_arch(row: Capability, platform: str, devices: Sequence[Device]) -> CapabilityState | None:
    accepted = row.archs.get(platform)
    if not accepted:
        return None
    found = tuple(dict.fromkeys(d.arch for d in devices if d.arch))
    if {normal_arch(a) for a in accepted} & {normal_arch(a) for a in found}:
        return None
    here = f"this machine has {', '.join(found)}" if found else "the arch of this machine's devices is not known"
    return CapabilityState(
        "unavailable",
        f"{row.name} is for {', '.join(accepted)} on {platform}; {here}",
        remedy=f"a device of {accepted[0]}",
    )


def release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, to be compared: ``0.5.23.post1+cu13`` is ``(0, 5, 23)``."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in leading.group().split(".")) if leading else ()
