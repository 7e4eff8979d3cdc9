"""What each mark does on each platform, in every place where pytest takes a mark."""

from __future__ import annotations

import pytest

from pytest_sglhw.gates import PLATFORM_MARKS, PLATFORMS

EVERY_MARK = "import pytest\n" + "\n".join(
    f"@pytest.mark.{mark}\ndef test_{mark}(): pass" for mark in (*PLATFORM_MARKS, "requires_kvcacheio", "requires_kv4")
)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_platform_marks_run_on_their_platform_alone(run, outcomes, platform):
    """Exactly the marks that hold on a platform let their test run there; the ids are the same on all."""
    words = outcomes(run(EVERY_MARK, "-v", fake=platform))
    ran = {name.removeprefix("test_") for name, word in words.items() if word == "PASSED"}
    expected = {f"{platform}_only"} | ({"gpu_only"} if platform != "cpu" else set())
    expected |= {"requires_kvcacheio"} if platform in ("cuda", "rocm", "musa", "xpu") else set()
    expected |= {"requires_kv4"} if platform == "cuda" else set()
    assert ran == expected
    assert len(words) == len(PLATFORM_MARKS) + 2


FORMS = """
import asyncio, unittest
import pytest
from hypothesis import given, strategies as st
from pytest_sglhw import cuda_only, requires_kvcacheio, sglhw

@cuda_only
def test_function(): pass

@cuda_only()
def test_parentheses(): pass

@pytest.mark.requires_kvcacheio("transfer_kv_direct")
def test_kernel(): pass

class TestMethods:
    @sglhw("kvcacheio", platforms=("cuda", "hip"), archs=["sm_90"], min_arch="sm80", min_devices=1)
    def test_method(self): pass

@cuda_only
class TestClass:
    def test_in_class(self): pass

@cuda_only
class TestCase(unittest.TestCase):
    def test_in_case(self): pass

class TestCaseMethod(unittest.TestCase):
    @cuda_only
    def test_case_method(self): pass

@pytest.mark.parametrize("x", [1, pytest.param(2, marks=cuda_only), pytest.param(3, marks=[requires_kvcacheio()])])
def test_param(x): pass

@cuda_only
@given(st.integers())
def test_given(x): pass

@cuda_only
@pytest.mark.asyncio
async def test_async(): pass
"""


def test_marks_work_wherever_pytest_takes_a_mark(pytester, outcomes):
    """Function, method, class, TestCase, parameter, ``@given`` and async tests run on CUDA and skip on a CPU."""
    pytester.makepyfile(test_it=FORMS)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    on_cuda = outcomes(pytester.runpytest("-v", "--sglhw-fake", "cuda:sm90"))
    on_cpu = outcomes(pytester.runpytest("-v", "--sglhw-fake", "cpu"))
    assert set(on_cuda.values()) == {"PASSED"}
    assert {name for name, word in on_cpu.items() if word == "PASSED"} == {"test_param[1]"}
    assert on_cuda.keys() == on_cpu.keys()
    assert len(on_cuda) == 12


def test_pytestmark_gates_a_whole_module(run, outcomes):
    """A module's ``pytestmark`` holds for all of its tests, and stacks with a test's own marks."""
    source = """
        import pytest
        pytestmark = pytest.mark.gpu_only
        def test_a(): pass
        @pytest.mark.rocm_only
        def test_b(): pass
    """
    assert outcomes(run(source, "-v", fake="cuda")) == {"test_a": "PASSED", "test_b": "SKIPPED"}


@pytest.mark.parametrize("how", ["tryfirst=True", "trylast=True", "wrapper=True", "wrapper=True, tryfirst=True"])
def test_a_mark_that_a_plugin_adds_after_collection_counts(run, outcomes, how):
    """``item.add_marker`` in ``pytest_collection_modifyitems`` gates as a decorator does, the first mark too."""
    conftest = f"""
        import pytest

        @pytest.hookimpl({how})
        def pytest_collection_modifyitems(items):
            {"yield" if "wrapper" in how else ""}
            for item in items:
                item.add_marker(pytest.mark.cuda_only(otherwise="raise", raises=UserWarning))
    """
    source = """
        import pytest, warnings
        @pytest.fixture
        def warns(): warnings.warn("no such device")
        def test_in_setup(warns): pass
        def test_in_call(): warnings.warn("no such device")
        def test_silent(): pass
    """
    result = run(source, "-v", fake="rocm", conftest=conftest)
    assert outcomes(result) == {"test_in_setup": "RAISED", "test_in_call": "RAISED", "test_silent": "FAILED"}


def test_a_wrong_mark_that_a_plugin_adds_fails_its_test(run):
    """After collection there is no file to refuse, so the test says what is wrong."""
    conftest = """
        import pytest
        def pytest_collection_modifyitems(items):
            items[0].add_marker(pytest.mark.cuda_only("x"))
    """
    result = run("def test_a(): pass", fake="rocm", conftest=conftest)
    result.assert_outcomes(errors=1)
    text = "cuda_only takes keywords only, but was given 1 argument. Valid: otherwise, raises, match, reason."
    assert f"cuda_only('x'): {text}" in result.outlines


def test_a_skip_of_ones_own_stays_that_skip(run):
    """An explicit ``skip`` says its own reason, whatever our marks would say."""
    source = "import pytest\n@pytest.mark.cuda_only\n@pytest.mark.skip(reason='mine')\ndef test_a(): pass"
    result = run(source, "-rs", fake="cpu")
    assert any(line.startswith("SKIPPED [1]") and line.endswith(": mine") for line in result.outlines)


def test_a_gate_speaks_before_a_condition_that_needs_the_hardware(run):
    """A string condition that would fail on this machine is not evaluated where the gate already skips."""
    source = "import pytest\n@pytest.mark.cuda_only\n@pytest.mark.skipif('1 / 0')\ndef test_a(): pass"
    run(source, fake="cpu").assert_outcomes(skipped=1)


def test_the_skip_names_the_test_and_the_true_platform(run):
    """The reason says the mark, what this machine is and how that is known, at the test's own line."""
    source = "import pytest\n\n@pytest.mark.cuda_only(reason='uses wgmma')\ndef test_a(): pass"
    expected = (
        "SKIPPED [1] test_it.py:3: cuda_only(reason='uses wgmma'): the platform here is rocm, not cuda "
        "(--sglhw-fake rocm:gfx942) (uses wgmma)"
    )
    assert expected in run(source, "-rs", fake="rocm:gfx942").outlines


@pytest.mark.parametrize("workers", ["1", "2"])
def test_workers_give_the_same_outcomes(run, workers):
    """Verdicts do not depend on workers, and neither does what the terminal says of them."""
    alone = run(EVERY_MARK, fake="rocm")
    distributed = run(EVERY_MARK, "-n", workers, fake="rocm")
    assert alone.parseoutcomes() == distributed.parseoutcomes()
    start = next(i for i, line in enumerate(alone.outlines) if "skipped for hardware" in line)
    assert alone.outlines[start + 1] in distributed.outlines


def test_fixtures_of_a_skipped_test_do_not_run(run):
    """Nothing of a gated test runs: no fixture, no setUpClass."""
    source = """
        import pytest, unittest
        @pytest.fixture(autouse=True)
        def boom(): raise RuntimeError("fixture ran")
        @pytest.mark.cuda_only
        class TestCase(unittest.TestCase):
            @classmethod
            def setUpClass(cls): raise RuntimeError("setUpClass ran")
            def test_a(self): pass
        @pytest.mark.cuda_only
        def test_b(): pass
    """
    run(source, fake="cpu").assert_outcomes(skipped=2)


SHARED = """
import pytest
here, there = pytest.mark.cpu_only, pytest.mark.cuda_only

@here
def test_a(): pass
@here
def test_b(): pass

class TestHere:
    @here
    def test_c(self): pass

@there
class TestThere:
    @here
    def test_d(self): raise AssertionError
    @here
    def test_e(self): raise AssertionError
    def test_f(self): raise AssertionError

def test_g(): pass
@there
def test_h(): raise AssertionError
@there
def test_i(): raise AssertionError
@here
def test_j(): pass
"""
ADDED = """
import pytest

def pytest_runtest_protocol(item):
    if item.name == "test_b":
        item.add_marker(pytest.mark.cuda_only)
"""


def test_neighbours_with_one_and_the_same_mark_are_each_gated(run, outcomes):
    """What is met once for all of them counts in their class alone, and only as long as they have no other mark."""
    words = outcomes(run(SHARED, "-v", fake="cpu"))
    assert "".join(name[-1] for name, word in words.items() if word == "PASSED") == "abcgj"
    assert "".join(name[-1] for name, word in words.items() if word == "SKIPPED") == "defhi"


def test_a_mark_that_is_added_when_the_test_begins_counts(run, outcomes):
    """Also between tests that simply run by the mark that this one has too."""
    words = outcomes(run(SHARED, "-v", fake="cpu", conftest=ADDED))
    assert "".join(name[-1] for name, word in words.items() if word == "PASSED") == "acgj"
