"""Which errors say that the device context is lost, wherever in an error they stand."""

from __future__ import annotations

import pytest

from pytest_sglhw.environment.sticky import is_sticky

LOST = RuntimeError("CUDA error: device-side assert triggered")


class GroupError(Exception):
    """What ``ExceptionGroup`` is to Python 3.11 and later."""

    def __init__(self, *exceptions):
        super().__init__("several")
        self.exceptions = exceptions


def caused_by(error):
    result = ValueError("could not load the pages")
    result.__cause__ = error
    return result


def circle():
    first, second = ValueError("one"), ValueError("two")
    first.__context__, second.__context__ = second, first
    return first


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (LOST, True),
        (caused_by(LOST), True),
        (GroupError(ValueError("harmless"), LOST), True),
        (GroupError(GroupError(caused_by(LOST))), True),
        (caused_by(GroupError(LOST)), True),
        (RuntimeError("CUDA out of memory"), False),
        (ValueError(str(LOST)), False),
        (GroupError(ValueError("harmless")), False),
        (circle(), False),
    ],
)
def test_a_lost_context_is_found_behind_what_was_raised(error, lost):
    """Causes and groups are followed; only the runtime's own errors count."""
    assert is_sticky(error) is lost
