"""What does not fit together on a machine, in one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pytest_sglhw.environment.masks import hiding_mask, masks_of

if TYPE_CHECKING:
    from pytest_sglhw.environment.asking import Answer
    from pytest_sglhw.environment.families import Family
    from pytest_sglhw.environment.records import Device
    from pytest_sglhw.environment.static import StaticFacts
    from pytest_sglhw.registry.platforms import Platform


class Findings(NamedTuple):
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


def _failed_families(f: Findings) -> Iterator[str]:
    for family in f.families:
        if family.row.name != f.platform and (family.answer.fault or family.error):
            yield f"{family.answer.stage} failed: {family.error or family.answer.told}"


def _vendors(f: Findings) -> Iterator[str]:
    for module, answer in (f.vendors or {}).items():
        if not answer.ok:
            yield f"{module} is installed and does not import: {answer.told}"


def _masks(f: Findings) -> Iterator[str]:
    for row in f.rows:
        if row.name not in (f.platform, f.build):
            continue
        hiding = hiding_mask(row, f.static.masks)
        if hiding:
            yield f"{hiding.variable}={hiding.value!r} leaves no {row.name} device"
            continue
        for mask in masks_of(row, f.static.masks):
            yield from _named_devices(mask.variable, mask.tokens, len(f.devices), mask.by_identity)


def _named_devices(variable: str, tokens: Sequence[str], enumerated: int, by_identity: bool) -> Iterator[str]:
    migs = [token for token in tokens if token.upper().startswith("MIG")]
    if len(migs) > 1:
        yield f"{variable} names {len(migs)} MIG instances; CUDA gives a process the first one only"
    elif by_identity and len(tokens) != enumerated:
        yield f"{variable} names {len(tokens)} devices by UUID or MIG instance, torch enumerates {enumerated}"


def _unusable(f: Findings) -> Iterator[str]:
    for device in f.devices:
        if device.state != "available":
            yield f"{f.platform} device {device.index} is enumerated and not usable: {device.reason}"


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
        said = f"SGLang's {name}()"
        if isinstance(answer, dict):
            if name != "get_device" or f.platform != "cpu":
                yield f"{said} raises {answer.get('error')}"
        elif name in _SGLANG and isinstance(answer, bool) and answer != (f.platform == _SGLANG[name]):
            yield f"{said} says {answer}; this machine is {f.platform}"
        elif name in ("is_cpu", "is_sail") and answer is True and (name == "is_sail" or f.platform != "cpu"):
            yield f"{said} says True; this machine is {f.platform}"
    yield from _sglang_device(f)


def _sglang_device(f: Findings) -> Iterator[str]:
    device = f.sglang.value.get("get_device") if f.sglang else None
    row = next((row for row in f.rows if row.name == f.platform), None)
    if isinstance(device, str) and row is not None and device.partition(":")[0] != row.device_type:
        yield f"SGLang's get_device() says {device!r}; this machine's device type is {row.device_type!r}"


_LOOKS: tuple[Callable[[Findings], Iterator[str]], ...] = (
    _driver_without_build,
    _toolkit_without_driver,
    _several_builds,
    _build_without_string,
    _several_families,
    _failed_families,
    _vendors,
    _masks,
    _unusable,
    _sglang,
)
