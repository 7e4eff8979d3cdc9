"""The covering design: every pair of factor values that some cell can meet is met by rows alone."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw.conformance import covering
from pytest_sglhw.conformance.kernels import all_kernels
from pytest_sglhw.conformance.runner import PROFILES


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", all_kernels())
def test_rows_meet_every_pair(name, profile):
    """In every profile, each cell has its rows, each row can be built, and no pair is left to chance."""
    kernel, least = all_kernels()[name], PROFILES[profile].rows
    met = set()
    for cell, rows in covering.rows(kernel, least).items():
        assert len(rows) >= least
        for row in rows:
            assert row.keys() == kernel.workload.factors(cell).keys()
            assert kernel.workload.feasible(cell, row)
            met.update(covering.pairs_of(cell, row))

    assert met >= covering.wanted_pairs(kernel)


def test_wanted_pairs_are_those_that_can_stand_together():
    """A pair that no cell can build is not asked for, and one that a single cell can build is."""
    wanted = covering.wanted_pairs(all_kernels()["transfer_kv_per_layer"])

    assert (("heads", 3), ("row_bytes", 24)) in wanted
    assert (("heads", 3), ("row_bytes", 8)) not in wanted
    assert (("page_size", 24), ("row_bytes", 4104)) in wanted
    assert (("page_size", 128), ("row_bytes", 4104)) not in wanted  # the smallest such pool is too large
