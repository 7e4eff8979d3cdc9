"""Fill the registry of a run: built-in rows, then entry points of group ``sglhw``, then the hook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_sglhw.errors import RegistryError
from pytest_sglhw.registry.installed import entry_points
from pytest_sglhw.registry.registry import ENTRY_POINT_GROUP, Registry

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    import pytest


def load(config: pytest.Config | None = None) -> Registry:
    """Return the registry of the run of ``config``; of no run (the commands): without the hook's rows.

    :raises RegistryError: a bad row, a name defined twice, or an entry point that fails; names who added it.
    """
    registry = built_in()
    for entry_point in entry_points(ENTRY_POINT_GROUP):
        _add_from(entry_point, registry)
    if config is not None:
        _add_from_hooks(config, registry)
    return registry


def built_in() -> Registry:
    """Return a registry that holds the built-in rows alone."""
    from pytest_sglhw.registry.platforms import BUILTIN_PLATFORMS
    from pytest_sglhw.registry.providers import BUILTIN_PROVIDERS

    registry = Registry(_built_in_capabilities)
    for row in BUILTIN_PLATFORMS:
        registry.add_platform(row)
    for name, target in BUILTIN_PROVIDERS.items():
        registry.add_provider(name, target)
    return registry


def _built_in_capabilities() -> Iterable[Mapping[str, Any]]:
    from pytest_sglhw.registry.builtin import BUILTIN_CAPABILITIES

    return BUILTIN_CAPABILITIES


def _add_from(entry_point: EntryPoint, registry: Registry) -> None:
    owner = entry_point.dist.name if entry_point.dist else "an unknown distribution"
    registry.origin = f"entry point {entry_point.name!r} of {owner}"
    try:
        entry_point.load()(registry)
    except RegistryError:
        raise
    except Exception as error:  # foreign code: whatever it raises is said with its owner's name
        raise RegistryError(
            f"{registry.origin} ({entry_point.value}) failed: {type(error).__name__}: {error}"
        ) from error


def _add_from_hooks(config: pytest.Config, registry: Registry) -> None:
    # Called one by one, in pluggy's own order, so that each row knows who added it.
    for implementation in reversed(config.hook.pytest_sglhw_register.get_hookimpls()):
        registry.origin = f"hook pytest_sglhw_register of {implementation.plugin_name}"
        implementation.function(*(registry for _ in implementation.argnames))
