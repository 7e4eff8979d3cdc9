"""What other parts tell the gates: the lane's word on skips, and what to do when something of theirs is met."""

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

#: The first test that our marks let run on an accelerator.
DEVICE_TEST = "device test"

#: What is met -> what its part does then, once: a part that most runs never need costs them nothing.
ON_FIRST = pytest.StashKey[dict[str, Callable[[], None]]]()


def met(config: pytest.Config, what: str) -> None:
    """Call, the first time, what the part that waits for ``what`` left to be called."""
    waiting = config.stash.get(ON_FIRST, {}).pop(what, None)
    if waiting is not None:
        waiting()
