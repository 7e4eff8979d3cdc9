"""Filters that are valid one by one and select nothing together."""

from __future__ import annotations

import pytest

from pytest_sglhw.conformance.cells import Filters, cells_of, selects_nothing

CELLS = [
    *cells_of("copy", ["page_first", "page_head"], ["uint8"], [1, 2]),
    *cells_of("move", ["page_head"], ["int8"], [1]),
]


@pytest.mark.parametrize(
    ("filters", "lines"),
    [
        (Filters(), []),
        (Filters(kernel=("copy", "move"), page_size=(1,)), []),
        (
            Filters(kernel=("copy", "move"), layout=("page_first",)),
            ["--kernel move selects no cell beside the other filters: move has --layout page_head, not page_first"],
        ),
        (
            Filters(kernel=("move",), dtype=("uint8", "int8"), page_size=(1, 2)),
            [
                "--dtype uint8 selects no cell beside the other filters: uint8 has --kernel copy, not move",
                "--page-size 2 selects no cell beside the other filters: 2 has --kernel copy, not move",
            ],
        ),
    ],
)
def test_a_filter_of_which_nothing_is_left_is_said_with_what_it_has(filters, lines):
    """Also where other values of the same option do select something."""
    assert list(selects_nothing(filters, CELLS)) == lines


def test_filters_that_fit_by_twos_and_not_together():
    """There is no single pair to blame then, and still each is named."""
    cells = [*cells_of("a", ["x"], ["u"], [1]), *cells_of("a", ["y"], ["v"], [1]), *cells_of("b", ["x"], ["v"], [1])]

    lines = list(selects_nothing(Filters(kernel=("a",), layout=("x",), dtype=("v",)), cells))

    assert lines == [
        "--kernel a selects no cell beside the other filters",
        "--layout x selects no cell beside the other filters",
        "--dtype v selects no cell beside the other filters",
    ]
