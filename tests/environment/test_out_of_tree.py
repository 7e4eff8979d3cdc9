"""A platform that somebody adds by a row is one like the others: probe, masks, doctor, fakes, marks, pinning."""

from __future__ import annotations

import pytest
from hostile import TENSORS, doctor, namespace, torch_package

ROW = {
    "name": "mlu",
    "device_type": "mlu",
    "summary": "Cambricon MLUs",
    "aliases": ("cambricon",),
    "api": "mlu",
    "vendor_modules": ("torch_mlu",),
    "dispatch_keys": ("PrivateUse1",),
    "device_control_env_vars": (("MLU_VISIBLE_DEVICES",),),
    "archs": ({"source": "name", "pattern": r"(?i)mlu(\d+)", "arch": r"mlu\1"},),
    "arch_pattern": r"mlu\d+",
    "arch_example": "mlu590",
}
CAPABILITY = {"name": "mlu_kv", "summary": "kernels", "platforms": {"mlu": ""}, "probe": {"check": "gc:isenabled"}}
ADDS = f"""
def register(registry):
    registry.add_platform({ROW!r})
    registry.add_capability({CAPABILITY!r})
"""
#: An installed package that adds the row for everyone, the commands included.
INSTALLED = {
    "mlu_rows.py": ADDS,
    "mlu_rows-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: mlu-rows\nVersion: 1.0\n",
    "mlu_rows-1.0.dist-info/entry_points.txt": "[sglhw]\nmlu = mlu_rows:register\n",
}


def machine(count):
    """A CPU build of torch to which a vendor package adds devices and a version string."""
    extend = "import torch\ntorch.mlu, torch.version.mlu = mlu, '1.24'\n"
    code = namespace("mlu", available=count > 0, count=count, name="MLU590-M9")
    return torch_package(TENSORS, __version__="2.9.1+cpu") | {"torch_mlu/__init__.py": code + extend} | INSTALLED


def test_doctor_probes_it(tmp_path):
    """The vendor package is imported in the child, its devices tried, its capability climbed."""
    seen = doctor(tmp_path, machine(2))

    devices = [(d["name"], d["arch"], d["state"]) for d in seen.record["devices"]]
    assert (seen.record["platform"], seen.record["device_type"], seen.record["build"]) == ("mlu", "mlu", "mlu")
    assert devices == [("MLU590-M9", "mlu590", "available")] * 2
    assert (seen.state("mlu_kv"), seen.state("kvcacheio")) == ("available", "unavailable")
    assert seen.record["torch"]["mlu"] == "1.24"


def test_its_mask_is_the_reason_where_it_hides_every_device(tmp_path, monkeypatch):
    """As for the built-in platforms."""
    monkeypatch.setenv("MLU_VISIBLE_DEVICES", "")
    seen = doctor(tmp_path, machine(0))

    assert (seen.record["platform"], seen.record["masks"]) == ("cpu", {"MLU_VISIBLE_DEVICES": ""})
    reason = "torch 2.9.1+cpu with torch_mlu enumerates no mlu device; MLU_VISIBLE_DEVICES='' hides every device"
    assert seen.record["reason"] == reason


def test_a_vendor_package_that_breaks_is_said(tmp_path):
    """And the machine is what is left without it."""
    files = machine(1) | {"torch_mlu/__init__.py": "raise ImportError('libcnrt.so: cannot open shared object file')"}
    seen = doctor(tmp_path, files)

    error = "ImportError: libcnrt.so: cannot open shared object file"
    assert seen.record["platform"] == "cpu"
    assert f"torch_mlu is installed and does not import: {error}" in seen.record["disagreements"]


TESTS = """
import os, pytest
from pytest_sglhw import cuda_only, gpu_only, is_gpu, sglhw

@pytest.mark.mlu_only
def test_platform(sglhw_device): assert sglhw_device == "mlu:0"

@gpu_only
@sglhw(platforms="cambricon", archs="mlu590")
def test_general(): assert is_gpu

@pytest.mark.requires_mlu_kv
def test_capability(sglhw_environment): assert sglhw_environment.archs == ("mlu590",)

@cuda_only
def test_other(): raise AssertionError
"""


@pytest.fixture
def rows(pytester: pytest.Pytester) -> pytest.Pytester:
    """Tests of a project whose conftest adds the rows."""
    pytester.makeconftest(ADDS.replace("def register", "def pytest_sglhw_register"))
    pytester.makepyfile(TESTS)
    return pytester


@pytest.mark.parametrize("spec", ["mlu:mlu590*2", "cambricon:MLU590"])
def test_marks_and_fakes_know_it(rows, spec):
    """With strict markers, and with every warning an error."""
    result = rows.runpytest_subprocess(
        "-p", "sglhw", "-p", "no:asyncio", "-W", "error", "--strict-markers", "--sglhw-fake", spec
    )

    result.assert_outcomes(passed=3, skipped=1)


def test_its_mark_skips_elsewhere_with_the_reason(rows):
    """A mark of a row is no unknown name on another machine."""
    result = rows.runpytest_subprocess("-p", "sglhw", "-rs", "--sglhw-fake", "rocm", "-k", "test_platform")

    result.stdout.fnmatch_lines(["*mlu_only: the platform here is rocm, not mlu (--sglhw-fake rocm)*"])


@pytest.mark.parametrize(("mark", "words"), [
    ("mul_only", "*mul_only*mlu_only*"),
    ("mlu_only(nonsense=1)", "*'nonsense' is not a keyword of mlu_only. Valid: *"),
])  # fmt: skip
def test_a_slip_of_its_mark_is_refused(rows, mark, words):
    """A collection error that shows what is valid."""
    rows.makepyfile(
        f"import pytest\n@pytest.mark.mlu_only\ndef test_a(): pass\n@pytest.mark.{mark}\ndef test_b(): pass"
    )
    result = rows.runpytest_subprocess("-p", "sglhw", "--sglhw-fake", "mlu")

    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([words])


def test_a_wrong_arch_shows_one_of_its_own(rows):
    """The row's example."""
    result = rows.runpytest_subprocess("-p", "sglhw", "--sglhw-fake", "mlu:sm90")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*mlu has no arch 'sm90'. Valid: an arch such as mlu590.*"])


def test_workers_are_pinned_by_its_mask(rows):
    """Two workers, two devices, the row's variable."""
    pytest.importorskip("xdist")
    rows.makepyfile(
        """
        import os, pytest
        @pytest.mark.mlu_only
        @pytest.mark.parametrize("n", range(8))
        def test_it(n): assert os.environ["MLU_VISIBLE_DEVICES"] == os.environ["PYTEST_XDIST_WORKER"][2:]
        """
    )
    arguments = ("-p", "xdist", "-n", "2", "--sglhw-devices", "auto", "--sglhw-fake", "mlu*2")
    result = rows.runpytest_subprocess("-p", "sglhw", *arguments, timeout=120)

    result.assert_outcomes(passed=8)


def test_a_bad_row_names_who_added_it(rows):
    """A usage error, not a traceback."""
    rows.makeconftest("def pytest_sglhw_register(registry): registry.add_platform({'name': 'mlu', 'archs': [{}]})")
    result = rows.runpytest_subprocess("-p", "sglhw", "--sglhw-fake", "mlu")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *invalid row {'name': 'mlu', 'archs': [[]{}[]]} from hook *conftest.py*"])
