"""``SGLHW_SHARD``: one part of a lane's run."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest


class Shard(NamedTuple):
    """Part ``index`` of ``count``, counted from 1."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def read_shard(text: str | None) -> Shard | None:
    """Read ``"2/4"``.

    :raises pytest.UsageError: anything else; then the minima of the lane would be checked by nobody.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    shard = Shard(int(match[1]), int(match[2])) if match else None
    if shard is None or not 1 <= shard.index <= shard.count:
        raise pytest.UsageError(f"SGLHW_SHARD is {text!r}. Valid: PART/PARTS, such as 2/4.")
    return shard
