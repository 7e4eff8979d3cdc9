"""Nothing is available whose module isn't there, doesn't import or isn't the package that it is asked for."""

from __future__ import annotations

import pytest
from hostile import FLASHINFER, NATIVE, SGLANG, TENSORS, distribution, doctor, h100, namespace, torch_package

from pytest_sglhw.registry.loading import built_in

#: The rows with a rung that finds a package, and its module.
ROWS = {row.name: row.probe for row in built_in().capabilities.values() if row.probe and row.probe.distributions}
NAMELESS = {name for name, probe in ROWS.items() if not (probe.ops or probe.check)}


def test_each_row_of_a_package_names_its_module():
    """A distribution's metadata is not a package, and a module without operators or a check is known by its names."""
    assert [name for name, probe in ROWS.items() if not (probe.module or probe.check)] == []
    assert [name for name in NAMELESS if not ROWS[name].names] == []


@pytest.mark.parametrize("module", ["flashinfer", "deep_ep", "cutlass/cute", "gguf", "sglang/srt/utils"])
def test_an_empty_folder_is_no_package(tmp_path, module):
    """Python imports it as a namespace; whatever is asked of it is not available."""
    seen = doctor(tmp_path, h100() | {f"{module}/README": ""})

    wanted = [name for name, probe in ROWS.items() if module.replace("/", ".") in probe.modules]
    assert {seen.state(name) for name in wanted} == {"unavailable"}


def test_an_empty_folder_of_an_installed_package_is_broken(tmp_path):
    """What is installed and has lost its files is said, with the folder."""
    seen = doctor(tmp_path, h100() | distribution("flashinfer-python", "0.6.1") | {"flashinfer/README": ""})

    found = seen.record["capabilities"]["flashinfer"]
    assert (found["state"], found["reason"]) == (
        "broken", "flashinfer-python 0.6.1 is installed, but brings no module flashinfer",
    )  # fmt: skip
    assert found["evidence"] == [f"{tmp_path}/flashinfer is a folder without an __init__.py: no package"]


@pytest.mark.parametrize("module", ["flashinfer", "deep_ep"])
def test_an_empty_package_is_not_the_one_that_is_asked_for(tmp_path, module):
    """It imports and has none of the names."""
    seen = doctor(tmp_path, h100() | {f"{module}/__init__.py": ""})

    name = {"deep_ep": "deepep"}.get(module, module)
    lacking = ", ".join(ROWS[name].names)
    assert (seen.state(name), seen.reason(name)) == ("broken", f"{module} imports and has no {lacking}")


def test_a_module_that_somebody_makes_is_no_package(tmp_path):
    """No file is behind it."""
    made = (
        "import sys, types, importlib.machinery as m\n"
        "class F:\n"
        "    @staticmethod\n"
        "    def find_spec(name, *a):\n"
        "        return m.ModuleSpec(name, F, is_package=True) if name == 'flashinfer' else None\n"
        "    @staticmethod\n"
        "    def create_module(spec): return None\n"
        "    @staticmethod\n"
        "    def exec_module(module): module.BatchDecodeWithPagedKVCacheWrapper = 1\n"
        "sys.meta_path.insert(0, F)\n"
    )
    seen = doctor(tmp_path, h100() | {"sitecustomize.py": made})

    assert seen.state("flashinfer") == "broken"
    assert seen.reason("flashinfer") == "importable, not native: flashinfer has no file: it is no package"


#: SGLang's files -> the state of what it does by itself.
SGLANGS = {
    "imports": (SGLANG, "available"),
    "not there": ({}, "unavailable"),
    "metadata alone": (distribution("sglang", "0.5.23"), "broken"),
    "aborts": (SGLANG | {"sglang/__init__.py": "import os; os.abort()"}, "unknown"),
    "hangs": (SGLANG | {"sglang/__init__.py": "import time; time.sleep(600)"}, "unknown"),
    "raises": (SGLANG | {"sglang/__init__.py": "raise RuntimeError('no')"}, "broken"),
    "empty": (SGLANG | {"sglang/srt/utils/__init__.py": ""}, "broken"),
}
ON_SGLANG = ("kv4", "dcp", "weight_cache", "pynccl", "awq", "hicache_unified")


@pytest.mark.parametrize("case", SGLANGS)
def test_what_sglang_does_is_there_where_sglang_imports(tmp_path, case):
    """Its metadata proves nothing."""
    files, state = SGLANGS[case]
    seen = doctor(tmp_path, h100() | files)

    assert {name: seen.state(name) for name in ON_SGLANG} == dict.fromkeys(ON_SGLANG, state)
    assert (seen.state("elastic_ep") == "available") == (state == "available" or case == "empty")


def test_the_evidence_of_a_feature_is_that_of_a_package(tmp_path):
    """What is installed, where it was found, from where it was imported."""
    seen = doctor(tmp_path, h100() | SGLANG)

    place = tmp_path / "sglang/srt/utils/__init__.py"
    assert seen.record["capabilities"]["kv4"]["evidence"] == [
        "sglang 0.5.23 is installed",
        f"sglang.srt.utils is at {place}",
        f"sglang.srt.utils imports from {place}",
    ]


def test_a_feature_on_foreign_kernels_needs_sglang_as_well(tmp_path):
    """GGUF is SGLang's; the reader of its files alone is not it."""
    reader = {"gguf/__init__.py": "class GGUFReader: pass\n"}

    assert doctor(tmp_path / "with", h100() | SGLANG | reader).state("gguf") == "available"
    without = doctor(tmp_path / "without", h100() | reader | distribution("sglang", "0.5.23"))
    assert without.reason("gguf") == "sglang 0.5.23 is installed, but brings no module sglang.srt.utils"


def test_a_module_with_a_getattr_of_its_own_is_judged_by_what_it_has(tmp_path):
    """One that raises something else than ``AttributeError`` for unknown names works all the same."""
    raises = "\ndef __getattr__(name): raise RuntimeError(name)\n"
    code = FLASHINFER["flashinfer/__init__.py"] + raises
    seen = doctor(tmp_path, h100() | FLASHINFER | {"flashinfer/__init__.py": code})

    assert seen.state("flashinfer") == "available", seen.reason("flashinfer")


def test_a_package_that_says_there_is_none_of_it_is_broken(tmp_path):
    """Its own words don't make it absent."""
    says = "raise ModuleNotFoundError(\"No module named 'flashinfer'\", name='flashinfer')"
    seen = doctor(tmp_path, h100() | FLASHINFER | {"flashinfer/__init__.py": says})

    assert seen.state("flashinfer") == "broken", seen.reason("flashinfer")


def test_a_torch_that_says_there_is_no_torch_is_no_cpu(tmp_path):
    """Its files are there."""
    says = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
    seen = doctor(tmp_path, torch_package("", cuda="13.0") | {"torch/__init__.py": says})

    assert (seen.status, seen.record["platform"]) == (3, "unknown")
    assert seen.record["reason"] == "import of torch raised ModuleNotFoundError: No module named 'torch'"


#: How a package ends the process after its import: while another one is imported.
LATE = {
    "thread": "import os, sys, threading, time\n"
    "def later():\n"
    "    while 'deep_ep' not in sys.modules: time.sleep(0.01)\n"
    "    os.abort()\n"
    "threading.Thread(target=later, daemon=True).start()\n",
    "alarm": "import signal; signal.alarm(1)\n",
}
#: The other one, whose import goes well by itself.
SLOW = {
    "deep_ep/__init__.py": "import sys, time\n"
    "if 'flashinfer' in sys.modules: time.sleep(6)\n"
    "class Buffer: pass\n"
    "class Config: pass\n"
}


@pytest.mark.parametrize("how", LATE)
def test_a_late_crash_is_charged_to_who_did_it(tmp_path, how):
    """What was being asked is asked again by itself; the package that ended the child is not available."""
    late = {"flashinfer/__init__.py": LATE[how] + FLASHINFER["flashinfer/__init__.py"]}
    seen = doctor(tmp_path, h100() | FLASHINFER | late | SLOW, timeout=8)

    signal = {"thread": "SIGABRT", "alarm": "SIGALRM"}[how]
    how_seen = f"the child process was killed by {signal} during import of deep_ep, which goes well by itself"
    assert seen.state("deepep") == "available", seen.reason("deepep")
    assert seen.state("flashinfer") == "unknown"
    assert seen.reason("flashinfer") == f"flashinfer works and then ends its process: {how_seen}"
    assert f"flashinfer ended the probe's child late: {how_seen}" in seen.record["disagreements"]


def test_a_late_crash_with_several_suspects_names_them_all(tmp_path):
    """Nobody is charged with what may have been somebody else's doing."""
    late = {"flashinfer/__init__.py": LATE["thread"] + FLASHINFER["flashinfer/__init__.py"]}
    seen = doctor(tmp_path, h100() | SGLANG | FLASHINFER | late | SLOW, timeout=8)

    assert (seen.state("deepep"), seen.state("kv4")) == ("available", "available")
    found = [sentence for sentence in seen.record["disagreements"] if "ended the probe's child late" in sentence]
    assert [sentence.partition(" ended")[0] for sentence in found] == ["sglang or flashinfer"]


def test_a_vendor_package_that_closes_what_it_inherits_costs_nothing(tmp_path):
    """The requests come in by a descriptor that it does not reach."""
    npu = {"torch_npu/__init__.py": "import os; os.closerange(3, 256)"}
    seen = doctor(tmp_path, h100() | FLASHINFER | npu)

    assert (seen.status, seen.record["platform"], seen.state("flashinfer")) == (0, "cuda", "available")


#: A feature of SGLang on a package of somebody else -> that package, and its module.
FOREIGN = {
    "gguf": ("gguf", "gguf", ""),
    "fa3": ("sglang-kernel or sgl-kernel", "sgl_kernel.flash_attn", "sglang-kernel"),
    "fa4": ("nvidia-cutlass-dsl", "cutlass.cute", ""),
    "jit_hicache": ("apache-tvm-ffi", "tvm_ffi", ""),
    "hisparse": ("sglang-kernel or sgl-kernel or sglang-kernel-xpu or sgl-kernel-xpu", "sgl_kernel.kvcacheio", ""),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_the_package_that_a_feature_lacks_is_named(tmp_path, name):
    """It is not SGLang that lacks a module; where the package is installed without it, that one is broken."""
    package, module, first = FOREIGN[name]
    without = doctor(tmp_path / "without", h100() | SGLANG)
    broken = doctor(tmp_path / "broken", h100() | SGLANG | distribution(first or package.partition(" ")[0], "1.0"))

    assert (without.state(name), without.reason(name)) == (
        "unavailable", f"no module {module}: {package} is not installed",
    )  # fmt: skip
    assert (broken.state(name), broken.reason(name)) == (
        "broken", f"{first or package.partition(' ')[0]} 1.0 is installed, but brings no module {module}",
    )  # fmt: skip


def test_kernels_for_ascend_are_native_operators(tmp_path):
    """The module's Python alone moves nothing."""
    module = "class TransferDirection: pass\ndef transfer_kv_dim_exchange(*a, **k): pass\n"
    files = {"torch_npu/__init__.py": "", "sgl_kernel_npu/__init__.py": "", "sgl_kernel_npu/kvcacheio.py": module}
    torch = namespace("npu", name="Ascend910B3") + TENSORS
    registered = NATIVE.format(prefix="npu::transfer_kv_dim_exchange", key="PrivateUse1")

    native = doctor(tmp_path / "native", torch_package(torch + registered) | files)
    python = doctor(tmp_path / "python", torch_package(torch + NATIVE.format(prefix="no::", key="")) | files)
    assert native.state("kvcacheio_npu") == "available"
    assert python.reason("kvcacheio_npu") == (
        "importable, not native: no operator npu::transfer_kv_dim_exchange with a kernel for PrivateUse1"
    )
