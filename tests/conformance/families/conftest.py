"""What the families' tests share: a provider of plain models, and a runner of a few seeded examples."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.conformance.bench import Bench
from pytest_sglhw.conformance.checks import examine
from pytest_sglhw.conformance.devices import Place
from pytest_sglhw.conformance.strategies import PinnedDraw

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(scope="session")
def models() -> ModuleType:
    """The plain models of every kernel, as a provider."""
    spec = importlib.util.spec_from_file_location("model_kernels", Path(__file__).with_name("model_kernels.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def run_cell():
    """Run seeded examples of one cell on a provider, every law of the row in turn; return the calls that came back."""

    def run(kernel, cell, provider, examples=8, **pins):
        bench = Bench(kernel, cell, provider, Place("cpu"))
        for seed in range(examples):
            case = kernel.workload.draw(cell, PinnedDraw(seed, pins))
            examine(bench, kernel.laws[seed % len(kernel.laws)], case)
        return bench.calls

    return run
