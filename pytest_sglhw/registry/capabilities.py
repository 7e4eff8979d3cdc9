"""What an environment can do: one row per capability, from which its mark, probe, expected error and docs come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_sglhw.record import Record


class Signal(Record):
    """The documented refusal of a capability where it is not supported.

    ``exception`` is the dotted name of the class (``"RuntimeError"``, ``"UserWarning"``), ``match`` a regular
    expression searched in the message. One pattern holds for every release that matters. A ``warning`` signal does
    not stop the code, so a mark that demands it must name it (``raises=UserWarning``).
    """

    exception: str
    match: str
    warning: bool = False


class Ladder(Record):
    """How to find out whether a capability is really there: the rungs above "the platform supports it".

    Each rung is asked in the probe's child process, in this order; a missing one is skipped.

    * ``distributions``: names under which the package is distributed, any of which will do;
    * ``brought_by``: names under which ``module`` is distributed, where those above are of what ``needs`` it;
    * ``needs``: other modules that have to be there and import as well (SGLang's own, under kernels of somebody else);
    * ``module``: the module to find and import (looked up without importing its parent first);
    * ``names``: public names that it must have, for a module without operators: an empty package imports too;
    * ``ops``: ``namespace::name`` of native operators that must have a kernel for the platform's dispatch key;
    * ``check``: ``"module:function"``, called without arguments in the child: a tiny real use. It returns ``True``
      where the capability works and ``False`` where it is not here (numpy's and torch's will do, and 1 and 0), and
      raises where it is broken. Any other answer, ``None`` included, is none: the capability is broken.
    """

    distributions: tuple[str, ...] = ()
    module: str | None = None
    ops: tuple[str, ...] = ()
    check: str | None = None
    needs: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    brought_by: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        """Every module that has to import, in the order in which they are asked for."""
        return (*self.needs, *((self.module,) if self.module else ()))


class Capability(Record):
    """One capability. ``platforms`` maps a platform to the SGLang release since which it counts ("" = always)."""

    name: str
    summary: str
    platforms: Mapping[str, str]
    archs: Mapping[str, tuple[str, ...]] = {}
    """Archs that are accepted, per platform; a platform that is not named accepts every arch."""
    probe: Ladder | None = None
    signals: tuple[Signal, ...] = ()
    source: str = ""
    origin: str = "built in"

    @property
    def mark(self) -> str:
        """Name of the mark that requires it."""
        return f"requires_{self.name}"


def capability_from_row(row: Mapping[str, Any], origin: str) -> Capability:
    """Build a capability from a row of plain data (what the built-in table and downstream projects write)."""
    data = dict(row)
    probe = data.pop("probe", None)
    signals = tuple(s if isinstance(s, Signal) else Signal(**s) for s in data.pop("signals", ()))
    ladder = probe if isinstance(probe, Ladder) or probe is None else Ladder(**probe)
    return Capability(**data, probe=ladder, signals=signals, origin=origin)
