"""``--sglhw-peak-memory on``: how much device memory each test took."""

from __future__ import annotations

import pytest

from .helpers import records_of

#: A torch with two devices whose allocator counts, and which has a context from its first allocation on.
TORCH = """
class cuda:
    used, peak = [0, 0], [0, 0]
    started = lost = False

    @staticmethod
    def is_initialized():
        return cuda.started

    @staticmethod
    def device_count():
        return 2

    @staticmethod
    def reset_peak_memory_stats(index):
        cuda.peak[index] = cuda.used[index]

    @staticmethod
    def max_memory_allocated(index):
        if cuda.lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return cuda.peak[index]

    @staticmethod
    def synchronize():
        pass

def allocate(size, index=0):
    cuda.started = True
    cuda.used[index] += size
    cuda.peak[index] = max(cuda.peak[index], cuda.used[index])
"""
SUITE = """
import pytest, torch
from pytest_sglhw import cuda_only, isolated_device, xpu_only

@pytest.fixture(scope="module")
def pool():
    torch.allocate(100)
    yield
    torch.allocate(-100)

def test_1_no_context(): pass
def test_2_in_a_fixture(pool): pass
def test_3_more_for_a_while(pool):
    torch.allocate(900, 1); torch.allocate(-900, 1)
def test_4_forgets_the_test_before(pool): pass
@xpu_only
def test_5_skipped(): pass
@cuda_only
def test_6_fails():
    torch.allocate(7000); torch.allocate(-7000)
    assert 0
@isolated_device
def test_7_in_a_child():
    torch.allocate(55)
def test_8_lost():
    torch.cuda.lost = True
"""
PEAKS = {
    "test_1_no_context": None, "test_2_in_a_fixture": 100, "test_3_more_for_a_while": 900,
    "test_4_forgets_the_test_before": 100, "test_5_skipped": None, "test_6_fails": 7100, "test_7_in_a_child": 55,
    "test_8_lost": None,
}  # fmt: skip


@pytest.fixture
def peaks(pytester: pytest.Pytester):
    """Run the suite and give ``peak_memory`` of each test's record."""
    pytester.makepyfile(torch=TORCH, test_it=SUITE)

    def run(*args: str) -> dict[str, int | None]:
        options = ("-p", "sglhw", "-p", "no:cacheprovider", "--sglhw-fake", "cuda*2", "--sglhw-report", "report.jsonl")
        pytester.runpytest_subprocess(*options, *args, "test_it.py")
        records = records_of(pytester)
        return {r["nodeid"].partition("::")[2]: r["peak_memory"] for r in records if r["kind"] == "test"}

    return run


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")], ids=["here", "worker"])
def test_each_test_has_the_peak_of_the_device_that_held_most(peaks, workers):
    """What fixtures hold counts, an earlier test's peak does not, and what was not measured is null."""
    assert peaks("--sglhw-peak-memory", "on", *workers) == PEAKS


def test_nothing_is_measured_unless_asked_for(peaks):
    """Off by default."""
    assert set(peaks().values()) == {None}


def test_the_ini_value_asks_for_it_too(peaks, pytester):
    """As every setting."""
    pytester.makeini("[pytest]\nsglhw_peak_memory = on")
    assert peaks()["test_6_fails"] == 7100
