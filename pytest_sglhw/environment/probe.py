"""The probe: static facts first, and only what they leave open is asked in a child process.

The process that calls this never imports torch, SGLang or a vendor package and never creates a device context.
"""

from __future__ import annotations

import os
import platform as os_platform
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_sglhw.asking.asker import Answer, Asker
from pytest_sglhw.environment.disagreements import Findings, disagreements
from pytest_sglhw.environment.families import (
    Choice,
    Family,
    ask_families,
    broken_devices,
    choose,
    try_devices,
)
from pytest_sglhw.environment.ladder import Climber, in_order
from pytest_sglhw.environment.records import CapabilityState, Device, Environment, ProbeOutcome
from pytest_sglhw.environment.settled import why
from pytest_sglhw.environment.static import StaticFacts, gather, platform_strings
from pytest_sglhw.record import Record, encodable, replace
from pytest_sglhw.registry.installed import normal_name
from pytest_sglhw.timeouts import TIMEOUT, VALID, is_timeout

if TYPE_CHECKING:
    from pytest_sglhw.registry.registry import Registry

#: Distributions worth recording beside those that the capabilities name.
_PACKAGES = ("torch", "triton", "sglang", "transformers", "numpy", "pytest", "pytest-sglhw")


def probe_environment(
    capabilities: Iterable[str] | None = None, *, full: bool = False, timeout: float = TIMEOUT
) -> Environment:
    """Return the record of the live machine: the guard that a launcher asks before it enters a device path.

    Never raises for a driver or package that hangs, crashes or lies, and leaves no device context in this process::

        if pytest_sglhw.probe_environment(["kvcacheio"]).available("kvcacheio"):
            ...

    :param capabilities: names of those to look at; ``None`` for all, ``()`` for the platform and its devices alone.
    :param full: ask every stage even where static facts settle the answer.
    :param timeout: seconds that one stage may take.
    :raises ValueError: an unknown capability, something else than a list of names, or a timeout that is none.
    :raises RegistryError: (a ``ValueError``) an installed package adds rows that are invalid; names its entry point.
    """
    from pytest_sglhw.registry.loading import load

    if not is_timeout(timeout):
        raise ValueError(f"{timeout!r} is not a valid timeout. Valid: {VALID}.")
    wanted = _names(capabilities)
    registry = load(timeout=timeout)
    unknown = [name for name in wanted or () if name not in registry.capabilities]
    if unknown:
        raise ValueError(f"no capability {unknown[0]!r}. Valid: {', '.join(sorted(registry.capabilities))}.")
    return Probe(registry, gather(registry.platforms.values()), full=full, timeout=timeout).run(wanted)


def _names(capabilities: Iterable[str] | None) -> tuple[str, ...] | None:
    if capabilities is None:
        return None
    if isinstance(capabilities, str):  # its letters would be taken for names
        raise ValueError(
            f"{capabilities!r} is no list of capabilities. Valid: a list of names, here [{capabilities!r}]."
        )
    names = tuple(capabilities) if isinstance(capabilities, Iterable) else (None,)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{capabilities!r} is no list of capabilities. Valid: a list of names, or None for all.")
    return names


class Probe:
    """One probe of one machine.

    :param look: gather evidence and ask SGLang for its own opinion even where the platform is settled (``doctor``).
    :param environ: what the child gets as its environment; this process's own where ``None``.
    """

    def __init__(
        self,
        registry: Registry,
        static: StaticFacts,
        *,
        full: bool = False,
        look: bool = False,
        timeout: float = TIMEOUT,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._registry = registry
        self._rows = tuple(registry.platforms.values())
        self._static = static
        self._full = full
        self._look = look or full
        self._asker = Asker(timeout, os.environ if environ is None else environ)

    def run(self, capabilities: Iterable[str] | None = None, known: Environment | None = None) -> Environment:
        """Return the record with at least ``capabilities`` looked at (``None``: all), on top of what is ``known``."""
        with self._asker:
            record = known or self._platform()
            wanted = self._registry.capabilities if capabilities is None else capabilities
            missing = {name for name in wanted if name not in record.capabilities}
            ordered = [row.name for row in in_order(self._registry.capabilities.values()) if row.name in missing]
            return encodable(self._with_capabilities(record, ordered))

    def _platform(self) -> Environment:
        if self._static.settles_cpu and not self._full:
            return self._record(_Asked(choice=Choice("cpu", why(self._static))))
        torch = self._asker.ask("import of torch", "torch", imports="torch", again=True)
        if torch.absent == "torch":
            return self._record(_Asked(choice=Choice("cpu", "there is no torch"), status="ok"))
        if not torch.ok:
            fault = replace(torch, fault=torch.fault or "crashed")
            return self._record(_Asked(choice=Choice("unknown", f"{torch.stage} {_went(torch)}", fault=fault)))
        if stand_in := torch.value["stand_in"]:
            return self._record(_Asked(Choice("unknown", stand_in, fault=replace(torch, fault="garbled"))))
        return self._record(self._enumerate(torch.value))

    def _enumerate(self, torch: Mapping[str, Any]) -> _Asked:
        vendors = {
            m: self._asker.ask(f"import of {m}", "import", imports=m, again=True, module=m)
            for m in self._static.vendors
        }
        imported = [module for module, answer in vendors.items() if answer.ok]
        if imported:  # some of them add their version to torch's
            again = self._asker.ask("version strings of torch", "torch")
            torch = again.value if again.ok else torch
        families = ask_families(self._rows, platform_strings(torch["strings"]), imported, self._asker)
        choice = choose(families, self._static, torch["version"], vendors)
        devices: tuple[Device, ...] = ()
        if choice.family is not None:
            broken = choice.broken and broken_devices(choice.family, self._static, choice.broken)
            devices = broken or try_devices(choice.family, self._asker)
        api = self._asker.ask("driver's API version", "driver") if devices and not choice.broken else None
        return _Asked(choice, torch, families, vendors, devices, str(api.value or "") if api else "", "ok")

    def _record(self, asked: _Asked) -> Environment:
        choice, static = asked.choice, self._static
        strings = _strings(asked, static)
        build = self._build(asked, strings)
        row = self._registry.platforms.get(choice.name)
        sglang = None
        if self._look and static.sglang and not choice.fault:
            sglang = self._asker.ask("SGLang's own answers", "sglang", imports="sglang")
            self._asker.fresh()  # what is found out about capabilities must not depend on whether SGLang was asked
        findings = Findings(
            self._rows, static, choice.name, build, strings, asked.devices, asked.families, asked.vendors, sglang
        )
        fault = choice.fault
        return Environment(
            platform=choice.name,
            device_type=row.device_type if row else "unknown",
            devices=asked.devices,
            reason=choice.reason,
            build=build,
            torch=_torch(asked, static, strings),
            packages=self._packages(),
            masks=dict(static.masks),
            versions=self._versions(choice.name, build, strings, asked.driver_api),
            probe=ProbeOutcome(
                (fault.fault or "crashed") if fault else asked.status,
                fault.stage if fault else "",
                round(self._asker.seconds, 3),
            ),
            disagreements=disagreements(findings),
        )

    def _build(self, asked: _Asked, strings: Mapping[str, str]) -> str | None:
        """Name the platform that torch is built for; ``cpu`` for a CPU build, ``None`` without torch."""
        if asked.torch is None and self._static.torch is None:
            return None
        named = (row.name for row in self._rows if row.build in strings)
        extended = (family.row.name for family in asked.families if family.built and family.value.get("present"))
        unreadable = self._static.torch is not None and not self._static.torch.readable and asked.torch is None
        return next(named, None) or next(extended, None) or (None if unreadable else "cpu")

    def _packages(self) -> dict[str, str]:
        ladders = [row.probe for row in self._registry.capabilities.values() if row.probe]
        rungs = [names for ladder in ladders for names in (ladder.distributions, ladder.brought_by)]
        names = {*_PACKAGES, *(normal_name(name) for names in rungs for name in names)}
        return {name: version for name, version in sorted(self._static.packages.items()) if name in names}

    def _versions(
        self, platform: str, build: str | None, strings: Mapping[str, str], driver_api: str
    ) -> dict[str, str]:
        named = platform if platform in self._static.drivers else build
        drivers = self._static.drivers
        row = self._registry.platforms.get(build or "")
        toolkits = [hint for hints in self._static.hints.values() for hint in hints]
        versions = {
            "python": os_platform.python_version(),
            "os": f"{os_platform.system()} {os_platform.release()} {os_platform.machine()}",
            "driver": drivers.get(named or "", "") or next(iter(drivers.values()), ""),
            "driver_api": driver_api,
            "runtime": strings.get(row.build, "") if row else "",
            "toolkit": ", ".join(dict.fromkeys(toolkits)),
        }
        return {name: version for name, version in versions.items() if version}

    def _with_capabilities(self, record: Environment, names: Iterable[str]) -> Environment:
        platform = self._registry.platforms.get(record.platform)
        climber = Climber(record, platform, self._static.packages, self._asker, self._look)
        climbed = {name: climber.climb(self._registry.capabilities[name]) for name in names}
        climbed = {name: (self._lasting(name, state), kernels) for name, (state, kernels) in climbed.items()}
        return replace(
            record,
            disagreements=(*record.disagreements, *self._asker.late),
            capabilities={**record.capabilities, **{name: state for name, (state, _) in climbed.items()}},
            kernels={**record.kernels, **{name: kernels for name, (_, kernels) in climbed.items() if kernels}},
            probe=replace(record.probe, seconds=round(self._asker.seconds, 3)),
        )

    def _lasting(self, name: str, state: CapabilityState) -> CapabilityState:
        """Take back what was said of a capability whose package ended the child after its probe had gone well."""
        ladder = self._registry.capabilities[name].probe
        names = [*ladder.modules, (ladder.check or "").partition(":")[0]] if ladder else []
        late = [top for top in (module.partition(".")[0] for module in names) if top in self._asker.ended_late]
        if state.state != "available" or not late:
            return state
        reason = f"{late[0]} works and then ends its process: {self._asker.ended_late[late[0]]}"
        return replace(state, state="unknown", reason=reason, remedy=f"run {late[0]} by itself for a while")


class _Asked(Record):
    """What the child said about the platform."""

    choice: Choice
    torch: Mapping[str, Any] | None = None
    families: tuple[Family, ...] = ()
    vendors: Mapping[str, Answer] | None = None
    devices: tuple[Device, ...] = ()
    driver_api: str = ""
    status: Any = "skipped"


def _went(answer: Answer) -> str:
    return f"{answer.fault}: {answer.detail}" if answer.fault else f"raised {answer.error}"


def _strings(asked: _Asked, static: StaticFacts) -> Mapping[str, str]:
    """The version strings that are set: as imported where torch was imported, else as its files say."""
    if asked.torch is not None:
        return platform_strings(asked.torch["strings"])
    return static.torch.strings if static.torch else {}


def _torch(asked: _Asked, static: StaticFacts, strings: Mapping[str, str]) -> dict[str, Any]:
    if asked.torch is not None:
        return {"version": asked.torch["version"], "path": asked.torch["path"], **strings}
    if static.torch is None:
        return {}
    return {"version": static.torch.version, "path": static.torch.path, **strings}
