"""What torch enumerates, family by family, and the one platform that follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_sglhw.asking.asker import Answer, Asker
from pytest_sglhw.environment.masks import hiding_mask, masks_of
from pytest_sglhw.environment.records import Device
from pytest_sglhw.record import Record, replace

if TYPE_CHECKING:
    from pytest_sglhw.environment.static import StaticFacts
    from pytest_sglhw.registry.platforms import Platform


class Family(Record):
    """The devices of one namespace of torch (``torch.cuda`` serves CUDA and ROCm), as its platform enumerates them."""

    row: Platform
    answer: Answer
    built: bool
    """Whether torch's build (or an installed vendor package) is for this platform."""

    @property
    def value(self) -> Mapping[str, Any]:
        """What the stage said; empty where it did not end."""
        return self.answer.value if isinstance(self.answer.value, dict) else {}

    @property
    def devices(self) -> Sequence[Mapping[str, Any]]:
        """The devices as enumerated."""
        found: Sequence[Mapping[str, Any]] = self.value.get("devices", ())
        return found

    @property
    def error(self) -> str:
        """What the enumeration raised, if it did."""
        answers = (self.value.get("available"), self.value.get("count"))
        raised = next((a["error"] for a in answers if isinstance(a, dict)), "")
        return self.answer.error or raised


def ask_families(
    rows: Sequence[Platform], strings: Mapping[str, str], vendors: Sequence[str], asker: Asker
) -> tuple[Family, ...]:
    """Enumerate every namespace once; the family's platform is the first of its rows that torch is built for."""
    families = []
    for api in dict.fromkeys(row.api for row in rows if row.api):
        sharing = [row for row in rows if row.api == api]
        built = [row for row in sharing if row.build in strings or set(row.vendor_modules) & set(vendors)]
        row = (built or [row for row in sharing if row.name == api] or sharing)[0]
        rules = [[rule.source, rule.pattern, rule.arch] for rule in row.archs]
        answer = asker.ask(f"devices of torch.{api}", "devices", api=api, archs=rules)
        families.append(Family(row, answer, bool(built)))
    # Believed in this order: what torch is built for first, and the table's order within that.
    order = list(rows)
    return tuple(sorted(families, key=lambda family: (not family.built, order.index(family.row))))


class Choice(Record):
    """The platform, why, and the family it came from (``None``: no accelerator)."""

    name: str
    reason: str
    family: Family | None = None
    broken: str = ""
    """Why a platform that should have devices has none that work."""
    fault: Answer | None = None


def choose(
    families: Sequence[Family], static: StaticFacts, torch_version: str, vendors: Mapping[str, Answer] | None = None
) -> Choice:
    """Decide the platform from what torch is built for and what it enumerates.

    ``vendors`` are the answers of the packages that would add a platform to torch: one that hangs or dies leaves the
    platform unknown, and one that raises where its driver offers devices leaves them broken.
    """
    for family in families:
        if family.devices:
            return Choice(family.row.name, f"torch {torch_version} enumerates {_counted(family)}", family)
    failed = {module: answer for module, answer in (vendors or {}).items() if not answer.ok}
    for answer in (*(family.answer for family in families if family.built), *failed.values()):
        if answer.fault:
            return Choice("unknown", f"{answer.stage} {answer.told}", fault=answer)
    for family in families:
        broken = _broken(family, static) if family.built else _without_vendor(family, static, failed)
        if broken:
            return Choice(family.row.name, broken, family, broken)
    return Choice("cpu", _why_none(families, static, torch_version))


def _counted(family: Family) -> str:
    number = len(family.devices)
    return f"{number} {family.row.name} device{'s' if number > 1 else ''}"


def _broken(family: Family, static: StaticFacts) -> str:
    """Say why the devices of a family that should be here do not work; empty where there is nothing to break."""
    if family.error:
        return f"enumerating {family.row.name} devices raised {family.error}"
    row = family.row
    nodes = static.nodes.get(row.name, ())
    if not nodes or hiding_mask(row, static.masks, nodes):
        return ""
    closed = [node for node in nodes if node in static.closed]
    may_not = f"; this process may not open {', '.join(closed)}" if closed else ""
    masks = [f"{mask.variable}={mask.value!r}" for mask in masks_of(row, static.masks)]
    may_hide = f"; {', '.join(masks)} may name none of them" if masks else ""
    said = f": {family.answer.warnings[0]}" if family.answer.warnings else ""
    return f"the driver offers {', '.join(nodes)} and torch enumerates no {row.name} device{may_not}{may_hide}{said}"


def _without_vendor(family: Family, static: StaticFacts, failed: Mapping[str, Answer]) -> str:
    """Say that the driver offers devices which the package that would enumerate them does not reach."""
    row = family.row
    module = next((module for module in row.vendor_modules if module in failed), None)
    nodes = static.nodes.get(row.name, ())
    if module is None or not nodes or hiding_mask(row, static.masks, nodes):
        return ""
    return f"the driver offers {', '.join(nodes)} and {module} does not import: {failed[module].error}"


def _why_none(families: Sequence[Family], static: StaticFacts, torch_version: str) -> str:
    built = next((family.row for family in families if family.built), None)
    if built is None:
        return f"torch {torch_version} enumerates no accelerator"
    mask = hiding_mask(built, static.masks, static.nodes.get(built.name, ()))
    why = f"{mask.variable}={mask.value!r} hides every device" if mask else "there is no device node either"
    added = next((module for module in built.vendor_modules if module in static.vendors), None)
    if added:
        return f"torch {torch_version} with {added} enumerates no {built.name} device; {why}"
    return f"torch {torch_version} is built for {built.name}{'' if mask else ', which enumerates no device'}; {why}"


#: A device that hangs costs a whole deadline: after this many the others are not asked.
_HANGS = 2


def try_devices(family: Family, asker: Asker) -> tuple[Device, ...]:
    """Describe the devices of a family; one small allocation on each says whether it is usable."""
    devices: list[Device] = []
    hangs: list[str] = []
    for index, said in enumerate(family.devices):
        device = f"{family.row.device_type}:{index}"
        if len(hangs) >= _HANGS:
            answer = Answer(device, fault="hung", detail=f"not asked: allocations on {' and '.join(hangs)} hung")
        else:
            answer = asker.ask(f"allocation on {device}", "allocate", device=device)
            hangs += [device] if answer.fault == "hung" else []
        devices.append(_device(index, said, answer))
    return tuple(devices)


def _device(index: int, said: Mapping[str, Any], answer: Answer) -> Device:
    device = Device(index, str(said.get("name", "")), said.get("arch"), said.get("memory"), said.get("uuid"))
    if answer.fault == "hung":
        return replace(device, state="unknown", reason=f"{answer.stage} {answer.told}")
    if not answer.ok:
        return replace(device, state="broken", reason=f"{answer.stage}: {answer.told}")
    if answer.value != "allocated":
        return replace(device, state="unknown", reason=str(answer.value))
    return device


def broken_devices(family: Family, static: StaticFacts, reason: str) -> tuple[Device, ...]:
    """One broken device for each node that the driver offers, at least one: devices that nobody can describe."""
    number = max(1, len(static.nodes.get(family.row.name, ())))
    return tuple(Device(index, state="broken", reason=reason) for index in range(number))
