"""Call the function of an entry point, in the child process that :mod:`pytest_sglhw.registry.foreign` asks."""

from __future__ import annotations

import importlib
from functools import reduce
from typing import TYPE_CHECKING, Any

from pytest_sglhw.errors import RegistryError
from pytest_sglhw.record import as_dict
from pytest_sglhw.registry.loading import as_registry_error, built_in
from pytest_sglhw.registry.no_torch import without_torch

if TYPE_CHECKING:
    from pytest_sglhw.registry.registry import Registry

_TABLES = ("platforms", "capabilities", "providers")


def rows(who: str, origin: str, module: str, attribute: str) -> dict[str, Any]:
    """Return the rows that an entry point adds to the built-in ones, by table; or ``refused``: why it may not.

    ``who`` is the entry point as errors name it, ``origin`` as rows do.
    """
    registry = built_in()
    registry.origin = origin
    before = {table: set(getattr(registry, table)) for table in _TABLES}
    try:
        with as_registry_error(who), without_torch():
            _call(module, attribute, registry)
    except RegistryError as error:
        return {"refused": str(error)}
    except KeyboardInterrupt:
        return {"refused": f"{who} failed: KeyboardInterrupt"}
    return {
        table: [_plain(name, row) for name, row in getattr(registry, table).items() if name not in before[table]]
        for table in _TABLES
    }


def _call(module: str, attribute: str, registry: Registry) -> None:
    # As ``importlib.metadata`` does, whose import takes longer than everything else here.
    register: Any = reduce(getattr, filter(None, attribute.split(".")), importlib.import_module(module))
    if hasattr(register(registry), "__await__"):
        raise TypeError("it is a coroutine function, which nobody awaits. Valid: a plain function.")


def _plain(name: str, row: Any) -> Any:
    """The row of a platform or a capability as what it is built from; of a provider its name and target."""
    if isinstance(row, tuple):
        return name, row[0]
    return {column: value for column, value in as_dict(row).items() if column != "origin"}
