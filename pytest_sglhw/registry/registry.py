"""The registry of one run: built-in rows first, then what entry points and hooks add."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_sglhw.errors import RegistryError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from pytest_sglhw.record import Record
    from pytest_sglhw.registry.capabilities import Capability
    from pytest_sglhw.registry.platforms import Platform

BUILT_IN = "built in"


class Registry:
    """Platforms, capabilities and kernel providers by name.

    ``origin`` says who is adding rows at the moment (a distribution, a hook implementation); it is what the error
    names when a name is defined twice.
    """

    def __init__(
        self,
        capabilities: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
        providers: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Make a registry that holds these rows, which are asked for when somebody first looks."""
        self._rows = capabilities
        self._targets = providers
        self.platforms: dict[str, Platform] = {}
        self.origin = BUILT_IN
        self.entry_points: tuple[EntryPoint, ...] = ()
        """Those that added rows."""

    @cached_property
    def capabilities(self) -> dict[str, Capability]:
        """The capabilities by name; built only now, since the header of every run needs no more than the platforms."""
        from pytest_sglhw.registry.capabilities import capability_from_row

        return {row["name"]: capability_from_row(row, "built in") for row in self._rows()}

    @cached_property
    def providers(self) -> dict[str, tuple[str, str]]:
        """The kernel providers: name -> target and origin."""
        return {name: (target, BUILT_IN) for name, target in self._targets().items()}

    def add_platform(self, row: Mapping[str, Any] | Platform) -> None:
        """Add a platform; see :class:`pytest_sglhw.registry.platforms.Platform` for the columns.

        :raises RegistryError: a name that is taken (both origins are named) or not an identifier, or a bad column.
        """
        from pytest_sglhw.registry.platforms import Platform, platform_from_row

        platform = row if isinstance(row, Platform) else self._built(platform_from_row, row, origin=self.origin)
        if self.origin != BUILT_IN:
            self._check_shape(platform)
        self._check_name("platform", platform.name, self.platforms)
        self.platforms[platform.name] = platform

    def add_capability(self, row: Mapping[str, Any] | Capability) -> None:
        """Add a capability; see :class:`pytest_sglhw.registry.capabilities.Capability` for the columns.

        :raises RegistryError: a name that is taken (both origins are named) or not an identifier, or a bad column.
        """
        from pytest_sglhw.registry.capabilities import Capability, capability_from_row

        capability = row if isinstance(row, Capability) else self._built(capability_from_row, row, origin=self.origin)
        self._check_shape(capability)
        self._check_name("capability", capability.name, self.capabilities)
        self.capabilities[capability.name] = capability

    def add_provider(self, name: str, target: str) -> None:
        """Add a kernel provider: ``target`` is a module path or ``module:attribute``, imported when it is used.

        :raises RegistryError: a name that is taken (both origins are named) or not an identifier, or no text as target.
        """
        self._check_name("provider", name, self.providers)
        if not isinstance(target, str):
            raise RegistryError(
                f"provider {name!r} from {self.origin} has the target {target!r}."
                " Valid: a module path or module:attribute, as text."
            )
        self.providers[name] = (target, self.origin)

    def _built(self, make: Callable[..., Any], row: Mapping[str, Any], **extra: Any) -> Any:
        if not isinstance(row, Mapping):
            raise RegistryError(f"invalid row {row!r} from {self.origin}. Valid: a mapping of column to value.")
        try:
            return make(row, **extra)
        except (TypeError, KeyError) as error:
            raise RegistryError(f"invalid row {dict(row)!r} from {self.origin}: {error}") from error

    def _check_shape(self, record: Record) -> None:
        from pytest_sglhw.registry.shapes import misfits

        for misfit in misfits(record):
            raise RegistryError(f"invalid row {getattr(record, 'name', None)!r} from {self.origin}: {misfit}")

    def _check_name(self, kind: str, name: str, taken: Mapping[str, Any]) -> None:
        if not isinstance(name, str) or not _is_name(name):
            raise RegistryError(f"{kind} {name!r} from {self.origin} is not a valid name. Valid: [a-z][a-z0-9_]*.")
        if name in taken:
            first = taken[name][1] if kind == "provider" else taken[name].origin
            raise RegistryError(
                f"{kind} {name!r} is defined twice: by {first} and by {self.origin}. Rename one of them."
            )


def _is_name(text: str) -> bool:
    # without a regular expression: the built-in rows pass here in every run
    return text.isascii() and text.isidentifier() and text == text.lower() and text[0] != "_"
