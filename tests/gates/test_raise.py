"""``otherwise="raise"``: the documented error, and nothing else, where the hardware is missing."""

from __future__ import annotations

import builtins
import sys

import pytest

from pytest_sglhw.gates.expected import is_documented
from pytest_sglhw.gates.requirement import Documented

HEAD = """
import asyncio, unittest, warnings
import pytest
from hypothesis import given, strategies as st
from pytest_sglhw import cuda_only, requires_gguf, requires_hisparse, requires_kv4, rocm_only

raising = cuda_only(otherwise="raise", raises=RuntimeError, match="no gate")

def gate():
    raise RuntimeError("no gate here")
"""
WHY = (
    "cuda_only(otherwise='raise', raises=RuntimeError, match='no gate'): the platform here is rocm, not cuda "
    "(--sglhw-fake rocm)"
)
WANTED = "RuntimeError matching 'no gate' (as the mark says)"

RAISED = {
    "function": "@raising\ndef test_a(): gate()",
    "class": "@raising\nclass TestA:\n    def test_a(self): gate()",
    "module": "pytestmark = raising\ndef test_a(): gate()",
    "fixture": "@pytest.fixture\ndef broken(): gate()\n@raising\ndef test_a(broken): pass",
    "setup_method": "@raising\nclass TestA:\n    def setup_method(self): gate()\n    def test_a(self): pass",
    "case": "@raising\nclass TestA(unittest.TestCase):\n    def test_a(self): gate()",
    "setUp": "@raising\nclass TestA(unittest.TestCase):\n    def setUp(self): gate()\n    def test_a(self): pass",
    "setUpClass": "@raising\nclass TestA(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls): gate()\n"
                  "    def test_a(self): pass",
    "subTest": "@raising\nclass TestA(unittest.TestCase):\n    def test_a(self):\n"
               "        with self.subTest(i=1): gate()\n        with self.subTest(i=2): gate()",
    "async case": "@raising\nclass TestA(unittest.IsolatedAsyncioTestCase):\n    async def test_a(self): gate()",
    "given": "@raising\n@given(st.integers())\ndef test_a(x): gate()",
    "param": "@pytest.mark.parametrize('x', [pytest.param(1, marks=raising)])\ndef test_a(x): gate()",
    "warning": "@requires_gguf(otherwise='raise', raises=UserWarning, match='Only CUDA')\n"
               "def test_a(): warnings.warn('Only CUDA and MUSA support GGUF')",
    "warning as error": "@pytest.mark.filterwarnings('error')\n@requires_gguf(otherwise='raise', raises=UserWarning)\n"
                        "def test_a(): warnings.warn('Only CUDA and MUSA support GGUF')",
    "ignored warning": "@pytest.mark.filterwarnings('ignore')\n@requires_gguf(otherwise='raise', raises=UserWarning)\n"
                       "def test_a(): warnings.warn('Only CUDA and MUSA support GGUF')",
    "warning in a fixture": "@pytest.fixture\ndef warns(): warnings.warn('Only CUDA')\n"
                            "@requires_gguf(otherwise='raise', raises=UserWarning)\ndef test_a(warns): pass",
    "capability's own": "@requires_kv4(otherwise='raise')\n"
                        "def test_a(): raise RuntimeError('KV4 is not tested on non-CUDA platforms.')",
    "own match": "@requires_kv4(otherwise='raise', match='other words')\n"
                 "def test_a(): raise RuntimeError('in other words')",
    "tuple": "@cuda_only(otherwise='raise', raises=(KeyError, ValueError))\ndef test_a(): raise ValueError",
    "named slip": "@cuda_only(otherwise='raise', raises=ImportError)\ndef test_a(): import nothing_of_this_name",
    "either": "@cuda_only(otherwise='raise', raises=KeyError)\n@requires_kv4(otherwise='raise')\n"
              "def test_a(): raise RuntimeError('KV4 is not tested on non-CUDA platforms.')",
    "named crash": "@cuda_only(otherwise='raise', raises=AssertionError, match='not compiled with CUDA enabled')\n"
                   "def test_a(): raise AssertionError('Torch not compiled with CUDA enabled')",
}  # fmt: skip


@pytest.mark.parametrize("body", RAISED.values(), ids=RAISED)
def test_the_documented_error_is_raised(run, outcomes, body):
    """The outcome is ``raised``: its own word, counted apart, exit status 0."""
    result = run(HEAD + body, "-v", fake="rocm")
    assert set(outcomes(result).values()) == {"RAISED"}
    assert {
        kind: n for kind, n in result.parseoutcomes().items() if "subtest" not in kind and "warning" not in kind
    } == {"raised": 1}
    assert result.ret == pytest.ExitCode.OK


def test_it_works_with_pytest_asyncio(pytester):
    """A coroutine test raises as any other."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(HEAD + "@raising\n@pytest.mark.asyncio\nasync def test_a(): gate()")
    result = pytester.runpytest("--sglhw-fake", "rocm")
    assert result.parseoutcomes() == {"raised": 1}


FAILED = {
    "nothing": "@raising\ndef test_a(): pass",
    "nothing in a case": "@raising\nclass TestA(unittest.TestCase):\n    def test_a(self): pass",
    "another error": "@raising\ndef test_a(): raise ValueError('x')",
    "another text": "@raising\ndef test_a(): raise RuntimeError('something else')",
    "name error": "@cuda_only(otherwise='raise', raises=Exception)\ndef test_a(): transfer_kv_mamba_lf_pf",
    "attribute error": "@cuda_only(otherwise='raise', raises=Exception)\ndef test_a(): unittest.nothing",
    "crash": "@cuda_only(otherwise='raise', raises=AssertionError)\n"
             "def test_a(): raise AssertionError('Torch not compiled with CUDA enabled')",
    "crash by a loose match": "@cuda_only(otherwise='raise', raises=AssertionError, match='CUDA')\n"
                              "def test_a(): raise AssertionError('Torch not compiled with CUDA enabled')",
    "no warning": "@requires_gguf(otherwise='raise', raises=UserWarning)\n"
                  "def test_a(): warnings.warn('x', FutureWarning)",
    "given": "@raising\n@given(st.integers())\ndef test_a(x): raise KeyError",
    "fail": "@cuda_only(otherwise='raise', raises=RuntimeError)\ndef test_a(): pytest.fail('no gate')",
}  # fmt: skip


@pytest.mark.parametrize("body", FAILED.values(), ids=FAILED)
def test_anything_else_fails(run, body):
    """No error, another error, and a gate that crashes are failures."""
    result = run(HEAD + body, fake="rocm")
    assert result.parseoutcomes().get("failed") == 1
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("body", [*RAISED.values(), *FAILED.values()], ids=[*RAISED, *FAILED])
def test_where_the_requirement_holds_the_test_just_runs(run, outcomes, body):
    """On CUDA nothing is demanded: whatever the test does is its own outcome."""
    words = set(outcomes(run(HEAD + body, "-v", fake="cuda")).values())
    assert words <= {"PASSED", "FAILED", "ERROR", "SUBFAILED(i=1)", "SUBFAILED(i=2)"}


def test_did_not_raise_says_what_was_expected_and_why(run):
    """The whole text."""
    result = run(HEAD + FAILED["nothing"], fake="rocm")
    at = result.outlines.index(f"DID NOT RAISE {WANTED}")
    assert result.outlines[at + 1] == f"why an error was expected: {WHY}"


def test_another_error_keeps_its_traceback_and_is_called_another(run):
    """The test's own error stays in view; the section below says that it is not the documented one."""
    result = run(HEAD + FAILED["another error"], fake="rocm")
    result.stdout.fnmatch_lines(["E   ValueError: x", "*- sglhw -*"])
    assert f"This is not the documented error. Expected: {WANTED}" in result.outlines
    assert f"Why an error was expected: {WHY}" in result.outlines


def test_a_crash_of_the_gate_is_called_so(run):
    """``Torch not compiled with CUDA enabled`` is not a refusal."""
    result = run(HEAD + FAILED["crash"], fake="rocm")
    assert "This is not the documented error. Expected: AssertionError (as the mark says)" in result.outlines
    crashed = "The gate crashed before its own message: it reached for a device that is not there."
    assert crashed in result.outlines


def test_a_slip_of_the_program_is_called_so(run):
    """A ``NameError`` counts only where it is named."""
    result = run(HEAD + FAILED["name error"], fake="rocm")
    assert "NameError counts as a refusal only where raises= names it." in result.outlines


def test_a_skip_and_an_xfail_inside_stay_what_they_are(run):
    """The test's own word counts, also that of a ``TestCase``."""
    source = HEAD + (
        "@raising\ndef test_a(): pytest.skip('own')\n@raising\ndef test_b(): pytest.xfail('own')\n"
        "@raising\nclass TestA(unittest.TestCase):\n    def test_c(self): self.skipTest('own')"
    )
    assert run(source, fake="rocm").parseoutcomes() == {"skipped": 2, "xfailed": 1}


def test_an_error_in_teardown_is_an_error(run):
    """The documented error is asked of setup and call alone."""
    source = HEAD + "@pytest.fixture\ndef late():\n    yield\n    gate()\n@raising\ndef test_a(late): gate()"
    assert run(source, fake="rocm").parseoutcomes() == {"raised": 1, "errors": 1}


def test_a_class_whose_setup_raises_is_raised_for_each_test(run):
    """``setUpClass`` is asked once; each test of the class ends as raised."""
    source = HEAD + (
        "@raising\nclass TestA(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls): gate()\n"
        "    def test_a(self): pass\n    def test_b(self): pass"
    )
    assert run(source, fake="rocm").parseoutcomes() == {"raised": 2}


def test_a_test_with_subtests_has_one_outcome(run, outcomes):
    """A subtest that ends in another error fails the test, whatever the others did."""
    source = HEAD + (
        "@raising\nclass TestA(unittest.TestCase):\n    def test_a(self):\n        with self.subTest(i=1): 1 / 0\n"
        "        with self.subTest(i=2): gate()"
    )
    result = run(source, "-v", fake="rocm")
    assert outcomes(result)["TestA::test_a"] == "FAILED"
    assert "raised" not in result.parseoutcomes()


def test_a_documented_warning_still_reaches_its_listeners(run):
    """The warning is seen, not swallowed: by ``pytest.warns`` inside, and by the summary."""
    source = HEAD + (
        "@requires_gguf(otherwise='raise', raises=UserWarning)\n"
        "def test_a():\n    with pytest.warns(UserWarning): warnings.warn('inner')\n    warnings.warn('Only CUDA')\n"
    )
    result = run(source, fake="rocm")
    assert result.parseoutcomes() == {"raised": 1, "warnings": 1}
    result.stdout.fnmatch_lines(["*UserWarning: Only CUDA"])


def test_raised_has_its_own_letter(run):
    """``r`` in the progress line, beside the dots."""
    source = HEAD + "@raising\ndef test_a(): gate()\ndef test_b(): pass"
    run(source, fake="rocm").stdout.fnmatch_lines(["test_it.py r. *"])


def test_workers_report_the_same(run):
    """The word survives the trip from a worker."""
    source = HEAD + RAISED["function"] + "\n" + RAISED["fixture"].replace("test_a", "test_b")
    assert run(source, "-n1", fake="rocm").parseoutcomes()["raised"] == 2


def test_the_debugger_is_not_entered_for_a_documented_error(run):
    """``--pdb`` stops at errors that are errors."""
    conftest = "def pytest_exception_interact(node): print('INTERACT', node.name)"
    source = HEAD + "@raising\ndef test_a(): gate()\n@raising\ndef test_b(): 1 / 0"
    result = run(source, "-s", fake="rocm", conftest=conftest)
    text = result.stdout.str()
    assert "INTERACT test_b" in text
    assert "INTERACT test_a" not in text


BOTH = (Documented((ValueError,), None, "a"), Documented(("KeyError", "lib.LibError"), None, "b"))


def test_classes_may_be_named_by_text():
    """A class that nobody may import is compared by its dotted name, its bases included."""
    error = type("LibError", (RuntimeError,), {"__module__": "lib"})
    assert is_documented(error(), BOTH)
    assert is_documented(type("Sub", (error,), {})(), BOTH)
    assert is_documented(KeyError(), BOTH)
    assert not is_documented(RuntimeError(), BOTH)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="ExceptionGroup is new in 3.11")
def test_a_group_counts_if_every_error_in_it_is_documented():
    """Hypothesis groups distinct failures."""
    group = builtins.ExceptionGroup
    assert is_documented(group("g", [ValueError(), KeyError()]), BOTH)
    assert not is_documented(group("g", [ValueError(), RuntimeError()]), BOTH)


CRASHES = """
Torch not compiled with XPU enabled
Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU
The NVIDIA driver on your system is too old (found version 11040).
No CUDA GPUs are available
No HIP GPUs are available
Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices()
Cannot initialize CUDA without ATen_cuda library.
CUDA error: no CUDA-capable device is detected
0 active drivers ([]). There should only be one.
Could not run 'sgl_kernel::transfer_kv_all_layer' with arguments from the 'CPU' backend.
""".strip().splitlines()


@pytest.mark.parametrize("text", CRASHES)
def test_texts_of_crashes_are_known(text):
    """What torch says about a missing device satisfies nothing that does not ask for these words."""
    assert not is_documented(RuntimeError(text), [Documented((RuntimeError,), None, "a")])
