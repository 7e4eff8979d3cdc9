"""The table of known gaps, and how the outcome of a cell with a gap is judged."""

from __future__ import annotations

import pytest

from pytest_sglhw.conformance.cells import Cell
from pytest_sglhw.conformance.failures import BrokenLawError
from pytest_sglhw.conformance.known_gaps import GAPS, Gap, find, judge

GAP = Gap("p", "k", "overlap", "reference", "rows are lost", "p 1.0, k.py", "two rows")


def test_rows_are_found_by_provider_cell_and_device():
    """Only the provider, the kernel, the layout and the device that a row names."""
    row = GAPS[0]
    cell = Cell(row.kernel, row.layout, "bfloat16", 1)
    assert find(row.provider, cell, "cpu") is row
    assert find("torch", cell, "cpu") is None
    assert find(row.provider, cell._replace(layout="other"), "cpu") is None
    assert find(row.provider, cell, "xpu") is None


def test_each_cell_has_one_row():
    """No two rows speak of the same cells."""
    keys = [(gap.provider, gap.kernel, gap.layout) for gap in GAPS]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("gap", GAPS, ids=lambda gap: f"{gap.kernel}-{gap.layout}")
def test_rows_say_why_where_and_with_what(gap):
    """Each row has a reason, a place in a release, and an input."""
    assert len(gap.reason) > 40
    assert gap.source.startswith("sglang 0.5.23, ")
    assert gap.smallest


def test_known_failure_is_accepted():
    """The law that the row names broke, or the exception that it names came."""
    assert judge(GAP, BrokenLawError("reference", "K differs")) is None
    assert judge(Gap("p", "k", "l", "AssertionError", "r", "s", "i"), AssertionError("no GPU")) is None


def test_other_failure_is_reported():
    """Another law, or an exception, is not the known gap."""
    assert judge(GAP, BrokenLawError("source", "K changed")) == "known gap 'reference' expected, but 'source' broke"
    assert judge(GAP, ValueError("no")) == "known gap 'reference' expected, but 'ValueError' broke"


def test_closed_gap_is_reported():
    """A pass says which row to remove."""
    assert judge(GAP, None) == (
        "known gap closed: k of p no longer fails with layout overlap. Remove its row from "
        "pytest_sglhw/conformance/known_gaps.py and docs/findings.md. The row said: rows are lost."
    )
