"""Known crashes: left out of the cells, seen in a process of their own, and a failure once they are gone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw.conformance import known_crashes  # noqa: E402
from pytest_sglhw.conformance.bench import Bench  # noqa: E402
from pytest_sglhw.conformance.devices import Place  # noqa: E402
from pytest_sglhw.conformance.hooks import MatrixItem  # noqa: E402
from pytest_sglhw.conformance.items import run_crash  # noqa: E402
from pytest_sglhw.conformance.kernels import all_kernels  # noqa: E402
from pytest_sglhw.conformance.providers import FoundProvider, resolve  # noqa: E402
from pytest_sglhw.conformance.runner import CellRun, Effort  # noqa: E402

KERNEL = all_kernels()["transfer_kv_per_layer_mla"]
CELL = next(cell for cell in KERNEL.cells() if cell.page_size == 4)
ROW = known_crashes.KnownCrash("dying", KERNEL.name, "empty", "SIGFPE", "it divides by zero")
DYING = """
import os, signal
from pytest_sglhw import kvcacheio
sglhw_device = "cpu"
def transfer_kv_per_layer_mla(*arguments):
    if arguments[2].numel() == 0:
        os.kill(os.getpid(), signal.{signal})
    kvcacheio.transfer_kv_per_layer_mla(*arguments)
"""


@pytest.fixture
def dying(tmp_path, monkeypatch):
    """A provider whose kernel dies of a signal on empty input."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name, signal="SIGFPE"):
        (tmp_path / f"{name}.py").write_text(DYING.format(signal=signal))
        found = resolve(name)
        return MatrixItem(FoundProvider("dying", found.target, found.kernels), CELL)

    return make


def test_the_known_crash_is_expected(dying):
    """The item ends as an expected failure with the signal and the reason."""
    with pytest.raises(pytest.xfail.Exception, match=r"known crash \(SIGFPE\): it divides by zero"):
        run_crash(dying("dying_known"), ROW)


def test_another_death_is_a_failure(dying):
    """A kernel that dies of something else is not excused."""
    with pytest.raises(pytest.fail.Exception, match=r"SIGFPE was expected\n.*crashed its process with SIGABRT"):
        run_crash(dying("dying_otherwise", "SIGABRT"), ROW)


def test_survival_closes_the_row(dying):
    """A kernel that survives fails the item, which says what to remove."""
    item = MatrixItem(FoundProvider("dying", "pytest_sglhw.kvcacheio", resolve("torch").kernels), CELL)
    words = r"known crash closed: transfer_kv_per_layer_mla of dying survives. Remove its row from .*known_crashes.py."
    with pytest.raises(pytest.fail.Exception, match=words):
        run_crash(item, ROW)


def test_cells_leave_the_crashing_input_out(monkeypatch):
    """The cell of a kernel with a known crash runs everything else."""
    monkeypatch.setattr(known_crashes, "CRASHES", (ROW,))
    sizes = []

    def transfer_kv_per_layer_mla(*arguments):
        sizes.append(arguments[2].numel())
        resolve("torch").kernels.transfer_kv_per_layer_mla(*arguments)

    kernels = SimpleNamespace(transfer_kv_per_layer_mla=transfer_kv_per_layer_mla)
    tally = CellRun(Bench(KERNEL, CELL, kernels, Place("cpu"), "dying"), Effort(8, 40)).run()

    assert tally.rejected > 0
    assert tally.examples >= 40
    assert 0 not in sizes
