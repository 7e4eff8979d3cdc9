"""Entry points of what is installed, without the price of reading everybody's metadata."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from pytest_sglhw.errors import RegistryError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def entry_points(group: str) -> Iterable[EntryPoint]:
    """Return the entry points of ``group``.

    ``importlib.metadata`` parses the metadata of every distribution, which takes longer than everything else in an idle
    run. It is asked only where a distribution names the group, or where something may be installed in a way that a look
    at folders does not show.
    """
    # Whatever else stands in the path is passed over by Python's own imports too.
    path = [folder for folder in sys.path if isinstance(folder, str)]
    if not (_hidden_from_folders(path) or any(_names(group, folder) for folder in path)):
        return ()
    from importlib.metadata import entry_points as of_all

    try:
        return of_all(group=group)
    except Exception as error:
        raise RegistryError(f"{_unreadable()} can't be read: {type(error).__name__}: {error}") from error


def _unreadable() -> str:
    from importlib.metadata import distributions

    for distribution in distributions():
        try:
            _ = distribution.entry_points
        except Exception:  # noqa: BLE001 (whatever a parser raises for rubbish)
            return f"the entry points of {distribution.metadata['Name']} in {distribution.locate_file('')}"
    return "the entry points of what is installed"


def _hidden_from_folders(path: Iterable[str]) -> bool:
    finders = (finder for finder in sys.meta_path if finder is not PathFinder)
    return any(hasattr(finder, "find_distributions") for finder in finders) or any(map(os.path.isfile, path))


def _names(group: str, folder: str) -> bool:
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return False
    section = f"[{group}]".encode()
    found = (name for name in names if name.lower().endswith((".dist-info", ".egg-info", "egg-info")))
    return any(section in _read(f"{folder or '.'}/{name}/entry_points.txt") for name in found)


def _read(path: str) -> bytes:
    # Every idle run reads one for each distribution, so without the layers of open().
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # most distributions have no entry points
        return b""
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
