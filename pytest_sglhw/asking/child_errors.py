"""What the probe's child says of an error, however hostile the error is.

Loaded by its place in the child, which imports nothing of this package.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from typing import Any

#: Of a longer message the beginning and the end are kept.
_KEPT = 400
_LONGEST_NAME = 255
_NO_LIBRARY = ": cannot open shared object file"


def told(error: BaseException) -> str:
    """Class and message of an error on one line, however hostile its ``__str__``."""
    text = " ".join(_text(error).split())
    shown = text if len(text) <= 2 * _KEPT else f"{text[:_KEPT]} ... {text[-_KEPT:]}"
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as other:  # noqa: BLE001 (SystemExit too: the message of an error ends nobody)
        return f"(its message raised {type(other).__name__})"


def missing_libraries(error: BaseException | None) -> list[str]:
    """Name the shared libraries that an error, or what it came from, could not open."""
    found: dict[str, None] = {}
    seen: set[int] = set()
    while error is not None and id(error) not in seen and len(found) < 8:
        seen.add(id(error))
        # The text may be long: only the end of what stands before the words can be a name.
        for before in _text(error).split(_NO_LIBRARY)[:-1]:
            name = re.split(r"[^\w.+-]", before[-_LONGEST_NAME:])[-1]
            found |= {name: None} if re.search(r".\.so(\.|$)", name) else {}
        error = error.__cause__ or error.__context__
    return list(found)


def absent(error: BaseException) -> str:
    """Name the top-level package that an import looked for and that no finder finds, if that is what the error is.

    The text of the error does not tell: a package that is there may say the same of itself.
    """
    name = peek(error, "name") if isinstance(error, ModuleNotFoundError) else None
    top = name.partition(".")[0] if isinstance(name, str) else ""
    with contextlib.suppress(BaseException):
        return "" if not top or importlib.util.find_spec(top) else top
    return ""


def peek(owner: Any, name: str) -> Any:
    """Return an attribute, ``None`` where it isn't there or can't be had: a module may have a ``__getattr__``."""
    try:
        return getattr(owner, name, None)
    except Exception:  # noqa: BLE001
        return None
