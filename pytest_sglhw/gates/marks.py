"""Read our marks: every keyword, value and argument is checked, and a wrong one is told what is valid."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sglhw.errors import MarkError
from pytest_sglhw.gates import GENERAL, REQUIRES, platform_marks
from pytest_sglhw.gates.requirement import Documented, Need
from pytest_sglhw.record import replace

if TYPE_CHECKING:
    from pytest_sglhw.registry.capabilities import Capability
    from pytest_sglhw.registry.registry import Registry

_COMMON = ("otherwise", "raises", "match", "reason")
_ASKED = ("platforms", "archs", "min_arch", "min_devices", "min_memory", "min_free_memory")
_GENERAL = (*_ASKED, *_COMMON, "vacuous_because")
_REQUIRES = (*_COMMON, "vacuous_because")


def suggestion(given: str, valid: Iterable[str]) -> str:
    """Give ``" Did you mean 'x'?"`` for the closest of the valid names, or nothing."""
    import difflib

    close = difflib.get_close_matches(given, list(valid), 1, 0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def spelled(mark: pytest.Mark) -> str:
    """Give a mark as it is written: ``requires_kvcacheio('transfer_kv_direct', otherwise='raise')``."""
    args = [_shown(arg) for arg in mark.args] + [f"{key}={_shown(value)}" for key, value in mark.kwargs.items()]
    return f"{mark.name}({', '.join(args)})" if args else mark.name


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and len(value) != 1:
        return f"({', '.join(map(_shown, value))})"
    return value.__name__ if isinstance(value, type) else repr(value)


def key_of(mark: pytest.Mark) -> Hashable:
    """Give a key under which marks that ask the same meet; the mark itself where its values can't be hashed."""
    if not mark.args and not mark.kwargs:
        return mark.name
    key = (mark.name, mark.args, tuple(mark.kwargs.items()))
    try:
        hash(key)
    except TypeError:
        return _ById(mark)
    return key


class _ById:
    """Equal only for one and the same mark, which it keeps alive."""

    __slots__ = ("mark",)

    def __init__(self, mark: pytest.Mark) -> None:
        self.mark = mark

    def __hash__(self) -> int:
        return id(self.mark)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and other.mark is self.mark


class MarkReader:
    """Turn marks into needs by the tables of one registry; each distinct mark is read once."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._platform_marks = platform_marks(registry.platforms)
        self._needs: dict[Hashable, Need] = {}

    def need(self, mark: pytest.Mark) -> Need:
        """Give what ``mark`` asks.

        :raises MarkError: a wrong keyword, value, number of arguments or name; the text says what is valid.
        """
        key = key_of(mark)
        found = self._needs.get(key)
        if found is None:
            found = self._needs[key] = self._read(mark)
        return found

    def _read(self, mark: pytest.Mark) -> Need:
        if mark.name in self._platform_marks:
            values = self._values(mark, _COMMON)
            self._no_arguments(mark)
            return self._built(mark, values, platforms=self._platform_marks[mark.name])
        if mark.name == GENERAL:
            values = self._values(mark, _GENERAL)
            self._check_names(mark, "capability", mark.args, self._capabilities)
            if not mark.args and values.keys().isdisjoint(_ASKED):
                raise MarkError(f"{spelled(mark)} asks for nothing. Valid: capabilities, {', '.join(_ASKED)}.")
            return self._built(mark, values, capabilities=mark.args)
        name = mark.name.removeprefix(REQUIRES)
        self._check_names(mark, "capability", (name,), self._capabilities)
        values = self._values(mark, _REQUIRES)
        kernels = self.kernels(name)
        if kernels:
            self._check_names(mark, "kernel", mark.args, kernels)
        else:
            self._no_arguments(mark)
        return self._built(mark, values, capabilities=(name,), kernels=mark.args)

    def kernels(self, capability: str) -> tuple[str, ...]:
        """Give the names of the single kernels that a capability is known to have."""
        probe = self._capabilities[capability].probe
        return tuple(op.rpartition("::")[2] for op in probe.ops) if probe else ()

    @property
    def _capabilities(self) -> Mapping[str, Capability]:
        return self._registry.capabilities  # which are built when the first mark asks for one

    @cached_property
    def _readers(self) -> dict[str, Callable[[Any], Any]]:
        from pytest_sglhw.gates.values import READERS, platform_reader

        return {**READERS, "platforms": platform_reader(_platform_names(self._registry))}

    def _values(self, mark: pytest.Mark, valid: tuple[str, ...]) -> dict[str, Any]:
        if not mark.kwargs:
            return {}
        from pytest_sglhw.gates.values import InvalidValueError

        values = {}
        for key, value in mark.kwargs.items():
            if key not in valid:
                raise MarkError(
                    f"{spelled(mark)}: {key!r} is not a keyword of {mark.name}. "
                    f"Valid: {', '.join(valid)}.{suggestion(key, valid)}"
                )
            if value is None or value == ():
                continue
            try:
                values[key] = self._readers[key](value)
            except InvalidValueError as error:
                raise MarkError(f"{spelled(mark)}: {value!r} is not a valid {key}. Valid: {error}.") from error
        return values

    def _check_names(self, mark: pytest.Mark, what: str, given: tuple[Any, ...], valid: Iterable[str]) -> None:
        for name in given:
            if not isinstance(name, str) or name not in valid:
                hint = suggestion(name, valid) if isinstance(name, str) else ""
                raise MarkError(f"{spelled(mark)}: {name!r} is not a known {what}. Valid: {', '.join(valid)}.{hint}")

    def _no_arguments(self, mark: pytest.Mark) -> None:
        if mark.args:
            raise MarkError(
                f"{spelled(mark)}: {mark.name} takes keywords only, but was given {len(mark.args)} "
                f"argument{'s' if len(mark.args) > 1 else ''}. Valid: {', '.join(_COMMON)}."
            )

    def _built(self, mark: pytest.Mark, values: dict[str, Any], **asked: Any) -> Need:
        raises, match = values.pop("raises", ()), values.pop("match", None)
        need = Need(mark=mark.name, text=spelled(mark), **asked, **values)
        if need.otherwise == "skip":
            if raises or match:
                raise MarkError(
                    f"{need.text}: raises and match say what otherwise='raise' expects. Add it or drop them."
                )
            return need
        documented = self._documented(need, raises, match)
        return replace(need, documented=documented)

    def _documented(self, need: Need, raises: Any, match: Any) -> tuple[Documented, ...]:
        if raises:
            return (Documented(raises, match, "as the mark says"),)
        found = []
        for name in need.capabilities:
            errors = [signal for signal in self._capabilities[name].signals if not signal.warning]
            if not errors:
                only = "only warns" if self._capabilities[name].signals else "has no documented error"
                raise MarkError(
                    f"{need.text}: {name} {only}, so otherwise='raise' needs raises=, which may be a warning."
                )
            for signal in errors:
                found.append(
                    Documented(
                        (signal.exception,), match or self._readers["match"](signal.match), f"documented for {name}"
                    )
                )
        if not found:
            raise MarkError(f"{need.text}: otherwise='raise' needs raises=, the class that is documented to be raised.")
        return tuple(dict.fromkeys(found))


def _platform_names(registry: Registry) -> dict[str, str]:
    names = {name: name for name in registry.platforms}
    for platform in registry.platforms.values():
        names.update(dict.fromkeys(getattr(platform, "aliases", ()), platform.name))
    return names
