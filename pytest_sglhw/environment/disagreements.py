"""What does not fit together on a machine, in one sentence each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_sglhw.environment.masks import hiding_mask, masks_of
from pytest_sglhw.record import Record

if TYPE_CHECKING:
    from pytest_sglhw.asking.asker import Answer
    from pytest_sglhw.environment.families import Family
    from pytest_sglhw.environment.records import Device
    from pytest_sglhw.environment.static import StaticFacts
    from pytest_sglhw.registry.platforms import Platform


class Findings(Record):
    """Everything that the probe saw."""

    rows: Sequence[Platform]
    static: StaticFacts
    platform: str
    build: str | None
    strings: Mapping[str, str]
    devices: Sequence[Device] = ()
    families: Sequence[Family] = ()
    vendors: Mapping[str, Answer] | None = None
    sglang: Answer | None = None


def disagreements(findings: Findings) -> tuple[str, ...]:
    """Return what does not fit together."""
    return tuple(sentence for look in _LOOKS for sentence in look(findings))


def _driver_without_build(f: Findings) -> Iterator[str]:
    for row in f.rows:
        nodes = f.static.nodes.get(row.name, ())
        if (nodes or row.name in f.static.drivers) and row.name not in (f.build, f.platform):
            seen = ", ".join(
                [*nodes, *([f"driver {f.static.drivers[row.name]}"] if row.name in f.static.drivers else [])]
            )
            what = f"torch is a {f.build} build" if f.build else "there is no torch"
            yield f"a {row.name} driver is here ({seen}) but {what}"


def _toolkit_without_driver(f: Findings) -> Iterator[str]:
    for row in f.rows:
        hints = f.static.hints.get(row.name)
        if hints and row.name != f.platform and not f.static.nodes.get(row.name) and row.name not in f.static.drivers:
            yield f"{', '.join(hints)}: a {row.name} toolkit is here but no driver; it is no device and is ignored"


def _several_builds(f: Findings) -> Iterator[str]:
    built = [row for row in f.rows if row.build in f.strings]
    if len(built) > 1:
        said = " and ".join(f"{row.build} {f.strings[row.build]}" for row in built)
        yield f"torch carries several version strings ({said}); taken as {built[0].name}"


def _build_without_string(f: Findings) -> Iterator[str]:
    row = next((row for row in f.rows if row.name == f.platform), None)
    if row is not None and row.build and f.devices and row.build not in f.strings:
        yield f"torch enumerates {f.platform} devices but its build does not say {row.build}"


def _several_families(f: Findings) -> Iterator[str]:
    found = [family.row.name for family in f.families if family.devices]
    if len(found) > 1:
        yield f"torch enumerates more than one kind of accelerator ({', '.join(found)}); taken as {f.platform}"


def _half_answers(f: Findings) -> Iterator[str]:
    """Compare two answers of one namespace of torch: whether it is available, and how many devices it has."""
    for family in f.families:
        available, count = family.value.get("available"), family.value.get("count")
        api = f"torch.{family.row.api}"
        if isinstance(count, dict) and available and not isinstance(available, dict):
            yield f"{api}.is_available() says True and device_count() raises {count['error']}; taken as one device"
        elif isinstance(available, dict) and isinstance(count, int) and count > 0:
            yield f"{api}.device_count() says {count} and is_available() raises {available['error']}"
        elif isinstance(available, int) and isinstance(count, int) and bool(available) != (count > 0):
            yield f"{api}.is_available() says {bool(available)} and device_count() says {count}"


def _undescribed(f: Findings) -> Iterator[str]:
    for family in f.families:
        errors = {index: device["error"] for index, device in enumerate(family.devices) if device.get("error")}
        for which, _, error in _alike(family.row.name, errors):
            yield f"{which} could not be described in full: {error}"


def _alike(platform: str, said: Mapping[int, str]) -> Iterator[tuple[str, bool, str]]:
    """Put together the devices of which the same is said, but for their own number: who, whether several, and what."""
    groups: dict[str, list[int]] = {}
    for index, text in said.items():
        groups.setdefault(re.sub(rf":{index}\b", ":N", text), []).append(index)
    for first, *others in groups.values():
        if others:
            yield f"{len(others) + 1} {platform} devices ({first} to {others[-1]})", True, said[first]
        else:
            yield f"{platform} device {first}", False, said[first]


def _failed_families(f: Findings) -> Iterator[str]:
    for family in f.families:
        if family.row.name != f.platform and (family.answer.fault or family.error):
            yield f"{family.answer.stage} failed: {family.error or family.answer.told}"


def _vendors(f: Findings) -> Iterator[str]:
    for module, answer in (f.vendors or {}).items():
        if not answer.ok:
            yield f"{module} is installed and does not import: {answer.told}"
        for family in f.families if answer.ok else ():
            if module in family.row.vendor_modules and family.value.get("present") is False:
                yield f"{module} imports and adds no torch.{family.row.api}"


def _masks(f: Findings) -> Iterator[str]:
    for row in f.rows:
        if row.name not in (f.platform, f.build):
            continue
        hiding = hiding_mask(row, f.static.masks, f.static.nodes.get(row.name, ()))
        if hiding:
            yield f"{hiding.variable}={hiding.value!r} leaves no {row.name} device"
        else:
            yield from _named_devices(row, f)


def _named_devices(row: Platform, f: Findings) -> Iterator[str]:
    """Compare the innermost mask, which counts in what the outer ones leave, with what is enumerated."""
    innermost = masks_of(row, f.static.masks)[-1:]
    enumerated = sum(len(family.devices) for family in f.families if family.row is row)
    for mask in innermost:
        variable, tokens = mask.variable, mask.tokens
        kind = tokens[0][:3].upper()
        if kind == "MIG" and len(tokens) > 1:
            yield f"{variable} names {len(tokens)} MIG instances; CUDA gives a process the first one only"
        elif enumerated and len(tokens) != enumerated:
            how = {"GPU": " by UUID", "MIG": " by MIG instance"}.get(kind, "")
            yield f"{variable} names {_count(tokens)}{how}, torch enumerates {enumerated}"


def _count(tokens: Sequence[str]) -> str:
    return f"{len(tokens)} device{'' if len(tokens) == 1 else 's'}"


def _closed(f: Findings) -> Iterator[str]:
    for node in f.static.closed:
        yield f"{node} is here and this process may not open it: it needs reading and writing (see its group)"


def _torch_elsewhere(f: Findings) -> Iterator[str]:
    """What the metadata of the installed torch says, and what an import finds."""
    installed, found = f.static.packages.get("torch"), f.static.torch
    if installed and found is None:
        yield f"torch {installed} is installed, by its metadata, but there is no module torch"
    elif installed and found and found.version and _release(found.version) != _release(installed):
        yield f"torch {installed} is installed, but torch {found.version} is imported, from {found.path}"


def _release(version: str) -> str:
    return version.partition("+")[0]


def _unusable(f: Findings) -> Iterator[str]:
    reasons = {device.index: device.reason for device in f.devices if device.state != "available"}
    for which, several, reason in _alike(f.platform, reasons):
        yield f"{which} {'are' if several else 'is'} enumerated and not usable: {reason}"


#: What SGLang's own predicates say, and the platforms of which they should be true.
_SGLANG = {
    "is_cuda": "cuda", "is_hip": "rocm", "is_xpu": "xpu", "is_npu": "npu", "is_musa": "musa", "is_mps": "mps",
    "is_hpu": "hpu",
}  # fmt: skip


def _sglang(f: Findings) -> Iterator[str]:
    if f.sglang is None:
        return
    if not f.sglang.ok:
        yield f"SGLang could not be asked what this machine is: {f.sglang.fault or 'import failed'}: {f.sglang.told}"
        return
    for name, answer in f.sglang.value.items():
        if isinstance(answer, dict):
            if f.platform != "cpu" or "No accelerator" not in str(answer.get("error")):
                yield f"{_spoken(name)} raises {answer.get('error')}"
        elif not _agrees(name, answer, f):
            yield f"{_spoken(name)} says {answer!r}; {_here(name, f)}"


def _agrees(name: str, answer: Any, f: Findings) -> bool:
    """Say whether an answer of SGLang is what it should be here; an answer that means nothing to us agrees."""
    if name in _SGLANG and isinstance(answer, bool):
        return answer == (f.platform == _SGLANG[name])
    if name == "get_device" and isinstance(answer, str):
        return answer.partition(":")[0] == _device_type(f)
    if name == "current_platform" and isinstance(answer, str):
        # A plain CPU machine is no platform to SGLang; its CPU engine has to be asked for.
        return answer == f.platform or (answer == "unknown" and f.platform == "cpu")
    # None of its functions is true on a plain CPU machine; is_sail() is on top of is_cuda().
    return answer is not True or (name == "is_cpu" and f.platform == "cpu")


def _spoken(name: str) -> str:
    return f"SGLang's {name}" if name == "current_platform" else f"SGLang's {name}()"


def _here(name: str, f: Findings) -> str:
    return (
        f"this machine's device type is {_device_type(f)!r}"
        if name == "get_device"
        else f"this machine is {f.platform}"
    )


def _device_type(f: Findings) -> str:
    return next((row.device_type for row in f.rows if row.name == f.platform), f.platform)


_LOOKS: tuple[Callable[[Findings], Iterator[str]], ...] = (
    _driver_without_build,
    _toolkit_without_driver,
    _several_builds,
    _build_without_string,
    _several_families,
    _half_answers,
    _undescribed,
    _failed_families,
    _vendors,
    _masks,
    _closed,
    _torch_elsewhere,
    _unusable,
    _sglang,
)
