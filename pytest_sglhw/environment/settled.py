"""A platform that static facts settle: what decides about tests there, without the price of a probe.

Most machines that tests are written and checked on have no accelerator. The rest of the record (versions, packages,
what does not fit together) is looked at when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pytest_sglhw.environment.records import Environment
from pytest_sglhw.record import encodable

if TYPE_CHECKING:
    from pytest_sglhw.environment.static import StaticFacts
    from pytest_sglhw.registry.registry import Registry


def settled(static: StaticFacts, registry: Registry, capabilities: Iterable[str]) -> Environment | None:
    """Return platform and ``capabilities`` as a probe would find them; ``None`` where one has to look."""
    if not static.settles_cpu:
        return None
    rows = [registry.capabilities[name] for name in capabilities]
    if any("cpu" in row.platforms for row in rows):
        return None
    states = {}
    if rows:
        from pytest_sglhw.environment.support import supported

        states = {row.name: supported(row, "cpu", (), {}) for row in rows}
    build = "cpu" if static.torch else None
    return encodable(Environment("cpu", "cpu", reason=why(static), build=build, capabilities=states))


def why(static: StaticFacts) -> str:
    """Say by what the platform is settled."""
    return f"torch {static.torch.version} is a CPU build" if static.torch else "there is no torch"
