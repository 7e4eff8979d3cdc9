"""Keep torch out of this process while somebody's rows are registered.

Every run registers rows, in a child process: an entry point that imports torch would cost each of them the seconds that
this takes, and hang or crash them all with a wedged driver.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class TorchRefusedError(BaseException):
    """An import of torch was refused; no ``Exception``, which ``try: import torch`` would pass over."""


@contextlib.contextmanager
def without_torch() -> Iterator[None]:
    """Refuse to load torch in this thread; one that is loaded already is left alone, and ``find_spec`` answers as ever.

    :raises TorchRefusedError: it was asked for, also where somebody passed over the refusal; names the place.
    """
    refusing = _Refusing()
    sys.meta_path.insert(0, refusing)
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if refusing.place:
            raise TorchRefusedError(refusing.place) from error
        raise
    finally:
        sys.meta_path.remove(refusing)
    if refusing.place:
        raise TorchRefusedError(refusing.place)


class _Refusing:
    """A finder that finds torch as the finders behind it do, and a loader that does not load it."""

    def __init__(self) -> None:
        self.place = ""
        """Where torch was imported first: file and line."""
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find torch, and nothing else."""
        if name != "torch" or threading.get_ident() != self._thread:
            return None
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None:
            spec.loader = self  # type: ignore[assignment]
        return spec

    def create_module(self, _: ModuleSpec) -> ModuleType | None:
        """:raises TorchRefusedError: always."""
        self.place = self.place or _importing_place()
        raise TorchRefusedError(self.place)

    def exec_module(self, module: ModuleType) -> None:
        """Have the method without which a loader is none; the import does not come this far."""
        raise AssertionError(module)


def _importing_place() -> str:
    frame = sys._getframe(2)
    while "importlib" in frame.f_code.co_filename and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}"
