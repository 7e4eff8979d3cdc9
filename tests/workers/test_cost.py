"""What a run with workers holds of this package where static facts settle the machine: no test compares times."""

from __future__ import annotations

import pytest

SUITE = """
import pytest

@pytest.mark.cpu_only
@pytest.mark.parametrize("number", range(4))
def test_here(number): pass

@pytest.mark.cuda_only
def test_elsewhere(): raise AssertionError
"""
HELD = """
import sys
from pathlib import Path

def pytest_unconfigure(config):
    process = getattr(config, "workerinput", {}).get("workerid", "controller")
    names = sorted(name.partition(".")[2] for name in sys.modules if name.startswith("pytest_sglhw."))
    Path(__file__).with_name(process + ".held").write_text("\\n".join(names))
"""
#: What only a record, a report, or the rows of capabilities are for.
NOT_HELD = (
    "asking", "environment.disagreements", "environment.families", "environment.ladder", "environment.probe",
    "registry.builtin", "registry.capabilities", "report", "lanes", "kvcacheio", "conformance",
)  # fmt: skip
#: What looks at marks: the controller collects nothing.
OF_WORKERS = ("environment.records", "environment.settled", "gates.ownership", "gates.reading", "gates.runtime")


@pytest.fixture
def cpu_machine(pytester, monkeypatch):
    """A CPU build of torch before any other."""
    folder = pytester.mkdir("planted")
    folder.joinpath("torch").mkdir()
    folder.joinpath("torch/__init__.py").write_text("raise AssertionError('nobody here imports torch')")
    folder.joinpath("torch/version.py").write_text("__version__ = '2.11.0+cpu'\ncuda = None\nhip = None\n")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")


@pytest.mark.usefixtures("cpu_machine")
def test_no_process_makes_a_record_that_nobody_asked_for(pytester):
    """Neither a worker for its verdicts nor the controller at the end, which may hint at devices that are shared."""
    pytest.importorskip("xdist")
    pytester.makeconftest(HELD)
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_subprocess("-p", "sglhw", "-p", "xdist", "-n", "2", timeout=120)

    result.assert_outcomes(passed=4, skipped=1)
    result.stdout.no_fnmatch_line("*workers shared*")
    held = {path.stem: set(path.read_text().split()) for path in pytester.path.glob("*.held")}
    assert set(held) == {"controller", "gw0", "gw1"}
    assert {process: names & set(NOT_HELD) for process, names in held.items()} == {process: set() for process in held}
    assert held["controller"].isdisjoint(OF_WORKERS)
    assert "workers.hooks" in held["controller"] - held["gw0"]
