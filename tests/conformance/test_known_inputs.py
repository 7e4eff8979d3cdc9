"""Inputs that kernels are known to fail on: left out of the cells, seen in a process of their own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw.conformance import known_inputs  # noqa: E402
from pytest_sglhw.conformance.bench import Bench  # noqa: E402
from pytest_sglhw.conformance.devices import Place  # noqa: E402
from pytest_sglhw.conformance.hooks import MatrixItem  # noqa: E402
from pytest_sglhw.conformance.items import run_known_input  # noqa: E402
from pytest_sglhw.conformance.kernels import all_kernels  # noqa: E402
from pytest_sglhw.conformance.providers import FoundProvider, resolve  # noqa: E402
from pytest_sglhw.conformance.runner import CellRun, Effort  # noqa: E402

KERNEL = all_kernels()["transfer_kv_per_layer_mla"]
CELL = next(cell for cell in KERNEL.cells() if cell.page_size == 4)
ROW = known_inputs.INPUTS[6]._replace(provider="dying")
DYING = """
import os, signal
from pytest_sglhw import kvcacheio
sglhw_device = "cpu"
def transfer_kv_per_layer_mla(*arguments):
    if arguments[2].numel() == 0:
        {end}
    kvcacheio.transfer_kv_per_layer_mla(*arguments)
"""


@pytest.fixture
def dying(tmp_path, monkeypatch):
    """A provider whose kernel ends in some way on empty input."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name, end="os.kill(os.getpid(), signal.SIGFPE)"):
        (tmp_path / f"{name}.py").write_text(DYING.format(end=end))
        found = resolve(name)
        return MatrixItem(FoundProvider("dying", found.target, found.kernels), CELL)

    return make


def test_the_row_of_these_tests():
    """The tests below speak of empty input to this kernel."""
    assert (ROW.kernel, ROW.name, ROW.sign) == (KERNEL.name, "empty", "SIGFPE")


def test_the_known_death_is_expected(dying):
    """The item ends as an expected failure with the signal and the reason."""
    with pytest.raises(pytest.xfail.Exception, match=r"known input empty \(SIGFPE\): no indices at all: the launcher"):
        run_known_input(dying("dying_known"), ROW)


def test_another_death_is_a_failure(dying):
    """A kernel that dies of something else is not excused."""
    with pytest.raises(pytest.fail.Exception, match=r"'SIGFPE' was expected\n.*crashed its process with SIGABRT"):
        run_known_input(dying("dying_otherwise", "os.kill(os.getpid(), signal.SIGABRT)"), ROW)


def test_an_error_can_be_known_too(dying):
    """The sign of an input that raises is in the message."""
    item = dying("raising", "raise RuntimeError('CUDA error: invalid configuration argument')")
    with pytest.raises(pytest.xfail.Exception, match=r"known input empty \(invalid configuration\)"):
        run_known_input(item, ROW._replace(sign="invalid configuration"))


def test_passing_closes_the_row():
    """A kernel that takes the input fails the item, which says what to remove."""
    item = MatrixItem(FoundProvider("dying", "pytest_sglhw.kvcacheio", resolve("torch").kernels), CELL)
    words = r"known input 'empty' passes: transfer_kv_per_layer_mla of dying no longer fails. Remove its row from "
    with pytest.raises(pytest.fail.Exception, match=f"{words}.*known_inputs.py."):
        run_known_input(item, ROW)


def test_cells_leave_the_input_out(monkeypatch):
    """The cell of a kernel with a known input runs everything else."""
    monkeypatch.setattr(known_inputs, "INPUTS", (ROW,))
    sizes = []

    def transfer_kv_per_layer_mla(*arguments):
        sizes.append(arguments[2].numel())
        resolve("torch").kernels.transfer_kv_per_layer_mla(*arguments)

    kernels = SimpleNamespace(transfer_kv_per_layer_mla=transfer_kv_per_layer_mla)
    tally = CellRun(Bench(KERNEL, CELL, kernels, Place("cpu"), "dying"), Effort(8, 40)).run()

    assert tally.rejected > 0
    assert tally.examples >= 40
    assert 0 not in sizes


def test_reduction_leaves_the_input_out(monkeypatch):
    """A failing case is not made smaller by way of an input that would end the process."""
    monkeypatch.setattr(known_inputs, "INPUTS", (ROW,))
    sizes = []

    def transfer_kv_per_layer_mla(*arguments):
        sizes.append(arguments[2].numel())
        raise ValueError("always")

    kernels = SimpleNamespace(transfer_kv_per_layer_mla=transfer_kv_per_layer_mla)
    with pytest.raises(AssertionError, match="ValueError: always"):
        CellRun(Bench(KERNEL, CELL, kernels, Place("cpu"), "dying"), Effort(8, 40)).run()

    assert min(sizes) == 1


def test_other_platforms_run_the_input(monkeypatch):
    """A row that names platforms leaves the others alone."""
    row = ROW._replace(platforms=("cuda",))
    monkeypatch.setattr(known_inputs, "INPUTS", (row,))

    assert known_inputs.known_in("dying", KERNEL.name, "cuda") == (row,)
    assert known_inputs.known_in("dying", KERNEL.name, "cpu") == ()
    assert known_inputs.known_in("torch", KERNEL.name, "cuda") == ()
    assert known_inputs.known_in("dying", "transfer_kv_direct", "cuda") == ()


@pytest.mark.parametrize("row", known_inputs.INPUTS, ids=lambda row: f"{row.provider}-{row.kernel}-{row.name}")
def test_every_row_covers_some_inputs_and_not_all(row):
    """What a row leaves out can be drawn, and so can what is left."""
    kernel = all_kernels()[row.kernel]
    cell = kernel.cells()[0]
    place = Place("cpu")  # as on a machine without the TMA kernel

    assert len(list(row.examples(kernel, cell, place))) == 5
    assert list(row._replace(covers=lambda *case: not row.covers(*case)).examples(kernel, cell, place))
