"""Frozen records whose classes cost almost nothing to define.

Every pytest run that loads the plugin pays for the classes it defines. A frozen dataclass with slots costs about 7
million instructions (2 ms), since its methods are compiled from text; a ``NamedTuple`` with annotated fields costs 1.5
million; a :class:`Record` 0.1 million. A type checker takes it for a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Give a decorator that does nothing: only a type checker asks what it says."""
        return lambda cls: cls


T = TypeVar("T", bound="Record")


@dataclass_transform(frozen_default=True)
class Record:
    """Base of records: the annotations of a class are its fields, in their order.

    The default of a field is shared by all records of its class, so it must be one that nobody changes.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _known: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(cls.__annotations__)
        cls._known = frozenset(cls._fields)
        cls._required = cls._known.difference(cls.__dict__)

    def __init__(self, *values: Any, **named: Any) -> None:
        given = self.__dict__
        given.update(zip(self._fields, values), **named)  # noqa: B905 (too many values are refused below)
        fits = len(given) == len(values) + len(named) and self._known.issuperset(given)
        if not fits or not self._required.issubset(given):
            raise TypeError(f"{type(self).__name__}: {_refused(self, values, named)}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} can't be set. Make a changed copy: replace()")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} can't be deleted")

    def __eq__(self, other: object) -> bool:
        return _values(self) == _values(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *_values(self)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"


def replace(record: T, **changes: Any) -> T:
    """Return a copy of ``record`` with some fields changed.

    :raises TypeError: a name that is no field.
    """
    return type(record)(**{name: getattr(record, name) for name in record._fields} | changes)


def as_dict(value: Any) -> Any:
    """Return ``value`` with every record in it, at any depth of mappings and sequences, as a dict of its fields."""
    if isinstance(value, Record):
        return {name: as_dict(getattr(value, name)) for name in value._fields}
    if isinstance(value, dict):
        return {key: as_dict(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(map(as_dict, value))
    return value


def encodable(value: T) -> T:
    """Return a copy of a record whose every text can be written and shown: anything else in it becomes an escape.

    A variable of the environment or what a driver says may be any bytes; Python keeps them as surrogates, which neither
    a report nor the way to a worker can carry. What a terminal takes for a command stays out of every reason as well.
    """
    return replace(value, **{name: _encodable(getattr(value, name)) for name in value._fields})


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isprintable() else _escaped(value, "\n\t")
    if isinstance(value, Record):
        return encodable(value)
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return type(value)(map(_encodable, value)) if isinstance(value, (tuple, list)) else value


def printable(text: str) -> str:
    """Return ``text`` on one line, with what could move the cursor, start a command or turn the line around escaped.

    A CI runner reads commands from the log: ``##[...]`` anywhere in a line and ``::...`` at its start.
    """
    text = text.replace("##[", "#\\x23[")
    if text.lstrip().startswith("::"):
        text = text.replace("::", "\\x3a:", 1)
    return text if text.isprintable() else _escaped(text)


def _escaped(text: str, kept: str = "") -> str:
    return "".join(char if char.isprintable() or char in kept else ascii(char)[1:-1] for char in text)


def _values(record: Any) -> tuple[Any, ...]:
    return tuple([getattr(record, name) for name in record._fields])


def _refused(record: Record, values: tuple[Any, ...], named: Iterable[str]) -> str:
    fields = record._fields
    twice = [name for name in fields[: len(values)] if name in named]
    unexpected = [name for name in named if name not in fields]
    missing = [name for name in fields if name in record._required and name not in record.__dict__]
    if unexpected:
        what = f"got an unexpected {unexpected[0]!r}"
    elif twice:
        what = f"got {twice[0]!r} twice"
    elif missing:
        what = f"{missing[0]!r} is missing"
    else:
        what = f"got {len(values)} values"
    return f"{what}. Valid: {', '.join(fields)}."
