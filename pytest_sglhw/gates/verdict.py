"""Requirement x environment x lane policy -> verdict. No pytest item, no hook, no probe: values in, value out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pytest_sglhw.gates.requirement import Documented, Need, Requirement, describe
from pytest_sglhw.record import Record

if TYPE_CHECKING:
    from pytest_sglhw.environment.records import CapabilityState, Device, Environment, State
    from pytest_sglhw.gates.policy import LanePolicy

Action = Literal["run", "skip", "raise", "fail"]

#: The state that decides where several hold: what certainly does not hold needs no answer about the rest.
_WEIGHT: dict[State, int] = {"unavailable": 0, "broken": 1, "unknown": 2, "available": 3}


#: The remedy where devices are there, as it seems, and do not answer.
_ANSWERS = "a driver and devices that answer (sglhw doctor --full says what they did)"


class Finding(Record):
    """Why one need does not hold here.

    ``settled`` is false where a fact is not known (the memory of a fake device) rather than known to be otherwise.
    """

    need: Need
    state: State
    code: str
    reason: str
    remedy: str = ""
    settled: bool = True


class Verdict(Record):
    """What becomes of a test: the action, the finding that decided, and all documented errors that will do."""

    action: Action
    state: State = "available"
    code: str = ""
    reason: str = ""
    remedy: str = ""
    settled: bool = True
    loud: bool = False
    expected: tuple[Documented, ...] = ()
    facts: Mapping[str, Any] = {}  # read only, as every default here


def decide(requirement: Requirement, environment: Environment, policy: LanePolicy | None = None) -> Verdict:
    """Say what becomes of a test with this requirement here; ``policy`` is the active lane's, if any."""
    findings = [finding for need in requirement if (finding := examine(need, environment))]
    facts = {
        "marks": list(dict.fromkeys(need.mark for need in requirement)),
        "requirement": describe(requirement),
        "platform": environment.platform,
    }
    if not findings:
        return Verdict("run", facts={**facts, "state": "available"})
    deciding = min(findings, key=_rank)
    action: Action = "skip"
    if deciding.state in ("broken", "unknown"):
        if policy and not policy.allows(deciding.need.mark, deciding.code):
            action = "fail"
    elif deciding.need.otherwise == "raise":
        action = "raise"
    return _verdict(action, deciding, findings, facts)


def _rank(finding: Finding) -> tuple[int, int]:
    certain_skip = finding.state == "unavailable" and finding.need.otherwise == "skip"
    must_raise = finding.state == "unavailable" and not certain_skip
    return (0 if certain_skip else 2 if must_raise else 1, _WEIGHT[finding.state])


def _verdict(action: Action, deciding: Finding, findings: list[Finding], facts: dict[str, Any]) -> Verdict:
    reason = f"{deciding.need.text}: {deciding.reason}"
    if deciding.need.reason:
        reason += f" ({deciding.need.reason})"
    expected: list[Documented] = []
    if action == "raise":
        expected = [documented for finding in findings for documented in finding.need.documented]
    return Verdict(
        action,
        deciding.state,
        deciding.code,
        reason,
        deciding.remedy,
        deciding.settled,
        loud=action == "skip" and deciding.state != "unavailable",
        expected=tuple(dict.fromkeys(expected)),
        facts={
            **facts,
            "state": deciding.state,
            "mark": deciding.need.mark,
            "reason_code": deciding.code,
            "reason": reason,
            "remedy": deciding.remedy,
        },
    )


def examine(need: Need, environment: Environment) -> Finding | None:
    """Say why ``need`` does not hold in ``environment``, or ``None`` where it holds."""
    findings = [*_platform(need, environment), *_devices(need, environment), *_capabilities(need, environment)]
    return min(findings, key=lambda finding: _WEIGHT[finding.state], default=None)


def _platform(need: Need, environment: Environment) -> Iterator[Finding]:
    accepted, found = need.platforms, environment.platform
    if accepted == ():
        return
    wanted = "an accelerator" if accepted is None else " or ".join(accepted)
    remedy = f"a machine with {wanted}"
    because = f" ({environment.reason})" if environment.reason else ""
    if found == "unknown":
        reason = f"the platform of this machine is unknown{because}"
        yield Finding(need, "unknown", "unknown:platform", reason, _ANSWERS)
    elif _has(accepted, found):
        if found != "cpu" and not environment.usable_devices:
            yield _no_usable_device(need, environment)
    elif found == "cpu" and _has(accepted, environment.build or "cpu"):
        reason = f"torch is built for {environment.build}, but no device was found{because}"
        yield Finding(need, "unavailable", "no_device", reason, remedy)
    else:
        yield Finding(need, "unavailable", "platform", f"the platform here is {found}, not {wanted}{because}", remedy)


def _has(accepted: tuple[str, ...] | None, platform: str) -> bool:
    return platform != "cpu" if accepted is None else platform in accepted


def _no_usable_device(need: Need, environment: Environment) -> Finding:
    if not environment.devices:
        reason = f"the platform is {environment.platform}, but no device was found"
        return Finding(need, "unavailable", "no_device", reason, f"a {environment.platform} device")
    first = environment.devices[0]
    count = len(environment.devices)
    reason = f"none of {_devices_text(count)} is usable: device {first.index} is {first.state}{_why(first.reason)}"
    return Finding(need, "broken", "broken:devices", reason, _ANSWERS)


def _devices(need: Need, environment: Environment) -> Iterator[Finding]:
    if not need.asks_devices:
        return
    count = need.min_devices or 1
    usable = environment.usable_devices
    if environment.platform == "unknown":
        reason = f"the devices of this machine are unknown{_why(environment.reason)}"
        yield Finding(need, "unknown", "unknown:platform", reason, _ANSWERS)
    elif len(usable) < count:
        yield _too_few(need, environment, count)
    else:
        # A test takes devices from the front, so these are the ones that have to fit.
        for device in usable[:count]:
            yield from _device(need, device, environment.platform)
            if need.min_free_memory:
                yield from _free_memory(need, device, need.min_free_memory, fake=environment.fake is not None)


def _too_few(need: Need, environment: Environment, count: int) -> Finding:
    found, usable = len(environment.devices), len(environment.usable_devices)
    remedy = f"a machine with {_devices_text(count)}"
    if found >= count:
        bad = next(device for device in environment.devices if device.state != "available")
        reason = f"{count} needed, {usable} of {found} usable: device {bad.index} is {bad.state}{_why(bad.reason)}"
        return Finding(need, "broken", "broken:devices", reason, _ANSWERS)
    if environment.withheld and found + environment.withheld >= count:
        reason = f"{_devices_text(count)} needed, this worker holds {found} of {found + environment.withheld}"
        return Finding(need, "unavailable", "devices_pinned", reason, f"--sglhw-devices-per-worker {count}")
    code = "devices" if need.min_devices else "no_device"
    return Finding(need, "unavailable", code, f"{_devices_text(count)} needed, {found} found", remedy)


def _devices_text(count: int) -> str:
    return f"{count} device{'s' if count > 1 else ''}"


def _device(need: Need, device: Device, platform: str) -> Iterator[Finding]:
    from pytest_sglhw.gates.values import arch_of, sm_number  # most needs look at no device

    found = arch_of(device)
    if need.archs and found not in need.archs:
        wanted = " or ".join(need.archs)
        yield _arch_finding(need, device, f"arch {wanted} needed", wanted)
    if need.min_arch:
        number = sm_number(found)
        if platform != "cuda":
            reason = f"min_arch is an order of CUDA's archs, and the platform here is {platform}"
            yield Finding(need, "unavailable", "arch", reason, f"a CUDA device of {need.min_arch} or above")
        elif number is None or number < (sm_number(need.min_arch) or 0):
            yield _arch_finding(need, device, f"{need.min_arch} or above needed", f"{need.min_arch} or above")
    if need.min_memory and (device.memory is None or device.memory < need.min_memory):
        wanted = _gib(need.min_memory)
        has = "an unknown amount" if device.memory is None else _gib_at_least(device.memory)
        reason = f"{wanted} of memory needed, device {device.index} has {has}"
        yield Finding(need, "unavailable", "memory", reason, f"a device with {wanted}", device.memory is not None)


def _free_memory(need: Need, device: Device, least: int, *, fake: bool) -> Iterator[Finding]:
    wanted, free, at = _gib(least), device.free_memory, f"device {device.index}"
    remedy = f"a device with {wanted} free"
    if free is None and not fake:
        reason = f"{wanted} of free memory needed, what {at} has free is not known{_why(device.reason)}"
        yield Finding(need, "unknown", "unknown:memory", reason, _ANSWERS)
    elif free is None:
        reason = f"{wanted} of free memory needed, {at} has an unknown amount free"
        yield Finding(need, "unavailable", "memory", reason, remedy, settled=False)
    elif free < least:
        total = f" of {_gib_at_least(device.memory)}" if device.memory else ""
        if device.memory is None or device.memory >= least:
            remedy += ": end what else holds memory on it (other processes, other workers)"
        reason = f"{wanted} of free memory needed, {at} has {_gib_at_least(free)}{total} free"
        yield Finding(need, "unavailable", "memory", reason, remedy)


def _arch_finding(need: Need, device: Device, needed: str, wanted: str) -> Finding:
    has = device.arch or "of unknown arch"
    return Finding(
        need,
        "unavailable",
        "arch",
        f"{needed}, device {device.index} is {has}",
        f"a device of {wanted}",
        bool(device.arch),
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.4g} GiB"


def _gib_at_least(size: int) -> str:
    """Give a size rounded down, so that too little never reads like enough."""
    return f"{size * 100 // 2**30 / 100:g} GiB"


def _capabilities(need: Need, environment: Environment) -> Iterator[Finding]:
    for name in need.capabilities:
        for kernel in need.kernels:
            yield from _capability(need, name, f"{name} ({kernel})", environment.kernel(name, kernel))
        if not need.kernels:
            yield from _capability(need, name, name, environment.capability(name))


def _capability(need: Need, name: str, shown: str, found: CapabilityState) -> Iterator[Finding]:
    if found.state != "available":
        prefix = "capability" if found.state == "unavailable" else found.state
        reason = f"{shown} is {found.state}{_why(found.reason)}"
        yield Finding(need, found.state, f"{prefix}:{name}", reason, found.remedy)


def _why(reason: str) -> str:
    return f": {reason}" if reason else ""
