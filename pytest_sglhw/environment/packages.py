"""What is installed, read off the file system: no import, no metadata parser."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_DIST_INFO = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?:dist-info|egg-info)")
_SUFFIXES = (".py", ".so", ".pyd")


def distributions(paths: Iterable[str]) -> dict[str, str]:
    """Return ``{normalised name: version}`` of what is installed on ``paths``; the first on the path wins."""
    found: dict[str, str] = {}
    for path in paths:
        try:
            names = os.listdir(path or ".")
        except OSError:  # zip files and paths that are not there
            continue
        for name in names:
            match = _DIST_INFO.fullmatch(name)
            if match:
                found.setdefault(normal_name(match["name"]), match["version"])
    return found


def normal_name(name: str) -> str:
    """One spelling of a distribution's name: lower case, with dashes."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_top_level(name: str) -> ModuleSpec | None:
    """Ask the finders for a top-level module, whatever stands in ``sys.modules`` under its name."""
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        if find_spec is None:
            continue
        try:
            spec: ModuleSpec | None = find_spec(name, None)
        except Exception:  # noqa: BLE001 (a foreign finder that fails has found nothing)
            continue
        if spec is not None:
            return spec
    return None


def where_is(module: str) -> str | None:
    """Return the file or directory of a module without importing anything, its parents included; else ``None``."""
    top, _, rest = module.partition(".")
    spec = find_top_level(top)
    if spec is None:
        return None
    if not rest:
        return spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    return next((hit for place in spec.submodule_search_locations or () if (hit := _below(place, rest))), None)


def _below(place: str, dotted: str) -> str | None:
    base = os.path.join(place, *dotted.split("."))
    if os.path.isdir(base):
        return base
    parent, stem = os.path.split(base)
    try:
        names = os.listdir(parent)
    except OSError:
        return None
    # An extension module carries a tag: kvcacheio.cpython-311-x86_64-linux-gnu.so
    return next((os.path.join(parent, n) for n in names if n.partition(".")[0] == stem and n.endswith(_SUFFIXES)), None)
