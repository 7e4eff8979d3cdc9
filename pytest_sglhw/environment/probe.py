"""Ask what static facts leave open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_sglhw.environment.records import CapabilityState, Environment
from pytest_sglhw.environment.static import StaticFacts, gather
from pytest_sglhw.environment.support import supported

if TYPE_CHECKING:
    from pytest_sglhw.registry import Registry


def probe_environment(
    capabilities: Iterable[str] | None = None, *, full: bool = False, timeout: float = 60.0
) -> Environment:
    """Return the record of the live machine."""
    from pytest_sglhw.registry import load

    registry = load()
    static = gather(registry.platforms.values())
    return probe(registry, static, capabilities=capabilities, known=None, full=full, timeout=timeout)


def probe(
    registry: Registry,
    static: StaticFacts,
    *,
    capabilities: Iterable[str] | None,
    known: Environment | None,
    full: bool,
    timeout: float,
) -> Environment:
    """Return the record of this machine with at least ``capabilities`` looked at."""
    record = known or Environment(platform="cpu" if static.settles_cpu else "unknown", device_type="cpu")
    wanted = registry.capabilities if capabilities is None else tuple(capabilities)
    states = {n: supported(registry.capabilities[n], record.platform, (), static.packages) for n in wanted}
    states = {n: s if s.state != "available" else CapabilityState("unknown", "not asked") for n, s in states.items()}
    return replace(record, capabilities={**record.capabilities, **states})
