"""Run one item of the matrix: from the cell to pytest's outcome and the facts of its report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torch

from pytest_sglhw.conformance import known_gaps
from pytest_sglhw.conformance.bench import Bench
from pytest_sglhw.conformance.devices import is_sticky
from pytest_sglhw.conformance.failures import CellError
from pytest_sglhw.conformance.hooks import FACTS
from pytest_sglhw.conformance.kernels import all_kernels
from pytest_sglhw.conformance.runner import PROFILES, CellRun

if TYPE_CHECKING:
    from pytest_sglhw.conformance.hooks import Matrix, MatrixItem


def run_item(matrix: Matrix, item: MatrixItem, node: pytest.Item) -> None:
    """Run the item's cell and end in pytest's word for it."""
    found, cell = item
    facts = node.stash[FACTS] = {
        "matrix": {"provider": found.name, **cell._asdict(), "examples": 0},
        "details": {"rejected": 0, "levels": []},
    }
    if matrix.lost_by:
        facts["outcome"], facts["reason"] = "not_run", f"the device was lost in {matrix.lost_by}"
        pytest.skip(f"not run: {facts['reason']}")
    bench = Bench(all_kernels()[cell.kernel], cell, found.kernels, found.place(), found.name)
    run = CellRun(bench, PROFILES[matrix.profile], matrix.seed)
    try:
        with _one_thread():
            error = _outcome(run)
    finally:
        facts["matrix"]["examples"] = run.tally.examples
        facts["details"] = {"rejected": run.tally.rejected, "levels": [list(levels) for levels in run.tally.levels]}
    if error and is_sticky(error.error):
        matrix.lost_by = node.nodeid
    _conclude(known_gaps.find(found.name, cell, bench.place.device.type), error)


def _outcome(run: CellRun) -> CellError | None:
    try:
        run.run()
    except CellError as error:
        return error
    return None


def _conclude(gap: known_gaps.Gap | None, error: CellError | None) -> None:
    if gap is not None:
        problem = known_gaps.judge(gap, error.error if error else None)
        if problem is None:
            pytest.xfail(f"known gap: {gap.reason}")
        pytest.fail(f"{problem}\n{error or ''}".rstrip(), pytrace=False)
    if error is not None:
        pytest.fail(str(error), pytrace=False)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compare and fill in this thread: buffers are small, and workers share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
