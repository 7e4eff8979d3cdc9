"""A kernel in a child process: a hang and a crash are the failure of one cell, with the example that did it."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw.conformance import isolation  # noqa: E402
from pytest_sglhw.conformance.bench import Bench  # noqa: E402
from pytest_sglhw.conformance.failures import CellError  # noqa: E402
from pytest_sglhw.conformance.kernels import all_kernels  # noqa: E402
from pytest_sglhw.conformance.providers import resolve  # noqa: E402
from pytest_sglhw.conformance.runner import CellRun, Effort  # noqa: E402
from pytest_sglhw.conformance.transfer_cases import TransferCase  # noqa: E402

KERNEL = all_kernels()["transfer_kv_per_layer_mla"]
CELL = next(cell for cell in KERNEL.cells() if cell.page_size == 4)
FAULTY = """
import os, signal, time
from pytest_sglhw import kvcacheio
sglhw_device = "cpu"
def transfer_kv_per_layer_mla(*arguments):
    if arguments[2].numel() > 1:
        {fault}
    kvcacheio.transfer_kv_per_layer_mla(*arguments)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Make a run of one cell of a provider with a fault; the provider can be imported in other processes too."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")

    def make(name, fault):
        (tmp_path / f"{name}.py").write_text(FAULTY.format(fault=fault))
        found = resolve(name)
        return CellRun(Bench(KERNEL, CELL, found.kernels, found.place(), name), Effort(2, 3))

    return make


def test_a_hang_is_ended_and_named_with_its_example(run):
    """The child is ended; the case that hung is kept as it was drawn."""
    with pytest.raises(CellError) as caught:
        isolation.run_in_child(run("hanging", "time.sleep(1e6)"), "hanging", 1.5)

    assert str(caught.value.error) == "the kernel did not return within 1.5 s; its process was ended"
    assert isinstance(caught.value.case, TransferCase)
    assert caught.value.steps == 0


def test_each_case_of_a_reduction_is_announced(run):
    """Whoever limits the time of an example begins anew with each: a long reduction is no hang."""
    words, reducing = [], run("slow", "return")
    reducing.announce = lambda law, case, word: words.append(word)

    with pytest.raises(CellError) as caught:
        reducing.run()

    assert caught.value.steps > 1
    assert words.count("smaller") == caught.value.steps
    assert words[words.index("smaller") - 1] == "example"


@pytest.mark.parametrize(
    ("name", "fault", "words"),
    [
        ("segfaulting", "os.kill(os.getpid(), signal.SIGSEGV)", "the kernel crashed its process with SIGSEGV"),
        ("leaving", "os._exit(3)", "the kernel ended its process with exit status 3"),
    ],
)
def test_the_end_of_a_process_is_told_by_signal_or_status(run, name, fault, words):
    """A signal is told from an exit."""
    with pytest.raises(CellError) as caught:
        isolation.run_in_child(run(name, fault), name)

    assert str(caught.value.error) == words
    assert isinstance(caught.value.case, TransferCase)


def test_a_failure_in_the_child_is_reduced_there_and_its_snippet_shows_it_again(run):
    """What is printed is Python that fails by itself in the same way."""
    with pytest.raises(CellError) as caught:
        isolation.run_in_child(run("idle", "return"), "idle")
    snippet = caught.value.snippet()

    again = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, timeout=300, check=False)

    assert len(caught.value.case.source_indices) == 2
    assert again.returncode == 1
    assert str(caught.value.error) in again.stderr
    assert snippet.startswith("from pytest_sglhw.conformance.transfer_cases import TransferCase\n")
