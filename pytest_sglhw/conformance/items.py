"""Run one item of the matrix: from the cell to pytest's outcome and the facts of its report."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torch

from pytest_sglhw.conformance import known_gaps
from pytest_sglhw.conformance.bench import Bench
from pytest_sglhw.conformance.failures import CellError
from pytest_sglhw.conformance.hooks import FACTS
from pytest_sglhw.conformance.isolation import run_in_child
from pytest_sglhw.conformance.kernels import all_kernels
from pytest_sglhw.conformance.runner import PROFILES, CellRun
from pytest_sglhw.environment.sticky import is_sticky

if TYPE_CHECKING:
    from pytest_sglhw.conformance.hooks import Matrix, MatrixItem
    from pytest_sglhw.conformance.known_inputs import KnownInput


def run_item(matrix: Matrix, item: MatrixItem, node: pytest.Item) -> None:
    """Run the item's cell and end in pytest's word for it."""
    found, cell = item
    facts = node.stash[FACTS] = {
        "matrix": {"provider": found.name, **cell._asdict(), "examples": 0},
        "details": {"rejected": 0, "levels": [], "seed": matrix.seed},
    }
    if matrix.lost_by:
        facts["outcome"], facts["reason"] = "not_run", f"the device was lost in {matrix.lost_by}"
        pytest.skip(f"not run: {facts['reason']}")
    bench = Bench(all_kernels()[cell.kernel], cell, found.kernels, found.place(), found.name)
    run = CellRun(bench, PROFILES[matrix.profile], matrix.seed)
    try:
        with _one_thread(), _kernels_may_warn():
            error = _outcome(run, found.target if matrix.isolate or found.isolates() else None, matrix.timeout)
    finally:
        facts["matrix"]["examples"] = run.tally.examples
        levels = [list(levels) for levels in run.tally.levels]
        facts["details"].update(rejected=run.tally.rejected, levels=levels)
    if error and is_sticky(error.error):
        matrix.lost_by = node.nodeid
    _conclude(known_gaps.find(found.name, cell, bench.place.device.type), error)


def run_known_input(item: MatrixItem, known: KnownInput) -> None:
    """See a kernel fail on a known input in a child process: ``xfailed`` then; passing, or failing otherwise, fails."""
    found, cell = item
    kernel, errors = all_kernels()[cell.kernel], []
    for case in known.examples(kernel, cell, found.place()):
        run = CellRun(Bench(kernel, cell, found.kernels, found.place(), found.name), PROFILES["quick"], only=case)
        error = _outcome(run, found.target)
        if error is not None and known.sign in str(error.error):
            pytest.xfail(f"known input {known.name} ({known.sign}): {known.reason}")
        errors += [error] if error else []
    if errors:
        pytest.fail(f"{known.sign!r} was expected\n{errors[0]}", pytrace=False)
    where = "pytest_sglhw/conformance/known_inputs.py"
    pytest.fail(
        f"known input {known.name!r} passes: {known.kernel} of {known.provider} no longer fails. "
        f"Remove its row from {where}.",
        pytrace=False,
    )


def _outcome(run: CellRun, target: str | None, timeout: float | None = None) -> CellError | None:
    try:
        if target is None:
            run.run()
        else:
            run_in_child(run, target, timeout)
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
def _kernels_may_warn() -> Iterator[None]:
    """Show the warnings of a foreign package, but do not take them for failures of its kernels."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compare and fill in this thread: buffers are small, and workers share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
