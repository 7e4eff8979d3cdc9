"""``SGLHW_SHARD``: one part of a lane's run."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest


class Shard(NamedTuple):
    """Part ``part`` of ``parts``, counted from 1."""

    part: int
    parts: int

    def __str__(self) -> str:
        return f"{self.part}/{self.parts}"


def read_shard(text: str | None) -> Shard | None:
    """Read ``"2/4"``.

    :raises pytest.UsageError: anything else; then the minima of the lane would be checked by nobody.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    shard = Shard(int(match[1]), int(match[2])) if match else None
    if shard is None or not 1 <= shard.part <= shard.parts:
        raise pytest.UsageError(f"SGLHW_SHARD is {text!r}. Valid: PART/PARTS, such as 2/4.")
    return shard
