"""Whether the values of a row are what its columns say: others may have written it, and it is believed everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from pytest_sglhw.record import Record


class Shape(NamedTuple):
    """What a column holds: ``fits`` says whether a value does, ``valid`` what would."""

    fits: Callable[[Any], bool]
    valid: str


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are(each: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, (tuple, list)) and all(map(each, value))


def _maps_to(each: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, Mapping) and all(map(_is_text, value)) and all(map(each, value.values()))


_TEXTS = _are(_is_text)

#: By the annotation of the column.
_SHAPES = {
    "str": Shape(_is_text, "a text"),
    "str | None": Shape(lambda value: value is None or _is_text(value), "a text or None"),
    "bool": Shape(lambda value: isinstance(value, bool), "True or False"),
    "tuple[str, ...]": Shape(_TEXTS, "a sequence of texts"),
    "tuple[tuple[str, str], ...]": Shape(
        _are(lambda pair: _TEXTS(pair) and len(pair) == 2), "a sequence of pairs of texts"
    ),
    "tuple[tuple[str, ...], ...]": Shape(_are(_TEXTS), "a sequence of sequences of texts"),
    "Mapping[str, str]": Shape(_maps_to(_is_text), "a mapping of text to text"),
    "Mapping[str, tuple[str, ...]]": Shape(_maps_to(_TEXTS), "a mapping of text to sequences of texts"),
}


def misfits(record: Record) -> Iterator[str]:
    """Say of each column whose value is not what it should be what it is and what is valid; records in it included."""
    for column, annotation in type(record).__annotations__.items():
        value, shape = getattr(record, column), _SHAPES.get(annotation)
        if shape is not None and not shape.fits(value):
            yield f"{column} is {value!r}. Valid: {shape.valid}."
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, Record):
                yield from (f"{column}: {misfit}" for misfit in misfits(inner))
