"""What is known about a machine: frozen records with ``to_json`` and ``from_json``.

The JSON form is what ``sglhw doctor --json`` writes and ``--sglhw-fake FILE`` reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pytest_sglhw.errors import RecordError

#: Major and minor version of the JSON form. A reader refuses another major one and ignores keys it does not know.
SCHEMA = "1.0"

State = Literal["available", "unavailable", "broken", "unknown"]
ProbeStatus = Literal["ok", "hung", "crashed", "garbled", "skipped"]

STATES: tuple[State, ...] = ("available", "unavailable", "broken", "unknown")


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator as the runtime enumerates it. ``memory`` is its total in bytes, ``arch`` e.g. ``sm90``."""

    index: int
    name: str = ""
    arch: str | None = None
    memory: int | None = None
    uuid: str | None = None
    state: State = "available"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CapabilityState:
    """Whether a capability is there, the rung that said so, what was seen, and what would make it available."""

    state: State
    reason: str = ""
    evidence: tuple[str, ...] = ()
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """How the probe went. ``stage`` names the last stage that was announced where it did not end ``ok``."""

    status: ProbeStatus = "skipped"
    stage: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Environment:
    """The record of one machine as one process would see it."""

    platform: str
    """``cuda rocm xpu npu musa mps hpu cpu``, the name of an out-of-tree platform, or ``unknown``."""
    device_type: str
    devices: tuple[Device, ...] = ()
    reason: str = ""
    """Why this platform, in one line; for ``unknown``: what hung or crashed; for ``cpu``: why no accelerator."""
    build: str | None = None
    """Platform that torch was built for (``None`` without torch): may have no device here."""
    torch: Mapping[str, Any] = field(default_factory=dict)
    """``version``, ``path`` and the version strings that the build carries (``cuda``, ``hip``, ``xpu``, ...)."""
    packages: Mapping[str, str] = field(default_factory=dict)
    masks: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    """``driver`` and ``runtime`` as two facts, ``python``, ``os``, toolkit found."""
    capabilities: Mapping[str, CapabilityState] = field(default_factory=dict)
    probe: ProbeOutcome = ProbeOutcome()
    disagreements: tuple[str, ...] = ()
    fake: str | None = None
    """The SPEC or FILE that this record was made from; ``None`` for a live machine."""

    def available(self, capability: str) -> bool:
        """Say whether ``capability`` is available here (``broken`` and ``unknown`` are not)."""
        return self.capability(capability).state == "available"

    def capability(self, name: str) -> CapabilityState:
        """State of a capability; one that this record does not know is ``unknown`` and says so."""
        known = self.capabilities.get(name)
        return known or CapabilityState("unknown", f"{name!r} was not looked at when this record was made")

    @property
    def archs(self) -> tuple[str, ...]:
        """The distinct archs of the usable devices, in device order."""
        return tuple(dict.fromkeys(d.arch for d in self.devices if d.arch and d.state == "available"))
