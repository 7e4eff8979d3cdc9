"""Kernel providers: found by name, asked what they have, never an import error.

A provider may say of itself: ``sglhw_device`` (torch device string), ``sglhw_kernels`` (the kernels that it declares),
``sglhw_missing`` (kernel -> why this machine cannot have it), ``sglhw_isolate`` (its kernels may crash). It is foreign
code: whatever it raises, and whatever it says that cannot be, is its state and never this run's error.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sglhw.conformance.devices import Place, device_problem
from pytest_sglhw.registry.loading import built_in, load

if TYPE_CHECKING:
    from pytest_sglhw.registry.registry import Registry


@dataclass
class FoundProvider:
    """One provider of this run, loaded or not."""

    name: str
    target: str
    """Module path or ``module:attribute``."""
    kernels: Any = None
    problem: str | None = None
    """Why nothing of it can be had."""
    is_broken: bool = False
    """It is there and fails: not the same as not there."""
    _place: Place | None = field(default=None, repr=False)
    _raised: dict[str, str] = field(default_factory=dict, repr=False)
    """Attributes that it raised another error for than the one that says that there is none."""

    def place(self) -> Place:
        """The place where its pools live."""
        if self._place is None:
            self._place = Place(str(self.read("sglhw_device") or default_device()))
        return self._place

    def read(self, name: str) -> Any:
        """Return an attribute; ``None`` where there is none, or where reading it failed (a complaint says so)."""
        try:
            return getattr(self.kernels, name, None)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - foreign code; a SystemExit is no Exception
            self._raised[name] = _words(error)
            return None

    def isolates(self) -> bool:
        """Whether it says of itself that its kernels may crash."""
        return bool(self.read("sglhw_isolate"))

    def has(self, kernel: str) -> bool:
        """Whether it has a kernel."""
        return self.problem is None and callable(self.read(kernel))

    def missing(self, kernels: Iterable[str]) -> Mapping[str, str]:
        """The kernels that it lacks, each with the reason."""
        lacking = [name for name in kernels if not self.has(name)]
        if self.problem is not None:
            return dict.fromkeys(lacking, self.problem)
        reasons = {**{name: f"reading it raised {words}" for name, words in self._raised.items()}, **self._reasons()}
        return {name: reasons.get(name, "the provider has no attribute of this name") for name in lacking}

    def _reasons(self) -> Mapping[str, str]:
        return self.read("sglhw_missing") or {}

    def _declared(self) -> tuple[str, ...]:
        return tuple(self.read("sglhw_kernels") or ())

    def declared_and_missing(self) -> tuple[str, ...]:
        """Kernels that it declares, does not have, and has no reason to lack."""
        if self.problem is not None:
            return ()
        reasons = self._reasons()
        return tuple(name for name in self._declared() if not self.has(name) and name not in reasons)

    def complaint(self, promised: bool) -> str | None:
        """Say what is wrong with the provider: broken, less than it declares, or nothing at all where it has to be."""
        if self.is_broken:
            return f"is broken: {self.problem}"
        if self._raised:
            return self._raises()
        if lacks := self.declared_and_missing():
            return f"declares kernels that it does not have: {', '.join(lacks)}"
        declared = self._declared()
        if promised and (self.problem or (declared and not any(map(self.has, declared)))):
            reasons = dict.fromkeys(self.missing(declared or ("",)).values())
            return f"was named for this lane and is not available: {'; '.join(reasons)}"
        return None

    def _raises(self) -> str:
        first, words = next(iter(self._raised.items()))
        more = len(self._raised) - 1
        others = f" (and for {more} other attribute{'s' * (more > 1)})" if more else ""
        return f"raises {words} for {first}{others}. An attribute that it lacks has to raise AttributeError."

    def wrong_claim(self) -> str | None:
        """What it says of itself and cannot be."""
        device, kernels, missing = map(self.read, ("sglhw_device", "sglhw_kernels", "sglhw_missing"))
        if device and (problem := device_problem(device)):
            return f"sglhw_device = {str(device)!r}: {problem}"
        if kernels is not None and not _are_names(kernels):
            of = " of other things" if isinstance(kernels, (tuple, list)) else ""
            return f"sglhw_kernels is a {type(kernels).__name__}{of}. Valid: a tuple of names of kernels."
        if missing is not None and not isinstance(missing, Mapping):
            return f"sglhw_missing is a {type(missing).__name__}. Valid: a dict, kernel -> reason."
        return None


def _are_names(value: object) -> bool:
    return isinstance(value, (tuple, list, set, frozenset)) and all(isinstance(name, str) for name in value)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def default_device() -> str:
    """The torch device of this machine's accelerator, or the CPU."""
    import torch

    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return f"{current.type}:0" if current else "cpu"


def find_all(
    names: Iterable[str],
    config: pytest.Config | None = None,
    loading: Callable[[str], AbstractContextManager[object]] | None = None,
) -> list[FoundProvider]:
    """Find the providers of these names; with none given, every registered one. One whose word is wrong is broken.

    :param loading: entered with the name of each provider while its code runs.
    :raises pytest.UsageError: a name that is neither registered nor importable.
    """
    registry = load(config)
    result = []
    for name in dict.fromkeys(names or registry.providers):
        with loading(name) if loading else nullcontext():
            found = resolve(name, registry)
            if found.problem is None and (problem := found.wrong_claim()):
                found = FoundProvider(name, found.target, problem=problem, is_broken=True)
        result.append(found)
    return result


def resolve(name: str, registry: Registry | None = None) -> FoundProvider:
    """Find one provider by registered name, module path or ``module:attribute``.

    :raises pytest.UsageError: a name that is neither registered nor importable.
    """
    known = (registry or built_in()).providers
    target = known[name][0] if name in known else name
    module, _, attribute = target.partition(":")
    try:
        kernels = importlib.import_module(module)
        return FoundProvider(name, target, getattr(kernels, attribute) if attribute else kernels)
    except ModuleNotFoundError as error:
        if name not in known and _is_part(error.name, module):
            raise pytest.UsageError(
                f"{name!r} is not a kernel provider (--kernels, --sglhw-kernels): {error}. Valid: {', '.join(known)}, "
                "a module path, or module:attribute."
            ) from error
        return FoundProvider(name, target, problem=_words(error), is_broken=not _is_part(error.name, module))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - any failure of a foreign import, be it an exit, is its state
        return FoundProvider(name, target, problem=_words(error), is_broken=True)


def _is_part(missing: str | None, module: str) -> bool:
    """Whether the module that is missing is the provider's own (or a package above it)."""
    return missing is not None and (module == missing or module.startswith(f"{missing}."))
