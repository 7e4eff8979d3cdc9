"""Read an environment record strictly: a complaint names the file, the key, the value and what is valid."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pytest_sglhw.environment.records import (
    PROBE_STATUSES,
    SCHEMA,
    STATES,
    CapabilityState,
    Device,
    Environment,
    ProbeOutcome,
)
from pytest_sglhw.errors import RecordError
from pytest_sglhw.record import Record, encodable

T = TypeVar("T")
R = TypeVar("R", bound=Record)

REQUIRED = ("schema", "platform", "device_type", "devices", "capabilities")
_REMEDY = "Write it again with: sglhw doctor --json"


def load_json(path: Path) -> Any:
    """Return the JSON document of a file.

    :raises RecordError: the file can't be read, or is not one whole JSON document.
    """
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RecordError(
            f"{path}: {error.strerror or error}. Valid: a file that 'sglhw doctor --json' wrote."
        ) from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: not a whole JSON document ({error}); it may be truncated. {_REMEDY}") from error


def read_environment(data: Any, where: str) -> Environment:
    """Build an :class:`Environment` from plain data; see :meth:`Environment.from_json`."""
    reader = _Reader(where)
    record = reader.mapping("the record", data)
    for key in REQUIRED:
        if key not in record:
            raise RecordError(f"{where}: no {key!r}. An environment record has {', '.join(REQUIRED)}. {_REMEDY}")
    reader.schema(record["schema"])
    values = {key: read(reader, key, record[key]) for key, read in _READERS.items() if key in record}
    return encodable(Environment(**values))


class _Reader:
    """Checks that complain with the file and the key."""

    def __init__(self, where: str) -> None:
        self.where = where

    def wrong(self, key: str, value: Any, valid: str) -> RecordError:
        shown = repr(value)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        return RecordError(f"{self.where}: {key} is {shown}. Valid: {valid}. {_REMEDY}")

    def schema(self, value: Any) -> None:
        major = SCHEMA.partition(".")[0]
        if not isinstance(value, str) or value.partition(".")[0] != major:
            raise self.wrong("schema", value, f"a schema {major}.x, which is what this release reads")

    def mapping(self, key: str, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self.wrong(key, value, "an object")
        return value

    def text(self, key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.wrong(key, value, "a string")
        return value

    def optional_text(self, key: str, value: Any) -> str | None:
        return None if value is None else self.text(key, value)

    def name(self, key: str, value: Any) -> str:
        if not self.text(key, value):
            raise self.wrong(key, value, "a name")
        return str(value)

    def whole(self, key: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.wrong(key, value, "a whole number of at least 0")
        return value

    def optional_whole(self, key: str, value: Any) -> int | None:
        return None if value is None else self.whole(key, value)

    def seconds(self, key: str, value: Any) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < float("inf"):
            raise self.wrong(key, value, "a number of seconds of at least 0")
        return float(value)

    def choice(self, key: str, value: Any, choices: tuple[str, ...]) -> Any:
        if value not in choices:
            raise self.wrong(key, value, ", ".join(choices))
        return value

    def state(self, key: str, value: Any) -> Any:
        return self.choice(key, value, STATES)

    def status(self, key: str, value: Any) -> Any:
        return self.choice(key, value, PROBE_STATUSES)

    def free(self, key: str, value: Any) -> Mapping[str, Any]:
        return dict(self.mapping(key, value))

    def texts(self, key: str, value: Any) -> tuple[str, ...]:
        return self.items(key, value, self.text)

    def items(self, key: str, value: Any, read: Callable[[str, Any], T]) -> tuple[T, ...]:
        if not isinstance(value, (list, tuple)):
            raise self.wrong(key, value, "a list")
        return tuple(read(f"{key}[{index}]", item) for index, item in enumerate(value))

    def table(self, key: str, value: Any, read: Callable[[str, Any], T]) -> dict[str, T]:
        return {name: read(f"{key}.{name}", item) for name, item in self.mapping(key, value).items()}

    def text_table(self, key: str, value: Any) -> dict[str, str]:
        return self.table(key, value, self.text)

    def record(self, kind: type[R], key: str, value: Any) -> R:
        """Build a flat record; a field without a reader of its own is a string."""
        given = self.mapping(key, value)
        known = set(kind._fields)
        readers = {name: getattr(self, _FIELDS.get(name, "text")) for name in known}
        try:
            return kind(**{name: readers[name](f"{key}.{name}", given[name]) for name in given if name in known})
        except TypeError as error:  # a field without a default is not there
            raise self.wrong(key, value, f"an object with {', '.join(kind._fields)}") from error

    def device(self, key: str, value: Any) -> Device:
        return self.record(Device, key, value)

    def capability(self, key: str, value: Any) -> CapabilityState:
        return self.record(CapabilityState, key, value)

    def kernels(self, key: str, value: Any) -> dict[str, CapabilityState]:
        return self.table(key, value, self.capability)


#: Fields of the flat records that are not plain strings.
_FIELDS = {
    "index": "whole",
    "arch": "optional_text",
    "memory": "optional_whole",
    "free_memory": "optional_whole",
    "uuid": "optional_text",
    "state": "state",
    "evidence": "texts",
    "status": "status",
    "seconds": "seconds",
}

_READERS: dict[str, Callable[[_Reader, str, Any], Any]] = {
    "platform": _Reader.name,
    "device_type": _Reader.name,
    "devices": lambda reader, key, value: reader.items(key, value, reader.device),
    "reason": _Reader.text,
    "build": _Reader.optional_text,
    "torch": _Reader.free,
    "packages": _Reader.text_table,
    "masks": _Reader.text_table,
    "versions": _Reader.text_table,
    "capabilities": lambda reader, key, value: reader.table(key, value, reader.capability),
    "kernels": lambda reader, key, value: reader.table(key, value, reader.kernels),
    "probe": lambda reader, key, value: reader.record(ProbeOutcome, key, value),
    "disagreements": _Reader.texts,
    "fake": _Reader.optional_text,
    "withheld": _Reader.whole,
}
