"""Mistakes that are found while files are collected, and warned of by name."""

from __future__ import annotations

import pytest

from pytest_sglhw.gates.contradiction import contradiction
from pytest_sglhw.gates.marks import MarkReader
from pytest_sglhw.registry.loading import built_in

REGISTRY = built_in()
READER = MarkReader(REGISTRY)
mark = pytest.mark

CONTRADICTORY = [
    [mark.cuda_only, mark.rocm_only],
    [mark.cpu_only, mark.gpu_only],
    [mark.cpu_only, mark.requires_kvcacheio],
    [mark.sglhw(platforms=("cuda", "rocm")), mark.sglhw(platforms="xpu")],
    [mark.rocm_only, mark.sglhw(min_arch="sm90")],
    [mark.cuda_only, mark.sglhw(archs="gfx942")],
    [mark.sglhw("kv4", platforms="rocm")],
]
SOUND = [
    [mark.cuda_only, mark.requires_kvcacheio, mark.sglhw(archs=("sm90", "gfx942"))],
    [mark.cpu_only, mark.requires_kvcacheio(otherwise="raise")],
    [mark.cpu_only, mark.cuda_only(otherwise="raise", raises=RuntimeError)],
    [mark.sglhw(platforms=("cuda", "rocm")), mark.rocm_only],
    [mark.sglhw(archs="bmg"), mark.xpu_only],
    [mark.sglhw(archs=("sm90", "sm100")), mark.sglhw(archs="sm100", min_arch="sm90")],
    [mark.sglhw(archs="sm90"), mark.sglhw(archs="sm100", otherwise="raise", raises=RuntimeError)],
]


def needs(marks):
    return tuple(READER.need(m.mark) for m in marks)


@pytest.mark.parametrize("marks", CONTRADICTORY)
def test_marks_that_no_machine_meets(marks):
    """Platforms, capabilities and archs that exclude each other."""
    assert contradiction(needs(marks), REGISTRY)


@pytest.mark.parametrize("marks", SOUND)
def test_marks_that_some_machine_meets(marks):
    """A mark that must raise elsewhere excludes nothing."""
    assert contradiction(needs(marks), REGISTRY) is None


def test_a_contradiction_says_which_marks(run):
    """The whole warning, once for all tests with these marks."""
    source = """
        import pytest
        pytestmark = [pytest.mark.cuda_only, pytest.mark.rocm_only]
        def test_a(): pass
        def test_b(): pass
    """
    result = run(source, fake="cpu")
    text = "no machine has all that cuda_only, rocm_only ask for: cuda_only holds on cuda and rocm_only holds on rocm."
    result.stdout.fnmatch_lines([f"*PytestSglhwWarning: {text}"])
    result.assert_outcomes(skipped=2, warnings=1)


def test_with_warnings_as_errors_a_contradiction_is_a_collection_error(run):
    """The file is named; nothing crashes."""
    source = "import pytest\n@pytest.mark.cuda_only\n@pytest.mark.rocm_only\ndef test_a(): pass"
    result = run(source, "-W", "error", fake="cpu")
    text = "no machine has all that rocm_only, cuda_only ask for: rocm_only holds on rocm and cuda_only holds on cuda."
    assert f"test_it.py::test_a: {text}" in result.outlines
    assert result.ret == pytest.ExitCode.INTERRUPTED


TORCH = """
class cuda:
    made = False
    @classmethod
    def is_initialized(cls): return cls.made
"""


STUBS = {
    "mock": "import sys, unittest.mock\nsys.modules['torch'] = unittest.mock.MagicMock()",
    "raises": "import sys, types\n"
    "class Torch(types.ModuleType):\n    def __getattr__(self, name): raise RuntimeError(name)\n"
    "sys.modules['torch'] = Torch('torch')",
}


@pytest.mark.parametrize("stub", STUBS)
def test_a_stub_of_torch_has_no_context(pytester, stub):
    """It answers, or refuses, whatever it is asked."""
    pytester.makepyfile(conftest=STUBS[stub], test_a="def test_a(): pass")
    result = pytester.runpytest_subprocess("-p", "sglhw", "-p", "no:asyncio", "-p", "no:hypothesispytest")

    result.assert_outcomes(passed=1, warnings=0)


def test_a_context_of_a_conftest_is_not_said_of_nobody(pytester):
    """No file was collected by then."""
    pytester.makepyfile(torch=TORCH, conftest="import torch\ntorch.cuda.made = True", test_a="def test_a(): pass")
    result = pytester.runpytest_subprocess("-p", "sglhw", "-p", "no:asyncio", "-p", "no:hypothesispytest")

    text = "what is imported before any file, such as a conftest.py, created a cuda context"
    result.stdout.fnmatch_lines([f"*PytestSglhwWarning: {text}*"])


def test_a_module_that_creates_a_device_context_is_named(run, pytester):
    """The file whose import did it, not the ones after it."""
    pytester.makepyfile(torch=TORCH, test_a="import torch\ndef test_a(): pass")
    pytester.makepyfile(test_z="def test_z(): pass")
    result = pytester.runpytest_subprocess("-p", "no:asyncio", "-p", "no:hypothesispytest")
    result.assert_outcomes(passed=2)
    pytester.makepyfile(test_b="import torch\ntorch.cuda.made = True\ndef test_b(): pass")
    result = pytester.runpytest_subprocess("-p", "no:asyncio", "-p", "no:hypothesispytest")
    result.assert_outcomes(passed=3, warnings=1)
    text = (
        "test_b.py created a cuda context while it was collected. From here on a forked child can't use the device, "
        "and every worker holds memory on it. Move the call into a test or a fixture."
    )
    result.stdout.fnmatch_lines([f"*PytestSglhwWarning: {text}"])
