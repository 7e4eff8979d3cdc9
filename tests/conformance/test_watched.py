"""A kernel that ends the process of the run never makes it green, whatever status it leaves. Real runs in processes."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw.conformance.watched import judge

SMALL = ("--profile", "quick", "--page-size", "3", "--dtype", "bfloat16", "-p", "no:cacheprovider")
LEAVING = """
import os, signal, sys, threading
import pytest
from pytest_sglhw import kvcacheio
sglhw_device = "cpu"
{at_import}
def transfer_kv_per_layer_mla(*arguments):
    {in_kernel}
    kvcacheio.transfer_kv_per_layer_mla(*arguments)
"""
CELL = "test_transfer[transfer_kv_per_layer_mla-layer_first-bfloat16-p3]"
ONE = ("--kernels", "leaving", "--kernel", "transfer_kv_per_layer_mla", *SMALL)


def leaving(at_import="", in_kernel=""):
    return LEAVING.format(at_import=at_import, in_kernel=in_kernel)


@pytest.mark.parametrize(
    ("in_kernel", "end"),
    [
        ("os._exit(0)", "ended with exit status 0"),
        ("os._exit(77)", "ended with exit status 77"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV"),
    ],
)
def test_a_kernel_that_ends_the_process_fails_the_run_and_its_cell_is_named(conformance, in_kernel, end):
    """The exit status is pytest's for a failed test, as it is with ``--isolate``."""
    result = conformance(*ONE, leaving=leaving(in_kernel=in_kernel))

    assert result.returncode == 1, result.stdout + result.stderr
    said = result.stderr.splitlines()[-1]
    assert said.startswith(f"sglhw conformance: pytest's process {end} while it was running ")
    assert said.endswith(
        f"{CELL}. Nothing after that ran. With --isolate, a cell whose kernel ends its process is one failed cell."
    )


def test_a_worker_that_a_kernel_ends_is_a_crashed_cell(conformance):
    """Under ``-n`` the other cells run on, and the total counts the one that crashed."""
    result = conformance(
        *ONE, "-p", "xdist", "-n", "1", "--max-worker-restart=0", leaving=leaving(in_kernel="os._exit(0)")
    )

    assert result.returncode == 1, result.stdout + result.stderr
    assert CELL in result.stdout
    assert "1 cells (1 crashed), 0 examples" in result.stdout


@pytest.mark.parametrize(("safe", "found"), [("", "here"), ("1", "on the path")])
def test_a_provider_is_looked_for_where_python_was_told_to_look(conformance, monkeypatch, tmp_path, safe, found):
    """The current folder comes first, unless Python is told not to trust it: then it hides nothing of PYTHONPATH."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "twice.py").write_text("raise RuntimeError('on the path')\n")
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    monkeypatch.setenv("PYTHONSAFEPATH", safe)
    result = conformance("--kernels", "twice", *SMALL, twice="raise RuntimeError('here')\n")

    if sys.version_info < (3, 11):  # knows no safe path
        found = "here"
    assert f"provider 'twice' is broken: RuntimeError: {found}" in result.stdout


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")])
def test_a_provider_that_ends_the_process_while_it_is_loaded_is_named(conformance, workers):
    """No cell ran, and still the run is red and says why."""
    result = conformance(*ONE, *workers, leaving=leaving(at_import="os._exit(0)"))

    assert result.returncode == 1, result.stdout + result.stderr
    assert "ended with exit status 0 while it was loading provider leaving. " in result.stderr


def test_an_end_after_the_run_keeps_what_pytest_returned(conformance):
    """A kernel's package that leaves with status 0 when Python ends does not turn a failed run green."""
    result = conformance(*ONE, leaving=leaving("import atexit; atexit.register(os._exit, 0)", "raise ValueError"))

    assert result.returncode == 1
    assert "pytest returned exit status 1, and then its process ended with exit status 0." in result.stderr


@pytest.mark.parametrize("leave", ["sys.exit(0)", "pytest.exit('enough', returncode=0)"])
def test_a_kernel_that_asks_for_the_end_of_the_run_is_a_failed_cell(conformance, leave):
    """The error is the cell's, with its example, and the run goes on to its table."""
    result = conformance(*ONE, leaving=leaving(in_kernel=leave))

    assert result.returncode == 1, result.stdout + result.stderr
    assert "smallest example" in result.stdout
    assert "1 cells (1 failed)" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "status"), [(("--markers",), 0), (("-k", "nothing"), 5), (("--no-such-option",), 4)]
)
def test_the_exit_status_of_a_run_that_ends_in_order_is_pytests(conformance, arguments, status):
    """Also where pytest runs no session at all."""
    result = conformance(*ONE, *arguments, leaving=leaving())

    assert result.returncode == status, result.stdout + result.stderr
    assert "pytest's process" not in result.stderr


@pytest.mark.parametrize(
    ("code", "returned", "where", "status", "words"),
    [
        (1, "1", "", 1, None),
        (0, "", "", 3, "pytest's process ended with exit status 0 while no test was running. "),
        (-15, "", "running t", 1, "pytest's process was ended by SIGTERM while it was running t. "),
        (-40, "", "", 3, "pytest's process was ended by signal 40 while no test was running. "),
        (-11, "0", "", 1, "pytest returned exit status 0, and then its process was ended by SIGSEGV."),
        (-11, "5", "", 5, "pytest returned exit status 5, and then its process was ended by SIGSEGV."),
    ],
)
def test_the_verdict_on_an_end(code, returned, where, status, words):
    """An end that pytest did not return from is never status 0."""
    found, problem = judge(code, returned, where)

    assert found == status
    assert problem is None if words is None else problem.startswith(words)
