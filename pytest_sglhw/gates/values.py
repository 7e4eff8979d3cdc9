"""The keywords of our marks: how each value is read, and what a wrong one is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_sglhw.environment.records import Device

_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS.update({"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40})
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]i?B|B|)")
_SM = re.compile(r"sm_?([0-9]{1,6})[a-z]?")
_ARCH = re.compile(r"[A-Za-z][\w.-]*")


class InvalidValueError(ValueError):
    """A value is none of the valid ones, which this error's text lists."""


def arch(text: Any) -> str:
    """Give the name of an arch as the environment record spells it: ``sm_90a`` is ``sm90``."""
    from pytest_sglhw.registry.platforms import normal_arch

    if isinstance(text, str):
        name = text.partition(":")[0]  # gfx942:sramecc+:xnack-
        if _SM.fullmatch(name):
            return f"sm{sm_number(name)}"
        if _ARCH.fullmatch(name):
            return normal_arch(name)
    raise InvalidValueError("names of archs, such as 'sm90' or 'gfx942'")


def arch_of(device: Device) -> str | None:
    """Give the arch of a device as marks name archs; one that no mark can name as its record has it."""
    try:
        return arch(device.arch) if device.arch else None
    except InvalidValueError:
        return device.arch


def sm_number(name: str | None) -> int | None:
    """Give 90 for ``sm90``; ``None`` for an arch that is not one of CUDA's."""
    sm = _SM.fullmatch(name or "")
    return int(sm[1]) if sm else None


def _archs(value: Any) -> tuple[str, ...]:
    return tuple(arch(name) for name in _several(value, "names of archs, such as 'sm90' or 'gfx942'"))


def _min_arch(value: Any) -> str:
    if not isinstance(value, str) or sm_number(value) is None:
        raise InvalidValueError("an arch of CUDA, such as 'sm90' (elsewhere archs have no order; use archs=)")
    return arch(value)


def _min_devices(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidValueError("a whole number of at least 1")
    return value


def _memory(value: Any) -> int:
    size: float = 0
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (parts := _MEMORY.fullmatch(value.strip())):
        size = float(parts[1]) * _UNITS.get(parts[2], 0)
    if size <= 0:
        raise InvalidValueError(
            f"bytes, or a number with a unit, such as '40GiB' (units: {', '.join(filter(None, _UNITS))})"
        )
    return round(size)


def _otherwise(value: Any) -> str:
    if value not in ("skip", "raise"):
        raise InvalidValueError("'skip' or 'raise'")
    return str(value)


def _raises(value: Any) -> tuple[type[BaseException], ...]:
    classes = value if isinstance(value, tuple) else (value,)
    if not classes or not all(isinstance(cls, type) and issubclass(cls, BaseException) for cls in classes):
        raise InvalidValueError("a class of errors or warnings, or a tuple of them")
    return classes


def _match(value: Any) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except (re.error, TypeError) as error:
        raise InvalidValueError(f"a regular expression ({error})") from error


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidValueError("a text that is not empty")
    return value.strip()


def _several(value: Any, valid: str) -> tuple[Any, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, (tuple, list, set, frozenset)):
        raise InvalidValueError(valid)
    return tuple(sorted(value) if isinstance(value, (set, frozenset)) else value)


def platform_reader(names: Mapping[str, str]) -> Callable[[Any], tuple[str, ...]]:
    """Give the reader of ``platforms=``; ``names`` maps every accepted spelling to the platform."""
    valid = f"names of platforms: {', '.join(dict.fromkeys(names.values()))}"

    def read(value: Any) -> tuple[str, ...]:
        given = _several(value, valid)
        if not all(isinstance(name, str) and name in names for name in given):
            raise InvalidValueError(valid)
        return tuple(dict.fromkeys(names[name] for name in given))

    return read


#: Keyword -> reader of its value (``platforms`` depends on the registry and is added by whoever knows it).
READERS: dict[str, Callable[[Any], Any]] = {
    "archs": _archs,
    "min_arch": _min_arch,
    "min_devices": _min_devices,
    "min_memory": _memory,
    "min_free_memory": _memory,
    "otherwise": _otherwise,
    "raises": _raises,
    "match": _match,
    "reason": _text,
    "vacuous_because": _text,
}
