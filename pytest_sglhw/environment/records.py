"""What is known about a machine: frozen records with ``to_json`` and ``from_json``.

The JSON form is what ``sglhw doctor --json`` writes and ``--sglhw-fake FILE`` reads. Keys may be added in any release;
a key never changes its meaning within one major schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pytest_sglhw.record import Record, as_dict, replace

#: Major and minor version of the JSON form. A reader refuses another major one and ignores keys it does not know.
SCHEMA = "1.0"

State = Literal["available", "unavailable", "broken", "unknown"]
ProbeStatus = Literal["ok", "hung", "crashed", "garbled", "skipped"]

STATES: tuple[State, ...] = ("available", "unavailable", "broken", "unknown")
PROBE_STATUSES: tuple[ProbeStatus, ...] = ("ok", "hung", "crashed", "garbled", "skipped")


class Device(Record):
    """One accelerator as the runtime enumerates it. ``memory`` is its total in bytes, ``arch`` e.g. ``sm90``.

    ``free_memory`` is what was free of it at one moment: a probe leaves it open, a fake may state it, and what is
    measured for a test holds for that test. ``reason`` says why the device is not usable, or ``free_memory`` not known.
    """

    index: int
    name: str = ""
    arch: str | None = None
    memory: int | None = None
    uuid: str | None = None
    state: State = "available"
    reason: str = ""
    free_memory: int | None = None


class CapabilityState(Record):
    """Whether a capability is there, the rung that said so, what was seen, and what would make it available."""

    state: State
    reason: str = ""
    evidence: tuple[str, ...] = ()
    remedy: str = ""


class ProbeOutcome(Record):
    """How the probe of the platform went. ``stage`` names the stage that did not end where it is not ``ok``.

    A capability whose own probe hung or crashed is ``unknown`` in ``capabilities`` and leaves this one alone.
    ``skipped``: static facts settled the platform, no child process was asked about it.
    """

    status: ProbeStatus = "skipped"
    stage: str = ""
    seconds: float = 0.0


class Environment(Record):
    """The record of one machine as one process would see it."""

    platform: str
    """``cuda rocm xpu npu musa mps hpu cpu``, the name of an out-of-tree platform, or ``unknown``."""
    device_type: str
    devices: tuple[Device, ...] = ()
    reason: str = ""
    """Why this platform, in one line; for ``unknown``: what hung or crashed; for ``cpu``: why no accelerator."""
    build: str | None = None
    """Platform that torch was built for (``None`` without torch): may have no device here."""
    torch: Mapping[str, Any] = {}
    """``version``, ``path`` and the version strings that the build carries (``cuda``, ``hip``, ``xpu``, ...)."""
    packages: Mapping[str, str] = {}
    masks: Mapping[str, str] = {}
    versions: Mapping[str, str] = {}
    """``driver`` and ``runtime`` as two facts, ``python``, ``os``, toolkit found."""
    capabilities: Mapping[str, CapabilityState] = {}
    kernels: Mapping[str, Mapping[str, CapabilityState]] = {}
    """Per capability that is a set of native kernels: the state of each kernel by name."""
    withheld: int = 0
    """Devices of the run that pinning gave to other workers."""
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

    def kernel(self, capability: str, name: str) -> CapabilityState:
        """State of one kernel of a capability: its own where it was looked at, else the capability's."""
        kernels = self.kernels.get(capability)
        if not kernels:
            return self.capability(capability)
        known = self.capabilities.get(capability)
        if known is not None and known.state in ("broken", "unknown"):
            return known
        return kernels.get(name) or CapabilityState(
            "unavailable", f"{capability} has no kernel {name!r} here", (f"it has {', '.join(kernels)}",)
        )

    @property
    def usable_devices(self) -> tuple[Device, ...]:
        """The devices that took a small allocation."""
        return tuple(d for d in self.devices if d.state == "available")

    @property
    def archs(self) -> tuple[str, ...]:
        """The distinct archs of the usable devices, in device order."""
        return tuple(dict.fromkeys(d.arch for d in self.usable_devices if d.arch))

    def with_capabilities(self, other: Environment) -> Environment:
        """Return this record with the capabilities and kernels that ``other`` looked at added."""
        return replace(
            self,
            capabilities={**self.capabilities, **other.capabilities},
            kernels={**self.kernels, **other.kernels},
        )

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain data, ``schema`` first; ``from_json`` reads it back equal."""
        return {"schema": SCHEMA, **as_dict(self)}

    @classmethod
    def from_json(cls, data: Any, where: str = "record") -> Environment:
        """Build the record from plain data; ``where`` names its file in errors.

        :raises RecordError: not a record of this major schema, or a value that means nothing; says which and what is
            valid.
        """
        from pytest_sglhw.environment.reading import read_environment

        return read_environment(data, where)
