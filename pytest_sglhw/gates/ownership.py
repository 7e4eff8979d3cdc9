"""Whose a mark name is: ours, the project's, or a slip of the pen.

Names like ``cpu_only`` are common. A name that the project registers itself in ``markers`` is the project's, unless it
opts in to ours: by ``-p sglhw``, by any setting of ours, or by an import of ``pytest_sglhw`` in a ``conftest.py`` (for
everything below it) or in a test module (for that module).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import pytest

from pytest_sglhw.gates import GENERAL, ISOLATED, KNOWN_GAP, ONLY, REQUIRES, marker_name

Owner = Literal["ours", "slip", "foreign"]

_IMPORT = rb"(?m)^[ \t]*(?:from|import)[ \t]+pytest_sglhw\b"


class Ownership:
    """Decide for each mark name, and for a contested one for each file, whose it is."""

    def __init__(self, config: pytest.Config, own_lines: Iterable[str], opted_in: bool) -> None:
        self._config = config
        self._own_lines = frozenset(own_lines)
        self._opted_in = opted_in
        self._own_names = {marker_name(line) for line in self._own_lines}
        self._seen = -1
        self._registered: frozenset[str] = frozenset()
        self._imports: dict[Path, bool] = {}
        self._known: dict[tuple[str, bool], Owner] = {}

    def add(self, line: str) -> None:
        """Take one more name of ours (of a row that somebody registered)."""
        self._own_lines |= {line}
        self._own_names.add(marker_name(line))
        self._seen = -1
        self._known.clear()

    def owner(self, name: str, node: pytest.Collector | pytest.Item) -> Owner:
        """Say whose ``name`` is on ``node``: ``slip`` for a name that can only be meant as one of ours."""
        self._refresh()
        ours_wins = name not in self._registered or self._opted_in or self._imported_around(node)
        if not ours_wins:
            return "foreign"
        strict = name.startswith(REQUIRES) and name not in self._registered
        strict = strict and (self._opted_in or self._imported_around(node))
        key = (name, strict)
        if key not in self._known:
            self._known[key] = "ours" if name in self._own_names else self._slip(name, strict)
        return self._known[key]

    def _slip(self, name: str, strict: bool) -> Owner:
        return "slip" if strict or near_miss(name, self._own_names) else "foreign"

    def is_contested(self, name: str) -> bool:
        """Say whether the owner of ``name`` may differ from file to file."""
        return name in self._registered

    def never_ours(self, name: str) -> bool:
        """Say whether ``name`` is foreign in every file, whatever that file imports."""
        return name not in self._own_names and not name.startswith(REQUIRES) and not near_miss(name, self._own_names)

    def nearest(self, name: str) -> str | None:
        """Give the name of ours that ``name`` is a slip of, if there is a likely one."""
        return near_miss(name, self._own_names)

    def _refresh(self) -> None:
        lines = self._config.getini("markers")
        if len(lines) != self._seen:
            self._seen = len(lines)
            self._registered = frozenset(marker_name(line) for line in lines if line not in self._own_lines)

    def _imported_around(self, node: pytest.Collector | pytest.Item) -> bool:
        return self._imports_us(node.path) or any(
            path.parent in node.path.parents and self._imports_us(path) for path in self._conftests()
        )

    def _conftests(self) -> list[Path]:
        files = (getattr(plugin, "__file__", None) for plugin in self._config.pluginmanager.get_plugins())
        return [Path(file) for file in files if file and file.endswith("conftest.py")]

    def _imports_us(self, path: Path) -> bool:
        found = self._imports.get(path)
        if found is None:
            try:
                text = path.read_bytes()
                found = b"pytest_sglhw" in text and re.search(_IMPORT, text) is not None
            except OSError:
                found = False
            self._imports[path] = found
        return found


def near_miss(name: str, names: Iterable[str]) -> str | None:
    """Give the name that ``name`` is a near miss of: never for a name that merely has the same shape.

    The part that all names of a kind share says nothing, so ``requires_docker`` or ``read_only`` is compared by its
    own part alone; ``requires_kvcachio``, ``cdua_only`` and ``cuda_onyl`` are near misses.
    """
    lowered = name.lower()
    if lowered in names:
        return lowered
    if lowered.startswith(REQUIRES):
        return _closest(lowered, [n for n in names if n.startswith(REQUIRES)], REQUIRES, "")
    if lowered.endswith(ONLY):
        return _closest(lowered, [n for n in names if n.endswith(ONLY)], "", ONLY)
    shaped = [n for n in names if n.startswith(REQUIRES) or n.endswith(ONLY)]
    return _match(lowered, shaped, 0.85) or _match(lowered, (GENERAL, KNOWN_GAP, ISOLATED), 0.8)


def _closest(name: str, names: list[str], prefix: str, suffix: str) -> str | None:
    stems = {n.removeprefix(prefix).removesuffix(suffix): n for n in names}
    stem = name.removeprefix(prefix).removesuffix(suffix)
    swapped = next((s for s in stems if sorted(s) == sorted(stem)), None)
    close = swapped or _match(stem, stems, 0.8 if len(stem) < 4 else 0.85)
    return stems[close] if close else None


def _match(name: str, names: Iterable[str], cutoff: float) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(name, list(names), 1, cutoff)), None)
