"""The Triton kernel of the smoke check; a module of its own because Triton reads its source and its globals."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


def _add_one(pointer: Any, size: tl.constexpr) -> None:
    offsets = pointer + tl.arange(0, size)
    tl.store(offsets, tl.load(offsets) + 1)


add_one = triton.jit(_add_one)
