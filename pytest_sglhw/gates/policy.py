"""What a lane tells the gates: its word on skips."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_sglhw.record import Record


class LanePolicy(Record):
    """The active lane, as far as gates ask about it.

    ``allow_skips`` holds mark names and reason codes; ``vacuous`` is ``off``, ``warn`` or ``fail``; ``promises`` says
    whether the lane promises a capability.
    """

    name: str
    allow_skips: frozenset[str] = frozenset()
    vacuous: str = "off"
    promises: Callable[[str], bool] = lambda _: False

    def allows(self, mark: str, code: str) -> bool:
        """Say whether a test with this mark may skip here for this reason."""
        return mark in self.allow_skips or code in self.allow_skips


LANE_POLICY = pytest.StashKey[LanePolicy]()
