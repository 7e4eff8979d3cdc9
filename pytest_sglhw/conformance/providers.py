"""Kernel providers: found by name, asked what they have, never an import error.

A provider may say of itself: ``sglhw_device`` (torch device string), ``sglhw_kernels`` (the kernels that it declares),
``sglhw_missing`` (kernel -> why this machine cannot have it).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sglhw.conformance.devices import Place
from pytest_sglhw.registry import load
from pytest_sglhw.registry.loading import built_in

if TYPE_CHECKING:
    from pytest_sglhw.registry import Registry


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

    def place(self) -> Place:
        """The place where its pools live."""
        if self._place is None:
            self._place = Place(getattr(self.kernels, "sglhw_device", None) or default_device())
        return self._place

    def has(self, kernel: str) -> bool:
        """Whether it has a kernel."""
        return self.problem is None and callable(getattr(self.kernels, kernel, None))

    def missing(self, kernels: Iterable[str]) -> Mapping[str, str]:
        """The kernels that it lacks, each with the reason."""
        reasons = getattr(self.kernels, "sglhw_missing", {}) if self.problem is None else {}
        default = self.problem or "the provider has no attribute of this name"
        return {name: reasons.get(name, default) for name in kernels if not self.has(name)}

    def declared_and_missing(self) -> tuple[str, ...]:
        """Kernels that it declares, does not have, and has no reason to lack."""
        if self.problem is not None:
            return ()
        reasons = getattr(self.kernels, "sglhw_missing", {})
        declared = getattr(self.kernels, "sglhw_kernels", ())
        return tuple(name for name in declared if not self.has(name) and name not in reasons)

    def complaint(self, promised: bool) -> str | None:
        """Say what is wrong with the provider: broken, less than it declares, or nothing at all where it has to be."""
        if self.is_broken:
            return f"is broken: {self.problem}"
        if lacks := self.declared_and_missing():
            return f"declares kernels that it does not have: {', '.join(lacks)}"
        declared = getattr(self.kernels, "sglhw_kernels", ())
        if promised and (self.problem or (declared and not any(map(self.has, declared)))):
            reasons = dict.fromkeys(self.missing(declared or ("",)).values())
            return f"was named for this lane and is not available: {'; '.join(reasons)}"
        return None


def default_device() -> str:
    """The torch device of this machine's accelerator, or the CPU."""
    import torch

    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return f"{current.type}:0" if current else "cpu"


def find_all(names: Iterable[str], config: pytest.Config | None = None) -> list[FoundProvider]:
    """Find the providers of these names; with none given, every registered one.

    :raises pytest.UsageError: a name that is neither registered nor importable.
    """
    registry = load(config)
    return [resolve(name, registry) for name in dict.fromkeys(names or registry.providers)]


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
        return FoundProvider(
            name, target, problem=f"{type(error).__name__}: {error}", is_broken=not _is_part(error.name, module)
        )
    except Exception as error:  # noqa: BLE001 - any failure of a foreign import is the provider's state
        return FoundProvider(name, target, problem=f"{type(error).__name__}: {error}", is_broken=True)


def _is_part(missing: str | None, module: str) -> bool:
    """Whether the module that is missing is the provider's own (or a package above it)."""
    return missing is not None and (module == missing or module.startswith(f"{missing}."))
