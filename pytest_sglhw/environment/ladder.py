"""Climb the rungs of one capability: platform, distribution, import, native kernels, a tiny real use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_sglhw.environment.records import CapabilityState, Environment
from pytest_sglhw.environment.support import supported
from pytest_sglhw.record import replace
from pytest_sglhw.registry.capabilities import Capability, Ladder
from pytest_sglhw.registry.installed import is_folder, normal_name, where_is

if TYPE_CHECKING:
    from pytest_sglhw.asking.asker import Answer, Asker
    from pytest_sglhw.registry.platforms import Platform

Kernels = dict[str, CapabilityState]

#: Operators without a kernel of their own for a device run on these.
_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")

_ANSWERS = "Valid: True where the capability works, False where it is not here, an error where it is broken."


def in_order(rows: Iterable[Capability]) -> list[Capability]:
    """Put first what needs nobody's package but torch, so that none which hangs can use up its time.

    Otherwise the order is that of the table, whoever asks: what one does to the child may reach the next one.
    """
    return sorted(rows, key=lambda row: row.probe is not None and _needs_others(row.probe))


def _needs_others(ladder: Ladder) -> bool:
    return bool(ladder.distributions or ladder.modules or _own(ladder.check or ""))


class Climber:
    """Finds out the state of capabilities; ``look`` gathers evidence even where the platform settles it."""

    def __init__(
        self, record: Environment, platform: Platform | None, packages: Mapping[str, str], asker: Asker, look: bool
    ) -> None:
        self._record = record
        self._platform = platform
        self._packages = packages
        self._asker = asker
        self._look = look
        self._imports: dict[tuple[str, tuple[str, ...]], Answer] = {}

    def climb(self, row: Capability) -> tuple[CapabilityState, Kernels]:
        """Return the state of a capability and of its kernels, from the lowest rung that fails."""
        record = self._record
        if self._platform is None:
            return CapabilityState(
                "unknown", f"the platform is unknown: {record.reason}", remedy="repair the platform first"
            ), {}
        state = supported(row, record.platform, record.usable_devices, self._packages)
        ladder = row.probe or Ladder()
        if record.devices and not record.usable_devices:
            state = self._without_device(row, state)
        if state.state != "available":
            return replace(state, evidence=(*state.evidence, *self._evidence(ladder))), {}
        return self._climb(ladder, state)

    def _without_device(self, row: Capability, state: CapabilityState) -> CapabilityState:
        if self._record.platform not in row.platforms:
            return state
        device = self._record.devices[0]
        return CapabilityState(
            device.state, f"no device works: {device.reason}", remedy="repair the device or its driver"
        )

    def _climb(self, ladder: Ladder, state: CapabilityState) -> tuple[CapabilityState, Kernels]:
        found = self._found(ladder)
        if isinstance(found, CapabilityState):
            return found, {}
        evidence, kernels = list(found), Kernels()
        for module in ladder.modules:
            failed = self._imported(module, ladder, evidence)
            if failed:
                return failed, {}
        if ladder.ops:
            failed, kernels = self._native(ladder, evidence)
            if failed:
                return failed, kernels
        if ladder.check:
            failed = self._checked(ladder.check, ladder, evidence)
            if failed:
                return failed, kernels
        return replace(state, evidence=tuple(evidence)), kernels

    # Rung 2: distribution and module are found, without importing anything.

    def _found(self, ladder: Ladder) -> CapabilityState | list[str]:
        installed = self._installed(ladder.distributions)
        places = {module: where_is(module) for module in ladder.modules}
        evidence = [f"{name} is installed" for name in [*installed, *self._installed(ladder.brought_by)]]
        if ladder.module and len(self._installed(_bringing(ladder))) > 1:
            evidence.append(f"they bring the same module {ladder.module}: the one installed last overwrote the other")
        for module, place in places.items():
            if place is None or is_folder(place):
                return self._no_module(module, ladder, place)
        if ladder.distributions and not installed:
            stand_in = self._undistributed(ladder)
            if stand_in is None:
                names = " or ".join(ladder.distributions)
                return CapabilityState(
                    "unavailable", f"{names} is not installed", remedy=f"install {ladder.distributions[0]}"
                )
            evidence.append(f"no distribution named {' or '.join(ladder.distributions)}; found {stand_in}")
        return [*evidence, *(f"{module} is at {place}" for module, place in places.items())]

    def _installed(self, distributions: Sequence[str]) -> list[str]:
        return [f"{name} {self._packages[name]}" for name in map(normal_name, distributions) if name in self._packages]

    def _no_module(self, module: str, ladder: Ladder, folder: str | None = None) -> CapabilityState:
        top = module.partition(".")[0]
        shadow = where_is(top)
        evidence = (f"{top} is at {shadow}, without {module}",) if shadow and top != module else ()
        if folder:
            evidence = (f"{folder} is a folder without an __init__.py: no package",)
        bringing = _bringing(ladder) if module == ladder.module else ladder.distributions
        if installed := self._installed(bringing):
            reason = f"{', '.join(installed)} is installed, but brings no module {module}"
            return CapabilityState("broken", reason, evidence, remedy=f"install a release that has {module}")
        names = " or ".join(bringing) or module
        return CapabilityState(
            "unavailable", f"no module {module}: {names} is not installed", evidence, f"install {names}"
        )

    def _undistributed(self, ladder: Ladder) -> str | None:
        """Find a package that is importable without being installed (a source tree on the path)."""
        tops = [name.replace("-", "_") for name in ladder.distributions]
        own = (ladder.module or "").partition(".")[0]
        tops += [own] if own and any(normal_name(d).startswith(normal_name(own)) for d in ladder.distributions) else []
        return next((place for top in tops if (place := where_is(top))), None)

    # Rung 3: it imports.

    def _import(self, module: str, names: tuple[str, ...] = ()) -> Answer:
        key = (module, names)
        if key not in self._imports or module.partition(".")[0] in self._asker.poisoned:
            self._imports[key] = self._asker.ask(
                f"import of {module}", "import", imports=module, module=module, names=names
            )
        return self._imports[key]

    def _imported(self, module: str, ladder: Ladder, evidence: list[str]) -> CapabilityState | None:
        answer = self._import(module, _names(module, ladder))
        top = module.partition(".")[0]
        if answer.absent == top:
            reason = f"no module {top} in a fresh process; this one finds it through {where_is(top)}"
            return CapabilityState("unavailable", reason, tuple(evidence), f"install {module}")
        if not answer.ok:
            return _failed(f"importing {module}", answer, evidence)
        evidence.append(f"{module} imports from {_origin(answer) or 'nowhere (no __file__)'}")
        if answer.value["mocked"]:
            return _not_native(f"{module} is a mock: it answers for every name", evidence, module)
        if not _origin(answer):
            return _not_native(f"{module} has no file: it is no package", evidence, module)
        return self._nameless(module, ladder, answer.value["lacking"], evidence)

    def _nameless(
        self, module: str, ladder: Ladder, lacking: Sequence[str], evidence: list[str]
    ) -> CapabilityState | None:
        """A module without the names that it is imported for is another one, or an older one."""
        if not lacking:
            return None
        remedy = f"install a release of {' or '.join(ladder.distributions) or module} that has them"
        return CapabilityState("broken", f"{module} imports and has no {', '.join(lacking)}", tuple(evidence), remedy)

    # Rung 4: native kernels are registered for this platform.

    def _native(self, ladder: Ladder, evidence: list[str]) -> tuple[CapabilityState | None, Kernels]:
        assert self._platform is not None
        namespace = ladder.ops[0].partition("::")[0]
        names: Sequence[str] = self._import(ladder.module, ladder.names).value["names"] if ladder.module else ()
        also = [f"{namespace}::{name}" for name in names if f"{namespace}::{name}" not in ladder.ops]
        keys = [*self._platform.dispatch_keys, *_COMPOSITE]
        answer = self._asker.ask(
            f"operators of {namespace}",
            "ops",
            imports=ladder.module or "",
            ops=[*ladder.ops, *also],
            keys=keys,
            modules=ladder.modules,
        )
        if not answer.ok:
            return _failed(f"asking torch for the operators of {namespace}", answer, evidence), {}
        registered: Mapping[str, list[str] | None] = answer.value
        kernels = {
            op.partition("::")[2]: _kernel(op, found, self._platform.dispatch_keys[0])
            for op, found in registered.items()
            if op in ladder.ops or found
        }
        lacking = [op for op in ladder.ops if not registered[op]]
        if not lacking:
            evidence.append(f"{len(ladder.ops)} native kernels are registered for {self._platform.dispatch_keys[0]}")
            return None, kernels
        return self._lacking(ladder, lacking, evidence), kernels

    def _lacking(self, ladder: Ladder, lacking: Sequence[str], evidence: list[str]) -> CapabilityState:
        assert self._platform is not None
        key = self._platform.dispatch_keys[0]
        if len(lacking) == len(ladder.ops):
            return _not_native(
                f"no operator {lacking[0]} with a kernel for {key}", evidence, ladder.module or lacking[0]
            )
        shown = ", ".join(op.partition("::")[2] for op in lacking)
        reason = f"{len(lacking)} of {len(ladder.ops)} kernels are not there for {key}: {shown}"
        remedy = f"install a release of {' or '.join(ladder.distributions)} that has them"
        return CapabilityState("unavailable", reason, tuple(evidence), remedy)

    # Rung 5: a tiny real use.

    def _checked(self, check: str, ladder: Ladder, evidence: list[str]) -> CapabilityState | None:
        home = _own(check)
        # A stage of its own: a check that dies costs itself, not the other checks of its module.
        imported = self._import(home) if home else None
        if imported is not None and imported.fault:
            return _failed(f"importing {home}", imported, evidence)
        answer = self._asker.ask(
            f"check {check}",
            "check",
            guest=(home or ladder.module or "").partition(".")[0],
            function=check,
            modules=ladder.modules,
        )
        if answer.undecided:
            said = answer.error.partition(": ")[2]
            remedy = "repair torch, which failed before the capability was used"
            return CapabilityState("unknown", f"the check {check} {said}", tuple(evidence), remedy)
        if not answer.ok:
            return _failed(f"the check {check}", answer, evidence)
        holds, returned = answer.value["holds"], answer.value["returned"]
        if holds is None:
            reason = f"the check {check} returned {returned}, which is no answer. {_ANSWERS}"
            return CapabilityState("broken", reason, tuple(evidence), f"let {check} return True or False")
        evidence.append(f"the check {check} answered {'yes' if holds else 'no'}")
        return None if holds else CapabilityState("unavailable", f"{check} says that it is not there", tuple(evidence))

    def _evidence(self, ladder: Ladder) -> tuple[str, ...]:
        """What is installed although the platform does not have the capability, and whether it would even load."""
        if not self._look or not ladder.module or where_is(ladder.module) is None:
            return ()
        found = self._found(ladder)
        evidence = list(found.evidence if isinstance(found, CapabilityState) else found)
        answer = self._import(ladder.module, ladder.names)
        if answer.ok:
            return (*evidence, f"{ladder.module} imports")
        failed = _failed(f"importing {ladder.module}", answer, evidence)
        return (*failed.evidence, failed.reason, *((failed.remedy,) if failed.remedy else ()))


def _bringing(ladder: Ladder) -> tuple[str, ...]:
    return ladder.brought_by or ladder.distributions


def _names(module: str, ladder: Ladder) -> tuple[str, ...]:
    return tuple(ladder.names) if module == ladder.module else ()


def _origin(answer: Answer) -> str | None:
    """Say where a module comes from: its file, or the interpreter that has it built in."""
    origin = answer.value["origin"]
    found: str | None = answer.value["file"] or (origin if origin in ("built-in", "frozen") else None)
    return found


def _own(check: str) -> str:
    """Name the module that is to blame where a check breaks the child; our own checks are never to blame."""
    module = check.partition(":")[0]
    return "" if module.startswith(("pytest_sglhw", "torch")) else module


def _failed(what: str, answer: Answer, evidence: Sequence[str]) -> CapabilityState:
    seen = (*evidence, *((answer.output,) if answer.output else ()))
    if answer.fault:
        return CapabilityState(
            "unknown",
            f"{what} {answer.fault}: {answer.detail}",
            seen,
            f"run it by itself to see why {what} does not end",
        )
    remedy = (
        f"make these libraries loadable: {', '.join(answer.missing)}"
        if answer.missing
        else f"repair what makes {what} fail"
    )
    return CapabilityState("broken", f"{what} raised {answer.error}", seen, remedy)


def _not_native(what: str, evidence: Sequence[str], module: str) -> CapabilityState:
    return CapabilityState(
        "broken", f"importable, not native: {what}", tuple(evidence), f"install a build of {module} with native kernels"
    )


def _kernel(op: str, found: list[str] | None, key: str) -> CapabilityState:
    if found:
        return CapabilityState("available", f"{op} has a kernel for {', '.join(found)}")
    why = "is not registered" if found is None else f"has no kernel for {key}"
    return CapabilityState("unavailable", f"{op} {why}", remedy="install a release that has it")
