"""However tests are spread over workers, what comes of them is the same."""

from __future__ import annotations

import pytest

from .helpers import records_of

SUITE = """
import pytest
from pytest_sglhw import cuda_only, gpu_only, requires_kvcacheio, requires_nvfp4_kv, rocm_only, sglhw

REFUSAL = "--kv-cache-dtype=nvfp4 requires Blackwell SM100 or SM120"

@pytest.fixture(scope="module")
def pool(): return []

@pytest.fixture
def broken(): raise RuntimeError("no pool")

@rocm_only
@pytest.mark.parametrize("n", range(3))
def test_skipped(n, pool): pass

@gpu_only
@pytest.mark.xdist_group("one")
class TestGroup:
    @pytest.mark.parametrize("who", ["a@b", "c.d", "e::f"])
    def test_member(self, who): assert who != "c.d"

    @requires_nvfp4_kv(otherwise="raise")
    def test_raised(self): raise RuntimeError(REFUSAL)

    @requires_nvfp4_kv(otherwise="raise")
    def test_did_not(self): pass

@pytest.mark.xdist_group("two")
@pytest.mark.xdist_group("three@home")
def test_in_two_groups(): pass

@sglhw(min_devices=4)
def test_many(): pass

@requires_kvcacheio
@pytest.mark.xfail(reason="known")
def test_known(): assert 0

def test_error(broken): pass

@cuda_only
@pytest.mark.skip(reason="later")
def test_later(): pass
"""
ISOLATED = """
import pytest
from pytest_sglhw import isolated_device

@pytest.mark.xdist_group("two")
@isolated_device
def test_isolated(): raise ValueError("in the child")
"""
SAID = ("nodeid", "outcome", "phase", "platform", "requirement", "state", "reason_code", "reason")


@pytest.fixture
def outcomes(pytester: pytest.Pytester):
    """Run the suite and give what the report says of each test, sorted by id."""
    pytester.makepyfile(test_one=SUITE, test_two=SUITE, test_three=ISOLATED)

    def run(*args: str) -> list[tuple[str, ...]]:
        options = ("-p", "sglhw", "-p", "xdist", "-p", "no:cacheprovider")
        fake = ("--sglhw-fake", "cuda:sm90*2", "--sglhw-report", "report.jsonl", "-q", "--tb=no")
        pytester.runpytest_subprocess(*options, *fake, *args)
        records = records_of(pytester)
        starts = sorted(r["nodeid"] for r in records if r["kind"] == "start")
        tests = sorted(tuple(str(r[key]) for key in SAID) for r in records if r["kind"] == "test")
        assert starts == [test[0] for test in tests]
        return tests

    return run


def test_every_schedule_gives_the_same_results(outcomes):
    """The same ids, outcomes and reasons in one process, with 1 and 8 workers, and by every way to deal tests."""
    expected = outcomes("-n", "0")
    assert len(expected) == 2 * 13 + 1
    schedules = [("-n", "1"), ("-n", "8")]
    schedules += [("-n", "2", "--dist", way) for way in ("loadscope", "loadfile", "loadgroup", "worksteal")]
    different = {args: found for args in schedules if (found := outcomes(*args)) != expected}
    assert different == {}


def test_each_gives_them_once_for_each_worker(outcomes):
    """``--dist each`` runs everything everywhere."""
    expected = outcomes("-n", "0")
    assert outcomes("-n", "2", "--dist", "each") == sorted(expected * 2)
