"""Fill the registry of a run: built-in rows, then entry points of group ``sglhw``, then the hook."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytest_sglhw.errors import RegistryError
from pytest_sglhw.registry.installed import ENTRY_POINT_GROUP, entry_points
from pytest_sglhw.registry.registry import Registry

if TYPE_CHECKING:
    import pytest

    from pytest_sglhw.sharing import SharedFolder


def load(
    config: pytest.Config | None = None, *, timeout: float | None = None, shared: SharedFolder | None = None
) -> Registry:
    """Return the registry of the run of ``config``; of no run (the commands): without the hook's rows.

    :param timeout: seconds that an entry point may take; ``None``: as many as a stage of the probe.
    :param shared: where the processes of the run share what entry points add.
    :raises RegistryError: a bad row, a name defined twice, or an entry point that fails; names who added it.
    """
    registry = built_in()
    registry.entry_points = tuple(entry_points(ENTRY_POINT_GROUP))
    if registry.entry_points:
        _add_foreign(registry, timeout, shared)
    if config is not None:
        _add_from_hooks(config, registry)
    return registry


def built_in() -> Registry:
    """Return a registry that holds the built-in rows alone."""
    from pytest_sglhw.registry.platforms import BUILTIN_PLATFORMS

    registry = Registry(_built_in_capabilities, _built_in_providers)
    for row in BUILTIN_PLATFORMS:
        registry.add_platform(row)
    return registry


def _built_in_capabilities() -> Iterable[Mapping[str, Any]]:
    from pytest_sglhw.registry.builtin import BUILTIN_CAPABILITIES

    return BUILTIN_CAPABILITIES


def _built_in_providers() -> Mapping[str, str]:
    from pytest_sglhw.registry.providers import BUILTIN_PROVIDERS

    return BUILTIN_PROVIDERS


def _add_foreign(registry: Registry, timeout: float | None, shared: SharedFolder | None) -> None:
    from pytest_sglhw.registry.foreign import foreign_rows
    from pytest_sglhw.timeouts import TIMEOUT

    for origin, rows in foreign_rows(registry.entry_points, timeout or TIMEOUT, shared):
        registry.origin = origin
        for platform in rows["platforms"]:
            registry.add_platform(platform)
        for capability in rows["capabilities"]:
            registry.add_capability(capability)
        for name, target in rows["providers"]:
            registry.add_provider(name, target)


def _add_from_hooks(config: pytest.Config, registry: Registry) -> None:
    # Called one by one, in pluggy's own order, so that each row knows who added it.
    for implementation in reversed(config.hook.pytest_sglhw_register.get_hookimpls()):
        registry.origin = f"hook pytest_sglhw_register of {implementation.plugin_name}"
        with as_registry_error(registry.origin):
            implementation.function(*(registry for _ in implementation.argnames))


@contextlib.contextmanager
def as_registry_error(who: str) -> Iterator[None]:
    """Say with its owner's name what foreign code raises, whatever that is: ``sys.exit`` would end the run silently."""
    try:
        yield
    except (RegistryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise RegistryError(f"{who} {_went(error)}") from error


def _went(error: BaseException) -> str:
    from pytest_sglhw.registry.no_torch import TorchRefusedError

    if isinstance(error, TorchRefusedError):
        return f"imports torch ({error}). {_NO_TORCH}"
    try:
        return f"failed: {type(error).__name__}: {error}"
    except BaseException as other:  # noqa: BLE001 (its own __str__)
        return f"failed: {type(error).__name__} (its message raised {type(other).__name__})"


_NO_TORCH = (
    "Every pytest run registers rows, and torch takes seconds: neither this module nor a package it is in may import"
    " torch. Move the function to a module that imports no kernels, e.g. my_kernels_sglhw:register; a row names"
    " modules and checks as text, and the probe imports them in a child process."
)
