"""What is installed, read off the file system: no import, no metadata parser, and none of their price."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from importlib.metadata import Distribution, EntryPoint

ENTRY_POINT_GROUP = "sglhw"

#: Python's own folders, where nobody installs anything.
_STANDARD = (os.path.dirname(os.__file__), os.path.join(os.path.dirname(os.__file__), "lib-dynload"))


def entry_points(group: str) -> Iterable[EntryPoint]:
    """Return the entry points of ``group``.

    ``importlib.metadata`` parses the metadata of every distribution, which takes longer than everything else in an idle
    run. It is asked only where a distribution names the group, or where something may be installed in a way that a look
    at folders does not show.
    """
    if not may_have_entry_points(group):
        return ()
    from importlib.metadata import entry_points as of_all

    try:
        return of_all(group=group)
    except Exception as error:
        from pytest_sglhw.errors import RegistryError

        raise RegistryError(f"{_unreadable()} can't be read: {type(error).__name__}: {error}") from error


def may_have_entry_points(group: str) -> bool:
    """Say whether something names ``group``, or may be installed in a way that a look at folders does not show."""
    if any(finder is not PathFinder and hasattr(finder, "find_distributions") for finder in sys.meta_path):
        return True
    # Whatever else stands in the path is passed over by Python's own imports too.
    folders = dict.fromkeys(folder for folder in sys.path if isinstance(folder, str) and folder not in _STANDARD)
    return any(_may_name(group, folder) for folder in folders)


def name_of(distribution: Distribution | None) -> str:
    """Name a distribution; not by its ``name``, since metadata may lack it, of which newer Pythons warn."""
    names = distribution.metadata.get_all("Name") if distribution else None
    return str(names[0]) if names else "an unknown distribution"


def _unreadable() -> str:
    from importlib.metadata import distributions

    for distribution in distributions():
        try:
            _ = distribution.entry_points
        except Exception:  # noqa: BLE001 (whatever a parser raises for rubbish)
            return f"the entry points of {name_of(distribution)} in {distribution.locate_file('')}"
    return "the entry points of what is installed"


def _may_name(group: str, folder: str) -> bool:
    try:
        names = os.listdir(folder or ".")
    except NotADirectoryError:  # a zip file, in which anything may be
        return True
    except OSError:
        return False
    section = f"[{group}]".encode()
    found = [name for name in names if name.lower().endswith((".dist-info", "egg-info"))]
    return any(section in _read(f"{folder or '.'}/{name}/entry_points.txt") for name in found)


#: The entry points of a distribution are seldom longer.
_SHORT = 1 << 13


def _read(path: str) -> bytes:
    # Every idle run asks for one of each distribution, without the layers of open(). Most have none, and an error costs
    # four times as much as the question.
    if not os.access(path, os.F_OK):
        return b""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        text = os.read(descriptor, _SHORT)
        return text if len(text) < _SHORT else text + os.read(descriptor, os.fstat(descriptor).st_size)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def distributions(paths: Iterable[object]) -> dict[str, str]:
    """Return ``{normalised name: version}`` of what is installed on ``paths``; the first on the path wins."""
    found: dict[str, str] = {}
    for path in paths:
        if not isinstance(path, str):
            continue
        try:
            names = os.listdir(path or ".")
        except OSError:  # zip files and paths that are not there
            continue
        for name in names:
            stem, _, kind = name.rpartition(".")
            if kind in ("dist-info", "egg-info"):
                project, _, version = _without_python(stem).rpartition("-")
                if project:
                    found.setdefault(normal_name(project), version)
    return found


def _without_python(stem: str) -> str:
    """Cut the Python version off the name of an egg: ``name-1.0-py3.11``."""
    before, dash, tag = stem.rpartition("-py")
    return before if dash and tag.replace(".", "").isdigit() else stem


def normal_name(name: str) -> str:
    """One spelling of a distribution's name: lower case, with single dashes."""
    return "-".join(filter(None, name.lower().replace("_", "-").replace(".", "-").split("-")))


def find_module(name: str, path: Sequence[str] | None = None) -> ModuleSpec | None:
    """Ask the finders for a module in the folders ``path`` of its parent, whatever stands in ``sys.modules``.

    Top-level modules have no parent: ``None``.
    """
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        # pytest's own rewrites what the others find, and takes longer than all of them.
        if find_spec is None or type(finder).__module__ == "_pytest.assertion.rewrite":
            continue
        try:
            spec: ModuleSpec | None = find_spec(name, path)
        except Exception:  # noqa: BLE001 (a foreign finder that fails has found nothing)
            continue
        if spec is not None:
            return spec
    return None


def where_is(module: str) -> str | None:
    """Return where a module is (its file, folder, or who would make it) without importing anything; else ``None``."""
    path: Sequence[str] | None = None
    place, name = None, ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = find_module(name, path)
        if spec is not None:
            place, path = _place(spec), list(spec.submodule_search_locations or ())
            continue
        # Of a folder without __init__.py below another one the finders say nothing until that one is imported.
        place = next((folder for above in path or () if os.path.isdir(folder := os.path.join(above, part))), None)
        if place is None:
            return None
        path = [place]
    return place


def is_folder(place: str) -> bool:
    """Say whether a place that :func:`where_is` names is a mere folder, without an ``__init__.py``: no package."""
    return os.path.isdir(place)


def _place(spec: ModuleSpec) -> str:
    folder = next(iter(spec.submodule_search_locations or ()), None)
    return spec.origin or folder or f"{type(spec.loader).__module__}.{type(spec.loader).__qualname__}"
