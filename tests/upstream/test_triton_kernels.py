"""SGLang's own Triton kernels, under Triton's interpreter: they keep their contract, or fail as known."""

from __future__ import annotations

import pytest

from pytest_sglhw.conformance import known_gaps, providers_sglang
from pytest_sglhw.conformance.bench import Bench
from pytest_sglhw.conformance.checks import examine
from pytest_sglhw.conformance.devices import Place
from pytest_sglhw.conformance.kernels import all_kernels
from pytest_sglhw.conformance.strategies import PinnedDraw


def _cells(provider):
    """The first page size of each layout and dtype: the matrix runs the others."""
    for name in provider.sglhw_kernels:
        kernel = all_kernels()[name]
        for cell in kernel.cells():
            if cell.page_size == kernel.page_sizes[0]:
                yield pytest.param(kernel, cell, id=cell.id)


def _run(kernel, cell, provider, examples):
    """Run seeded examples until one fails; return what it failed with."""
    bench = Bench(kernel, cell, provider, Place("cpu"))
    for seed in range(examples):
        try:
            examine(bench, kernel.laws[seed % len(kernel.laws)], kernel.workload.draw(cell, PinnedDraw(seed, {})))
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises is the outcome
            return error
    return None


def test_every_kernel_can_be_had():
    """Nothing of the provider is missing beside an installed SGLang."""
    assert dict(providers_sglang.triton.sglhw_missing) == {}


@pytest.mark.parametrize(("kernel", "cell"), list(_cells(providers_sglang.triton)))
def test_triton_kernel(kernel, cell):
    """A cell passes, or fails in exactly the way that its known gap says."""
    error = _run(kernel, cell, providers_sglang.triton, examples=4)
    gap = known_gaps.find("sglang_triton", cell, "cpu")
    if gap is None:
        assert error is None, error
    else:
        assert known_gaps.judge(gap, error) is None


def test_question_for_a_jit_kernel():
    """On a machine without a GPU the question raises instead of answering no: a known gap."""
    kernel = all_kernels()["can_use_hicache_jit_kernel"]
    gap = known_gaps.find("sglang_jit", kernel.cells()[0], "cpu")
    assert known_gaps.judge(gap, _run(kernel, kernel.cells()[0], providers_sglang.jit, examples=4)) is None


def test_jit_kernels_are_missing_with_the_reason():
    """What only a GPU can compile is listed, not failed."""
    missing = providers_sglang.jit.sglhw_missing
    assert set(providers_sglang.jit.sglhw_kernels) - set(missing) == {"can_use_hicache_jit_kernel"}
    assert set(missing.values()) == {"compiled on first use for an NVIDIA or AMD GPU; torch sees none here"}
