"""The swap-in rule by hand."""

from __future__ import annotations

from pytest_sglhw.conformance.families.swap_in import Outcome, Request, swap_in


def test_short_sequence_loads_nothing():
    """Up to as many tokens as hot slots, token ``t`` stands in slot ``t`` and the order stays."""
    request = Request(3, (2, 0, -1), (0, 1, 2, -1), (3, 1, 0, 2))
    assert swap_in(request) == Outcome((2, 0, -1), (0, 1, 2, -1), (3, 1, 0, 2), ())


def test_hit_moves_to_the_back():
    """A resident token is not loaded; its slot becomes the most recently used."""
    request = Request(9, (5,), (5, 6, 7, 1), (0, 1, 2, 3))
    assert swap_in(request) == Outcome((0,), (5, 6, 7, 1), (1, 2, 3, 0), ())


def test_misses_take_the_oldest_slots_that_no_hit_occupies():
    """Loaded tokens stand behind what was left alone and before the hits."""
    request = Request(9, (3, 5, 2), (5, 6, 7, 1), (0, 1, 2, 3))
    assert swap_in(request) == Outcome((1, 0, 2), (5, 3, 2, 1), (3, 1, 2, 0), ((3, 1), (2, 2)))


def test_newest_token_has_its_own_slot():
    """It is a hit in the slot behind the hot ones, even where a hot slot holds the same number."""
    request = Request(9, (8, 4), (8, 6, 7, 1), (0, 1, 2, 3))
    assert swap_in(request) == Outcome((4, 0), (4, 6, 7, 1), (1, 2, 3, 0), ((4, 0),))


def test_empty_slots_are_taken_like_any_other():
    """A slot with no token is evicted in its turn, not before it."""
    request = Request(9, (4,), (5, -1, 7, 1), (0, 1, 2, 3))
    assert swap_in(request).misses == ((4, 0),)
