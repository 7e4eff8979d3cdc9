"""A pass that called no kernel is reported or failed; one whose calls can't be seen is never accused."""

from __future__ import annotations

import os
import sys
import textwrap

import pytest

from pytest_sglhw.gates.kernel_watch import KernelWatch

STUB = {
    "sgl_kernel/__init__": "",
    "sgl_kernel/kvcacheio": """
        import functools
        def transfer_kv_direct(a, b=5, *, c=7): return a, b, c
        def transfer_kv_all_layer(*args): return args
        def traced(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs): return function(*args, **kwargs)
            return wrapper
        @traced
        def transfer_kv_per_layer(a): return a
    """,
}
HEAD = """
import functools, os, subprocess, sys, threading, types, unittest.mock
import pytest
from pytest_sglhw import requires_kvcacheio, requires_kv4, sglhw
"""
BOUND = HEAD + "from sgl_kernel.kvcacheio import transfer_kv_direct, transfer_kv_per_layer\n"
NEEDS = "@requires_kvcacheio('transfer_kv_direct')\n"


@pytest.fixture
def vacuity(run, pytester):
    """Run a suite on a machine where the kernels are there: a package of that name, in Python."""
    for name, text in STUB.items():
        path = pytester.path.joinpath(f"{name}.py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    pytester.syspathinsert()

    def vacuity(source, *arguments):
        for name in [name for name in sys.modules if name.partition(".")[0] == "sgl_kernel"]:
            del sys.modules[name]
        return run(source, *(arguments or ("--sglhw-vacuous", "fail")), fake="cuda")

    return vacuity


CALLED = {
    "bound at import": NEEDS + "def test_a(): assert transfer_kv_direct(1) == (1, 5, 7)",
    "by keyword": NEEDS + "def test_a(): assert transfer_kv_direct(b=1, a=2, c=3) == (2, 1, 3)",
    "in a thread": NEEDS + "def test_a():\n    t = threading.Thread(target=transfer_kv_direct, args=(1,))\n"
                           "    t.start()\n    t.join()",
    "partial": "call = functools.partial(transfer_kv_direct, 1)\n" + NEEDS + "def test_a(): assert call() == (1, 5, 7)",
    "in a fixture": "@pytest.fixture\ndef moved(): return transfer_kv_direct(1)\n" + NEEDS + "def test_a(moved): pass",
    "decorated": "@requires_kvcacheio('transfer_kv_per_layer')\ndef test_a(): assert transfer_kv_per_layer(3) == 3",
    "any kernel": "@requires_kvcacheio\ndef test_a(): transfer_kv_direct(1)",
    "imported in the test": NEEDS + "def test_a():\n    sys.modules.pop('sgl_kernel.kvcacheio')\n"
                            "    from sgl_kernel.kvcacheio import transfer_kv_direct as late\n    late(1)",
    "general mark": "@sglhw('kvcacheio')\ndef test_a(): transfer_kv_direct(1)",
}  # fmt: skip


@pytest.mark.parametrize("body", CALLED.values(), ids=CALLED)
def test_a_call_by_any_route_is_seen(vacuity, body):
    """Names bound at import, threads, partials, fixtures, late imports."""
    result = vacuity(BOUND + body)
    assert result.parseoutcomes() == {"passed": 1}
    assert "passes that may prove nothing" not in result.stdout.str()


VACUOUS = {
    "early return": NEEDS + "def test_a(): return",
    "another kernel": NEEDS + "def test_a(): transfer_kv_per_layer(1)",
    "patched away": NEEDS + "@unittest.mock.patch('sgl_kernel.kvcacheio.transfer_kv_direct')\ndef test_a(m): m()",
}  # fmt: skip


@pytest.mark.parametrize("body", VACUOUS.values(), ids=VACUOUS)
def test_a_pass_without_a_call_fails(vacuity, body):
    """An early return, the wrong kernel, a mock."""
    result = vacuity(BOUND + body)
    assert result.parseoutcomes() == {"failed": 1}
    at = result.outlines.index("passed without calling transfer_kv_direct")
    assert result.outlines[at + 1] == (
        "asked for by requires_kvcacheio('transfer_kv_direct'); vacuous_because='...' on the mark says why it need not "
        "call them"
    )


@pytest.mark.parametrize("what", ["types.SimpleNamespace(transfer_kv_direct=print)", "unittest.mock.MagicMock()"])
def test_a_module_that_only_bears_the_name_is_no_kernel(vacuity, what):
    """A fallback or a mock under the native module's name does not count, and is named."""
    source = HEAD + (
        f"sys.modules['sgl_kernel.kvcacheio'] = {what}\nfrom sgl_kernel.kvcacheio import transfer_kv_direct\n"
        f"{NEEDS}def test_a(): transfer_kv_direct(1)"
    )
    result = vacuity(source)
    assert result.parseoutcomes() == {"failed": 1}
    kind = what.partition("(")[0].rpartition(".")[2]
    result.stdout.fnmatch_lines([f"passed without calling transfer_kv_direct (sgl_kernel.kvcacheio is {kind} *"])


def test_an_empty_parameter_set_ran_nothing(vacuity):
    """``parametrize`` over nothing is a skip of pytest's that proves nothing."""
    result = vacuity(BOUND + NEEDS + "@pytest.mark.parametrize('x', [])\ndef test_a(x): transfer_kv_direct(x)")
    assert result.parseoutcomes() == {"errors": 1}
    result.stdout.fnmatch_lines(["ran nothing: got empty parameter set *x*"])  # pytest 8.2 says it in other words


UNSEEN = {
    "finished child": "subprocess.run([sys.executable, '-c', ''])",
    "running child": "global p\n    p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)",
    "fork": "pid = os.fork()\n    if not pid: os._exit(0)\n    os.waitpid(pid, 0)",
}


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="child processes can't be seen on this system")
@pytest.mark.parametrize("body", UNSEEN.values(), ids=UNSEEN)
def test_calls_in_child_processes_are_not_observed(vacuity, body):
    """Whatever a child does can't be seen from here: reported as such, never failed."""
    source = (
        BOUND
        + NEEDS
        + f"def test_a():\n    {body}\ndef teardown_module():\n    p.communicate() if 'p' in globals() else 0"
    )
    result = vacuity(source)
    # Python 3.12 warns of a fork beside threads, which a worker of xdist has.
    assert {**result.parseoutcomes(), "warnings": 0} == {"passed": 1, "warnings": 0}
    result.stdout.fnmatch_lines(
        ["test_it.py::test_a: not observed: whether it called transfer_kv_direct (a child process *"]
    )


def test_a_kernel_without_a_hook_is_not_observed(vacuity, pytester):
    """A function in C can't be watched."""
    pytester.path.joinpath("sgl_kernel/kvcacheio.py").write_text("transfer_kv_direct = len\n")
    result = vacuity(
        HEAD + "from sgl_kernel.kvcacheio import transfer_kv_direct\n" + NEEDS + "def test_a(): transfer_kv_direct('')"
    )
    assert result.parseoutcomes() == {"passed": 1}
    result.stdout.fnmatch_lines(["*(sgl_kernel.kvcacheio.transfer_kv_direct is a builtin_function_or_method)"])


def test_warn_reports_and_off_says_nothing(vacuity):
    """The level is the caller's; off is the default."""
    source = BOUND + NEEDS + "def test_a(): pass"
    warned = vacuity(source, "--sglhw-vacuous", "warn")
    assert warned.parseoutcomes() == {"passed": 1}
    assert "test_it.py::test_a: passed without calling transfer_kv_direct" in warned.outlines
    assert "may prove nothing" not in vacuity(source, "-v").stdout.str()


def test_a_mark_can_say_why_no_kernel_is_called(vacuity):
    """With a reason, the test is not looked at."""
    assert vacuity(BOUND + "@requires_kvcacheio(vacuous_because='allocator')\ndef test_a(): pass").parseoutcomes() == {
        "passed": 1
    }


def test_capabilities_without_kernels_are_not_watched(vacuity):
    """Nobody can say what ``kv4`` has to call."""
    assert vacuity(BOUND + "@requires_kv4\ndef test_a(): pass").parseoutcomes() == {"passed": 1}


def test_a_lane_can_ask_for_it(run, pytester, vacuity):
    """The stricter of lane and setting counts."""
    pytester.makeconftest(
        """
        from pytest_sglhw.gates.policy import LANE_POLICY, LanePolicy
        def pytest_configure(config): config.stash[LANE_POLICY] = LanePolicy("cuda", vacuous="fail")
        """
    )
    assert vacuity(BOUND + NEEDS + "def test_a(): pass", "--sglhw-vacuous", "warn").parseoutcomes() == {"failed": 1}


def test_every_hook_comes_off_again(pytester, monkeypatch):
    """After the run functions, operators and finders are what they were."""
    pytester.makepyfile(kernels_here="def kernel(a, b=2, *, c=3): return a, b, c")
    pytester.syspathinsert()
    import kernels_here

    before = (kernels_here.kernel.__code__, kernels_here.kernel.__defaults__, kernels_here.kernel.__kwdefaults__)
    finders = list(sys.meta_path)
    watch = KernelWatch()
    watch.watch("kernels_here", ["kernel"], [])
    assert kernels_here.kernel(1) == (1, 2, 3)
    assert watch.called == {"kernel"}
    watch.close()
    kernel = kernels_here.kernel
    assert (kernel.__code__, kernel.__defaults__, kernel.__kwdefaults__) == before
    assert sys.meta_path == finders
    watch.reset()
    assert kernel(1) == (1, 2, 3)
    assert watch.called == set()


OPERATORS = """
import threading
import pytest
import torch
from pytest_sglhw import requires_kvcacheio

library = torch.library.Library("sgl_kernel", "DEF")
library.define("transfer_kv_direct(Tensor x) -> Tensor")
library.impl("transfer_kv_direct", lambda x: x + 1, "CPU")
packet = torch.ops.sgl_kernel.transfer_kv_direct
overload = packet.default
needs = requires_kvcacheio("transfer_kv_direct")

@needs
def test_packet(): assert packet(torch.zeros(1)) == 1
@needs
def test_overload(): assert overload(torch.zeros(1)) == 1
@needs
def test_thread():
    t = threading.Thread(target=overload, args=(torch.zeros(1),))
    t.start()
    t.join()
@needs
def test_replayed(): torch.cuda.CUDAGraph.replay.__get__(None)
@needs
def test_nothing(): pass
"""


def test_native_operators_are_watched(pytester, outcomes):
    """Calls through ``torch.ops``, by packet or overload, bound before the watch began."""
    pytest.importorskip("torch")
    pytester.makepyfile(OPERATORS)
    result = pytester.runpytest_subprocess("-p", "no:asyncio", "-v", "--sglhw-fake", "cuda", "--sglhw-vacuous", "fail")
    words = outcomes(result)
    assert words.pop("test_replayed") == "FAILED"
    assert words == {
        "test_packet": "PASSED",
        "test_overload": "PASSED",
        "test_thread": "PASSED",
        "test_nothing": "FAILED",
    }
