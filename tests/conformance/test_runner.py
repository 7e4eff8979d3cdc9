"""How a cell is run: how many examples, which laws they meet, what is not counted, and what is never silent."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw import kvcacheio  # noqa: E402
from pytest_sglhw.conformance import runner  # noqa: E402
from pytest_sglhw.conformance.bench import Bench  # noqa: E402
from pytest_sglhw.conformance.devices import Place  # noqa: E402
from pytest_sglhw.conformance.failures import CellError, RejectedError  # noqa: E402
from pytest_sglhw.conformance.kernels import all_kernels  # noqa: E402
from pytest_sglhw.conformance.runner import CellRun, Effort  # noqa: E402

KERNEL = all_kernels()["transfer_kv_per_layer_mla"]
CELL = KERNEL.cells()[0]
LARGE = 1
"""Examples of very many tokens, in every cell."""


def _run(effort, seed=0, monkeypatch=None, examine=None):
    """Run the cell; return what was examined and the tally. The kernel itself is called only if ``examine`` does."""
    seen = []

    def examined(bench, law, case):
        bench.calls += 1
        seen.append((law.name, case))
        if examine:
            examine(len(seen))

    monkeypatch.setattr(runner, "examine", examined)
    tally = CellRun(Bench(KERNEL, CELL, kvcacheio, Place("cpu")), effort, seed).run()
    return seen, tally


@pytest.mark.parametrize("cell", KERNEL.cells()[:9], ids=lambda cell: cell.id)
def test_every_cell_has_one_case_of_many_tokens_and_pages(cell, monkeypatch):
    """It counts beyond 10 bits of tokens and 6 bits of pages, whatever the page size."""
    seen = []
    monkeypatch.setattr(runner, "examine", lambda bench, law, case: seen.append(case))
    with pytest.raises(CellError, match="never called"):
        CellRun(Bench(KERNEL, cell, kvcacheio, Place("cpu")), Effort(2, 10)).run()

    counts = [len(case.source_indices) for case in seen]
    assert sum(count > 1024 and count > 64 * cell.page_size for count in counts) == 1


@pytest.mark.parametrize("draws", [1, 3, 10, 25])
def test_as_many_examples_are_drawn_as_asked_for(draws, monkeypatch):
    """Rows and draws add up, whatever the size of a block."""
    rows = len(runner.covering.rows(KERNEL, 2)[CELL])

    seen, tally = _run(Effort(2, draws), monkeypatch=monkeypatch)

    assert tally.examples == len(seen) == rows + LARGE + draws


def test_a_block_holds_different_cases_under_every_law(monkeypatch):
    """What is derived from one draw is as various as what is drawn."""
    seen, _ = _run(Effort(2, 40), monkeypatch=monkeypatch)
    drawn = seen[-40:]

    assert len({case for _, case in drawn}) == 40
    for block in range(0, 40, 10):
        assert {law for law, _ in drawn[block : block + 10]} == {law.name for law in KERNEL.laws}


def test_runs_repeat_themselves_and_differ_by_seed(monkeypatch):
    """The same seed draws the same cases in the same order; another one draws others, but for the simplest case."""
    first, again, other = (_run(Effort(2, 30), seed, monkeypatch)[0] for seed in (3, 3, 4))
    simplest = first[-30]

    assert first == again
    assert {case for _, case in first} & {case for _, case in other} == {simplest[1]}


def test_another_example_takes_the_place_of_a_rejected_one(monkeypatch):
    """A rejected example is counted apart and drawn again; a rejected row is held to its next law."""

    def every_third(number):
        if number % 3 == 0:
            raise RejectedError("not today")

    seen, tally = _run(Effort(2, 20), monkeypatch=monkeypatch, examine=every_third)

    rows = len(runner.covering.rows(KERNEL, 2)[CELL])
    assert tally.examples == rows + LARGE + 20
    assert tally.rejected == len(seen) - tally.examples >= 7
    assert seen[2][1] == seen[3][1]
    assert seen[2][0] != seen[3][0]


def test_a_cell_that_rejects_everything_fails(monkeypatch):
    """A cell without a single example is no pass; the reasons are said."""
    law = KERNEL.laws[0]._replace(check=lambda bench, trial: bench.reject("no day like this"))
    kernel = replace(KERNEL, laws=(law,))

    with pytest.raises(CellError, match=r"every example was rejected:\n  no day like this \(1[01]\d times\)"):
        CellRun(Bench(kernel, CELL, kvcacheio, Place("cpu")), Effort(1, 10)).run()


def test_a_failure_is_reported_once_and_ends_the_cell(monkeypatch):
    """After the first example that fails no other one runs, and Hypothesis does not call the kernel again."""
    calls = []

    def broken(*arguments):
        calls.append(len(calls))
        if len(calls) > 4:
            raise ValueError("broken")
        kvcacheio.transfer_kv_per_layer_mla(*arguments)

    kernel = replace(KERNEL, laws=())
    kernels = SimpleNamespace(transfer_kv_per_layer_mla=broken)
    with pytest.raises(CellError, match="ValueError: broken"):
        CellRun(Bench(kernel, CELL, kernels, Place("cpu")), Effort(2, 30, reduction=0)).run()

    assert len(calls) == 5
