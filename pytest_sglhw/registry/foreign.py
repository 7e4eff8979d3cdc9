"""Rows that installed packages add by entry points: asked for in a child process, since their code may do anything.

A module of kernels that is imported for its rows may hang on a driver, crash, or open a context on a device; and every
run asks for them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from pytest_sglhw.asking.asker import Answer, Asker
from pytest_sglhw.errors import RegistryError
from pytest_sglhw.registry.installed import name_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from pytest_sglhw.sharing import SharedFolder

#: ``platforms``, ``capabilities`` and ``providers`` -> rows of plain data.
Rows = dict[str, list[Any]]

#: What was asked for once in this process, by search path and entry points: a conftest may ask before the run does.
_KNOWN: dict[tuple[str, ...], list[tuple[str, Rows]]] = {}

#: By this name the rows are among what the processes of a run share.
_SHARED = "rows"


def foreign_rows(
    points: Sequence[EntryPoint], timeout: float, shared: SharedFolder | None = None
) -> list[tuple[str, Rows]]:
    """Return the origin of each entry point and the rows that it adds.

    :param timeout: seconds that each of them may take.
    :param shared: where the processes of a run share the rows: the first that needs them asks, the others read.
    :raises RegistryError: one of them fails, hangs or crashes; names it.
    """
    whose = [text for point in points for text in (_origin(point), point.value)]
    key = (*map(str, sys.path), *whose)
    with shared.locked(_SHARED) if shared else nullcontext():
        told = _told(shared, whose)
        known = _KNOWN.get(key) or told
        if known is None:
            with Asker(timeout) as asker:
                known = [(_origin(point), _asked(asker, point)) for point in points]
        if shared and told is None:
            shared.write(_SHARED, {"whose": whose, "rows": known})
    _KNOWN[key] = known
    return known


def _told(shared: SharedFolder | None, whose: Sequence[str]) -> list[tuple[str, Rows]] | None:
    """Read what another process of the run was told by the same entry points."""
    told = shared.read(_SHARED) if shared else None
    if not isinstance(told, dict) or told.get("whose") != whose:
        return None
    return list(_frozen(told["rows"]))


def _origin(point: EntryPoint) -> str:
    return f"entry point {point.name!r} of {name_of(point.dist)}"


def _asked(asker: Asker, point: EntryPoint) -> Rows:
    origin = _origin(point)
    who = f"{origin} ({point.value})"
    if not point.pattern.match(point.value):
        raise RegistryError(f"{who} names no function. Valid: module:function.")
    answer = asker.ask(
        f"rows of {origin}",
        "rows",
        guest=point.value,
        who=who,
        origin=origin,
        module=point.module,
        attribute=point.attr,
    )
    if not answer.ok:
        raise RegistryError(f"{who} {_went(answer)}")
    if "refused" in answer.value:
        raise RegistryError(answer.value["refused"])
    rows: Rows = _frozen(answer.value)
    return rows


def _went(answer: Answer) -> str:
    if not answer.fault:
        return f"adds what is no plain data: {answer.error}"
    places = (line.strip() for line in answer.output.splitlines())
    place = next((f" (at {line})" for line in places if line.startswith("File ")), "")
    return f"{answer.fault}: {answer.detail}{place}. {_NO_KERNELS}"


_NO_KERNELS = (
    "Every pytest run registers rows: move the function to a module that imports no kernels, e.g."
    " my_kernels_sglhw:register; a row names modules and checks as text."
)


def _frozen(value: Any) -> Any:
    """Turn lists, which is what JSON makes of the tuples of a row, back into tuples."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return {key: _frozen(item) for key, item in value.items()} if isinstance(value, dict) else value
