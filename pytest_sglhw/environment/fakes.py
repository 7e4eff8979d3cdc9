"""Pretend to be a machine: from a SPEC, from a record that ``sglhw doctor --json`` wrote, or from a shipped record.

``SPEC`` is ``platform[:arch][*count][,+capability|-capability...]``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_sglhw.environment.records import CapabilityState, Device, Environment
from pytest_sglhw.environment.support import supported
from pytest_sglhw.errors import RecordError
from pytest_sglhw.record import replace
from pytest_sglhw.registry.platforms import Platform, normal_arch, platform_named

if TYPE_CHECKING:
    from pytest_sglhw.registry.registry import Registry

MACHINES = Path(__file__).with_name("machines")

_SPEC = re.compile(r"(?P<platform>[^:*,]*)(?::(?P<arch>[^:*,]*))?(?:\*(?P<count>[^:*,]*))?(?:,(?P<changes>.*))?", re.S)
_GRAMMAR = "platform[:arch][*count][,+capability|-capability...], e.g. rocm:gfx942*8 or cuda:sm90*2,-kvcacheio"


def fake_environment(text: str, registry: Registry) -> Environment:
    """Return the machine that ``text`` names: a SPEC, a FILE, or the name of a shipped record.

    :raises RecordError: what is wrong with it, where, and what is valid.
    """
    if text in shipped_machines():
        return _from_file(MACHINES / f"{text}.json", text, registry)
    if _names_a_file(text, registry):
        return _from_file(Path(text), text, registry)
    return from_spec(text, registry)


def _names_a_file(text: str, registry: Registry) -> bool:
    """Say whether ``text`` is a file and no SPEC: one that begins with a platform is a SPEC, whatever lies around."""
    if text.endswith(".json"):
        return True
    match = _SPEC.fullmatch(text)
    if match and platform_named(match["platform"], registry.platforms.values()):
        return False
    return os.path.isfile(text)  # unlike Path.is_file false for what is too long for a name


def shipped_machines() -> tuple[str, ...]:
    """Return the names of the records that come with this package."""
    return tuple(sorted(path.stem for path in MACHINES.glob("*.json")))


def from_spec(spec: str, registry: Registry) -> Environment:
    """Return the machine of a SPEC: what it leaves unsaid is one device and what the registry gives the platform.

    :raises RecordError: a part that is not valid.
    """
    match = _SPEC.fullmatch(spec)
    parts: dict[str, str | None] = match.groupdict() if match else {"platform": spec}
    platform = platform_named(parts["platform"] or "", registry.platforms.values())
    if platform is None:
        raise _wrong(spec, f"no platform {parts['platform']!r}", _valid_first_words(registry))
    arch, count = _arch(spec, parts["arch"], platform), _count(spec, parts["count"], platform)
    name = f"fake {platform.name} device"
    devices = tuple(Device(index, name, arch) for index in range(count))
    known = {name: supported(row, platform.name, devices, {}) for name, row in registry.capabilities.items()}
    changes = {name: _stated(spec, there) for name, there in _changes(spec, parts["changes"], registry).items()}
    return Environment(
        platform=platform.name,
        device_type=platform.device_type,
        devices=devices,
        reason=f"--sglhw-fake {spec}",
        build=platform.name,
        capabilities={name: changes.get(name) or _assumed(state) for name, state in known.items()},
        fake=spec,
    )


def _from_file(path: Path, text: str, registry: Registry) -> Environment:
    from pytest_sglhw.environment.reading import load_json

    data = load_json(path)
    record = Environment.from_json(data, str(path))
    if record.platform not in registry.platforms and record.platform != "unknown":
        valid = ", ".join([*registry.platforms, "unknown"])
        raise RecordError(f"{path}: platform is {record.platform!r}. Valid: {valid}.")
    record = replace(record, fake=text)
    return _with_assumed_capabilities(record, registry) if _assumes(data) else record


def _assumes(data: Mapping[str, Any]) -> bool:
    """Say whether the record leaves the capabilities to the registry (the shipped ones: nobody probed them)."""
    return data.get("capabilities_from") == "registry"


def _with_assumed_capabilities(record: Environment, registry: Registry) -> Environment:
    assumed = {
        name: _assumed(supported(row, record.platform, record.usable_devices, record.packages))
        for name, row in registry.capabilities.items()
    }
    return replace(record, capabilities={**assumed, **record.capabilities})


def _assumed(state: CapabilityState) -> CapabilityState:
    return replace(state, reason=f"{state.reason} (assumed: fake)")


def _stated(spec: str, there: bool) -> CapabilityState:
    return CapabilityState("available" if there else "unavailable", f"stated by --sglhw-fake {spec}")


def _arch(spec: str, text: str | None, platform: Platform) -> str | None:
    if text is None:
        return None
    arch = normal_arch(text)
    if not platform.arch_pattern or not re.fullmatch(platform.arch_pattern, arch, re.ASCII):
        valid = f"an arch such as {platform.arch_example}" if platform.arch_pattern else "no arch"
        raise _wrong(spec, f"{platform.name} has no arch {text!r}", valid)
    return arch


def _count(spec: str, text: str | None, platform: Platform) -> int:
    has_devices = platform.device_type != "cpu"
    if text is None:
        return int(has_devices)
    if not has_devices:
        raise _wrong(spec, f"{platform.name} has no devices to count", platform.name)
    if not re.fullmatch(r"[0-9]{1,4}", text) or not int(text):
        raise _wrong(spec, f"{text!r} is not a number of devices", "a whole number from 1 to 9999")
    return int(text)


def _changes(spec: str, text: str | None, registry: Registry) -> dict[str, bool]:
    changes: dict[str, bool] = {}
    for word in [] if text is None else text.split(","):
        sign, name = word[:1], word[1:]
        if sign not in ("+", "-") or name not in registry.capabilities:
            valid = f"+ or - and one of {', '.join(sorted(registry.capabilities))}"
            raise _wrong(spec, f"{word!r} is not a capability", valid)
        if changes.setdefault(name, sign == "+") != (sign == "+"):
            raise _wrong(spec, f"it has both +{name} and -{name}", "one of them")
    return changes


def _valid_first_words(registry: Registry) -> str:
    machines = shipped_machines()
    also = f"; or a file; or a shipped record: {', '.join(machines)}" if machines else "; or a file"
    return f"{', '.join(registry.platforms)}{also}"


def _wrong(spec: str, what: str, valid: str) -> RecordError:
    return RecordError(f"{spec!r} is not a machine: {what}. Valid: {valid}. A SPEC is {_GRAMMAR}.")
