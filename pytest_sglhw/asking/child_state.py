"""What a stage of the probe's child may leave otherwise than it found it, to the cost of the next one.

Loaded by its place in the child, which imports nothing of this package.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
from typing import Any

#: Of these only what was there is compared: C extensions keep things of their own in the builtins.
_GROW = ("builtins", "torch")


def taken_down() -> dict[str, Any]:
    """Take down what the imports and checks of everybody else depend on; empty where that can't be done any more."""
    with contextlib.suppress(Exception):
        return {
            "sys.path": [*sys.path],
            "sys.meta_path": [*sys.meta_path],
            "sys.path_hooks": [*sys.path_hooks],
            "os.environ": dict(os.environ),
            "the current folder": os.getcwd(),
            "builtins": dict(vars(builtins)),
            "torch": {name: sys.modules[name] for name in ("torch",) if name in sys.modules},
        }
    return {}


def changed(before: dict[str, Any]) -> list[str]:
    """Name what is not as it was taken down."""
    after = taken_down()
    return [name for name in before if name not in after or not _same(name, before[name], after[name])]


def _same(name: str, old: Any, new: Any) -> bool:
    if name in _GROW:
        return all(new.get(key) is value for key, value in old.items())
    with contextlib.suppress(Exception):  # a finder may have an ``__eq__`` of its own
        return bool(old == new)
    return False
