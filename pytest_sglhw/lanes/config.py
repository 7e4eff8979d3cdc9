"""Lane tables: ``[tool.sglhw.lanes.NAME]`` in ``pyproject.toml``, or ``[lanes.NAME]`` in ``sglhw.toml``.

A promise with a typing error would be no promise, so whatever is not understood here is a usage error that names the
file, the table and what is valid.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_sglhw.gates import GENERAL, platform_marks

if TYPE_CHECKING:
    from pytest_sglhw.registry.registry import Registry

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest depends on it there
    import tomli as tomllib

#: Where lanes may stand: the file and the table that holds them.
HOMES = (("sglhw.toml", ()), ("pyproject.toml", ("tool", "sglhw")))

#: Reason codes that stand alone, and families of which ``family:name`` is a member.
CODES = ("platform", "no_device", "arch", "memory", "devices", "devices_pinned")
FAMILIES = ("capability", "broken", "unknown")

VACUOUS = ("off", "warn", "fail")


@dataclass(frozen=True, slots=True)
class Lane:
    """One CI job and what it promises. ``source`` is file, line and table, for messages."""

    name: str
    platform: str
    source: str
    min_devices: int = 0
    archs: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    min_executed: int = 0
    min_executed_by_mark: Mapping[str, int] = field(default_factory=dict)
    allow_skips: tuple[str, ...] = ()
    vacuous: str = "off"

    def to_json(self) -> dict[str, Any]:
        """The promise as it stands in a report."""
        return asdict(self)

    def __str__(self) -> str:
        return f"lane {self.name} ({self.source})"


class Key(NamedTuple):
    """One key of a lane table: ``accepts`` says whether a value is of the right type, ``valid`` which type that is."""

    accepts: Callable[[Any], bool]
    valid: str


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_count(count) for count in value.values())


_COUNT = Key(_is_count, "a whole number of at least 0")
_NAMES = Key(_is_names, "a list of strings")

KEYS: Mapping[str, Key] = {
    "platform": Key(lambda value: isinstance(value, str), "a string"),
    "min_devices": _COUNT,
    "archs": _NAMES,
    "capabilities": _NAMES,
    "min_executed": _COUNT,
    "min_executed_by_mark": Key(_is_counts, "a table of whole numbers of at least 0"),
    "allow_skips": _NAMES,
    "vacuous": Key(lambda value: value in VACUOUS, " or ".join(f'"{word}"' for word in VACUOUS)),
}


def load_lanes(rootpath: Path, registry: Registry) -> dict[str, Lane]:
    """Read the lanes that are configured for ``rootpath``: in it, or in the nearest folder above it that has some.

    :raises pytest.UsageError: a file that can't be read, lanes in both files of one folder, or anything in a lane that
        means nothing.
    """
    for folder in (rootpath, *rootpath.parents):
        found = [table for name, keys in HOMES if (table := _read(folder / name, keys, rootpath)) is not None]
        if len(found) > 1:
            names = " and ".join(table.name for table in found)
            raise pytest.UsageError(f"lanes are configured twice, in {names}. Keep one of them.")
        if found:
            return {name: found[0].lane(name, registry) for name in found[0].lanes}
        if (folder / ".git").exists():
            break
    return {}


def get_lane(rootpath: Path, registry: Registry, name: str) -> Lane:
    """Read the lane ``name``.

    :raises pytest.UsageError: also if there is no such lane.
    """
    lanes = load_lanes(rootpath, registry)
    if name not in lanes:
        _check_toml(rootpath)
        known = f"Configured: {', '.join(lanes)}." if lanes else "No lane is configured."
        raise pytest.UsageError(
            f"there is no lane {name!r}. {known} Lanes stand in {rootpath / 'pyproject.toml'} as "
            f"[tool.sglhw.lanes.NAME], or in sglhw.toml beside it as [lanes.NAME]."
        )
    return lanes[name]


def _check_toml(rootpath: Path) -> None:
    """Refuse a file that is broken, also where it does not seem to be about lanes."""
    path = rootpath / "pyproject.toml"
    if path.is_file():
        _parse(path.name, ("tool", "sglhw"), path.read_text(encoding="utf-8"))


class _Tables:
    """The lane tables of one file."""

    def __init__(self, name: str, prefix: tuple[str, ...], text: str, lanes: dict[str, Any]) -> None:
        self.name = name
        self.lanes = lanes
        self._prefix = prefix
        self._text = text

    def source(self, lane: str) -> str:
        """File, line (where the table has a header of its own) and name of a lane's table."""
        header = ".".join((*self._prefix, "lanes", lane))
        written = re.compile(rf"^\s*\[\s*{_key_path((*self._prefix, 'lanes', lane))}\s*\]", re.MULTILINE)
        match = written.search(self._text)
        line = f":{self._text.count(chr(10), 0, match.start()) + 1 + match.group().count(chr(10))}" if match else ""
        return f"{self.name}{line} [{header}]"

    def lane(self, name: str, registry: Registry) -> Lane:
        """Check a lane's table and make the lane of it."""
        source = self.source(name)
        table = self.lanes[name]
        if not isinstance(table, dict):
            raise pytest.UsageError(f"{source}: {table!r} is not a lane. Valid: a table with {', '.join(KEYS)}.")
        _check_keys(source, table)
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
        }
        values["platform"] = _platform(source, values["platform"], registry)
        if values["platform"] != "cpu":
            # A lane of an accelerator that has none would promise nothing.
            values.setdefault("min_devices", 1)
        lane = Lane(name=name, source=source, **values)
        _check_names(lane, registry)
        return lane


def _key_path(keys: tuple[str, ...]) -> str:
    return r"\s*\.\s*".join(rf"[\"']?{re.escape(key)}[\"']?" for key in keys)


def _read(path: Path, prefix: tuple[str, ...], rootpath: Path) -> _Tables | None:
    """Read the lane tables of a file; ``None`` if it has none (or there is no file)."""
    name = path.name if path.parent == rootpath else str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"{name} can't be read: {error}.") from error
    if not prefix or "sglhw" in text:  # spare others' projects the parsing
        return _parse(name, prefix, text)
    return None


def _parse(name: str, prefix: tuple[str, ...], text: str) -> _Tables | None:
    try:
        table: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise pytest.UsageError(f"{name} is not valid TOML: {error}.") from error
    for depth, key in enumerate(prefix, 1):
        if key not in table:
            return None
        table = table[key]
        if not isinstance(table, dict):
            where = ".".join(prefix[:depth])
            raise pytest.UsageError(
                f"{name}: {where} = {table!r} is not a table. Valid: [{'.'.join(prefix)}.lanes.NAME]."
            )
    _check_holder(f"{name} [{'.'.join(prefix)}]" if prefix else name, table)
    return _Tables(name, prefix, text, table["lanes"]) if "lanes" in table else None


def _check_holder(source: str, table: dict[str, Any]) -> None:
    unknown = [key for key in table if key != "lanes"]
    if unknown:
        raise pytest.UsageError(f"{source}: unknown key {unknown[0]!r}. Valid: lanes.")
    if not isinstance(table.get("lanes", {}), dict):
        raise pytest.UsageError(f"{source}: lanes = {table['lanes']!r} is not a table. Valid: [lanes.NAME] tables.")


def _check_keys(source: str, table: dict[str, Any]) -> None:
    for key, value in table.items():
        if key not in KEYS:
            raise pytest.UsageError(f"{source}: unknown key {key!r}. Valid: {', '.join(KEYS)}.")
        if not KEYS[key].accepts(value):
            raise pytest.UsageError(f"{source}: {key} = {value!r} is not valid. Valid: {KEYS[key].valid}.")
    if "platform" not in table:
        raise pytest.UsageError(f"{source}: the key 'platform' is missing. A lane promises at least its platform.")


def _platform(source: str, name: str, registry: Registry) -> str:
    for platform in registry.platforms.values():
        if name == platform.name or name in platform.aliases:
            return platform.name
    raise pytest.UsageError(f"{source}: platform = {name!r} is not known. Valid: {', '.join(registry.platforms)}.")


def _check_names(lane: Lane, registry: Registry) -> None:
    """Refuse names that nothing will ever match."""
    marks = mark_names(registry)
    _check_known(lane, "capabilities", lane.capabilities, registry.capabilities)
    _check_known(lane, "min_executed_by_mark", lane.min_executed_by_mark, marks)
    for name in lane.allow_skips:
        if name not in marks and name not in CODES and not _is_member(name, registry):
            raise pytest.UsageError(
                f"{lane.source}: allow_skips names {name!r}, which is neither a mark nor a reason code. Valid marks: "
                f"{', '.join(marks)}. Valid codes: {', '.join(CODES)}, and {', '.join(FAMILIES)} alone or as CODE:NAME."
            )
    _check_archs(lane, registry)


def _check_known(lane: Lane, key: str, names: Any, known: Any) -> None:
    for name in names:
        if name not in known:
            raise pytest.UsageError(
                f"{lane.source}: {key} names {name!r}, which is not known. Valid: {', '.join(known)}."
            )


def _check_archs(lane: Lane, registry: Registry) -> None:
    platform = registry.platforms[lane.platform]
    for arch in lane.archs:
        if not re.fullmatch(platform.arch_pattern or "", arch):
            valid = f"names like {platform.arch_example!r}" if platform.arch_example else "none: it has no archs"
            raise pytest.UsageError(
                f"{lane.source}: archs names {arch!r}, which is no arch of platform {lane.platform}. Valid: {valid}."
            )


def mark_names(registry: Registry) -> list[str]:
    """Name every mark that a test may carry in this run."""
    return [*platform_marks(registry.platforms), *(row.mark for row in registry.capabilities.values()), GENERAL]


def allowed_skips(lane: Lane, registry: Registry) -> frozenset[str]:
    """Give the marks and reason codes that may skip in ``lane``, each family with all its members."""
    families = [family for family in FAMILIES if family in lane.allow_skips]
    return frozenset(lane.allow_skips).union(f"{family}:{name}" for family in families for name in _of_family(registry))


def _is_member(code: str, registry: Registry) -> bool:
    family, colon, name = code.partition(":")
    return family in FAMILIES and (not colon or name in _of_family(registry))


def _of_family(registry: Registry) -> tuple[str, ...]:
    return (*registry.capabilities, "platform", "devices")
