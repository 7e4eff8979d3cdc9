"""What several test modules of the matrix share."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.fixture(autouse=True)
def _one_thread():
    """Run on one thread, as the matrix does: its buffers are small, and threads that wait for a core cost tenfold."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", autouse=True)
def _no_server_is_left():
    """End what multiprocessing keeps for isolated cells: tests elsewhere look at the children of this process."""
    yield
    forkserver._forkserver._stop()
    resource_tracker._resource_tracker._stop()


@pytest.fixture(scope="session")
def fake_device():
    """The module ``fake_device``, which stands beside this file and needs torch."""
    spec = importlib.util.spec_from_file_location("fake_device", Path(__file__).with_name("fake_device.py"))
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def conformance(tmp_path, monkeypatch):
    """Run the command in an empty folder; modules written there can be providers."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(*arguments, **modules):
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
        command = [sys.executable, "-m", "pytest_sglhw", "conformance", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)

    return run


@pytest.fixture
def conformance_here(pytester, monkeypatch):
    """Run the command as ``conformance`` does, its pytest in this process: it has torch, which a new one imports for
    seconds. For what a run says; how its process ends is asked of a real one.
    """
    from pytest_sglhw.cli import main
    from pytest_sglhw.conformance import items, watched

    assert items  # with Hypothesis and numpy: pytester forgets what is imported first in its run, and they come once
    monkeypatch.syspath_prepend(pytester.path)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(*arguments, **modules):
        for name, text in modules.items():
            (pytester.path / f"{name}.py").write_text(text)
        runs = []
        monkeypatch.setattr(watched, "run_pytest", lambda given: runs.append(pytester.runpytest_inprocess(*given)) or 0)
        main(["conformance", *arguments])
        (result,) = runs
        return SimpleNamespace(
            returncode=int(result.ret), stdout=str(result.stdout), stderr=str(result.stderr), folder=pytester.path
        )

    return run
