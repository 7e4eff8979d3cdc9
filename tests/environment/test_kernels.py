"""Situations of an installed (or half installed) kernel package, on a machine that should have its kernels."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hostile import ROWS, TENSORS, distribution, doctor, h100, namespace, plant, torch_package

from pytest_sglhw.registry.installed import where_is

#: Kernels that work on the rows of ``hostile.ROWS``.
WORKS = """
def transfer_kv_per_layer(src_k, dst_k, src_v, dst_v, src, dst, item_size):
    dst_k[dst] = src_k[src]
    dst_v[dst] = src_v[src]
"""
REFUSES = """
def transfer_kv_per_layer(*arguments):
    raise NotImplementedError("Could not run 'sgl_kernel::transfer_kv_per_layer' with arguments of 'CPU'.")
"""
MOCK = "import sys, unittest.mock\nsys.modules[__name__] = unittest.mock.MagicMock()\n"
#: SGLang's own test helper: a finder that makes a mock of whatever is asked below ``sgl_kernel``.
STUB = """
import importlib.abc, importlib.machinery, sys
from unittest.mock import MagicMock
class Loader(importlib.abc.Loader):
    def create_module(self, spec): return None
    def exec_module(self, module): module.__getattr__ = lambda name: MagicMock()
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "sgl_kernel":
            return importlib.machinery.ModuleSpec(name, Loader(), is_package=True)
sys.meta_path.insert(0, Finder())
"""
ONE_LEVEL = """
import ctypes
try:
    raise OSError("libnvrtc.so.13: cannot open shared object file: No such file or directory")
except OSError as error:
    raise OSError("Could not load this library: /lib/common_ops.abi3.so") from error
"""


def critical(cause: str, found: str = "['common_ops.abi3.so']") -> str:
    """What the real ``sgl_kernel/__init__.py`` raises where its library does not load."""
    text = (
        "\n[sgl_kernel] CRITICAL: Could not load any common_ops library!\n"
        f"Attempted locations: found files: {found}\n - ImportError: {cause}\n"
        " - ModuleNotFoundError: No module named 'common_ops'\n"
    )
    return f"raise ImportError({text!r})"


def library(name: str) -> str:
    """What the loader says of a library that is not there."""
    return f"{name}: cannot open shared object file: No such file or directory"


def package(init: str = "", kvcacheio: str = WORKS) -> dict[str, str]:
    """The files of a kernel package."""
    return {"sgl_kernel/__init__.py": init, "sgl_kernel/kvcacheio.py": kvcacheio}


CUDA_13 = distribution("sglang-kernel", "0.4.10")
CUDA_12 = distribution("sgl-kernel", "0.3.21")
NO_OPS = torch_package(namespace("cuda") + ROWS, cuda="13.0")

#: files -> state of kvcacheio, words of its reason, words of its remedy.
SITUATIONS = {
    "1 nothing": (h100(), "unavailable", "is not installed", "install sglang-kernel"),
    "2 for CUDA 13, no library": (
        h100() | CUDA_13 | package(critical(library("libnvrtc.so.13"))),
        "broken", "libnvrtc.so.13", "make these libraries loadable: libnvrtc.so.13",
    ),
    "3 for CUDA 12, no library": (
        h100() | CUDA_12 | package(critical(library("libnvrtc.so.12"))),
        "broken", "libnvrtc.so.12", "make these libraries loadable: libnvrtc.so.12",
    ),
    "4 placeholder": (
        h100() | distribution("sglang-kernel-xpu", "0.0.1") | {"dummy.py": ""},
        "broken", "sglang-kernel-xpu 0.0.1 is installed, but brings no module sgl_kernel.kvcacheio",
        "install a release that has sgl_kernel.kvcacheio",
    ),
    "6 Python of it alone": (NO_OPS | package(), "broken", "importable, not native: no operator", "native kernels"),
    "7 library loaded by path": (
        h100() | CUDA_13 | package(ONE_LEVEL),
        "broken", "OSError: Could not load this library", "make these libraries loadable: libnvrtc.so.13",
    ),
    "8 undefined symbol": (
        h100() | CUDA_13 | package(critical("undefined symbol: _ZN3c104cuda20CUDACachingAllocator9allocatorE")),
        "broken", "undefined symbol: _ZN3c104cuda20CUDACachingAllocator9allocatorE", "repair what makes importing",
    ),
    "9 complete": (h100() | CUDA_13 | package(), "available", "cuda supports kvcacheio", ""),
    "9 for another backend": (
        h100(key="CPU") | CUDA_13 | package(), "broken", "no operator sgl_kernel::transfer_kv_", "native kernels"
    ),
    "9 refuses in use": (
        h100() | CUDA_13 | package(kvcacheio=REFUSES),
        "broken", "raised NotImplementedError: Could not run", "repair what makes the check",
    ),
    "9 leaves wrong bytes": (
        h100() | CUDA_13 | package(kvcacheio="def transfer_kv_per_layer(*arguments): pass\n"),
        "broken", "WrongBytesError: transfer_kv_per_layer, K left 192 of 512 values wrong", "repair",
    ),
    "9 torch fails first": (
        h100("del arange\n") | CUDA_13 | package(),
        "unknown", "could not be made: AttributeError: module 'torch' has no attribute 'arange'", "repair torch",
    ),
    "10 empty folder": (
        h100() | {"sgl_kernel/README": ""}, "unavailable", "no module sgl_kernel.kvcacheio", "install sglang-kernel"
    ),
    "11 plain file": (
        h100() | {"sgl_kernel.py": ""}, "unavailable", "no module sgl_kernel.kvcacheio", "install sglang-kernel"
    ),
    "12 source tree": (
        h100() | package(critical("no file", "[]")), "broken", "CRITICAL: Could not load any common_ops library!",
        "repair what makes importing",
    ),
    "13 stray common_ops": (
        NO_OPS | CUDA_13 | package("import common_ops\n") | {"common_ops.py": ""},
        "broken", "importable, not native: no operator", "native kernels",
    ),
    "14 older release": (
        h100(prefix="sgl_kernel::transfer_kv_per") | CUDA_12 | package(),
        "unavailable", "of 13 kernels are not there for CUDA: ", "install a release of",
    ),
    "14 older Python over newer library": (
        h100() | CUDA_12 | package(kvcacheio="def transfer_kv(*arguments): pass\n"),
        "broken", "ImportError: cannot import name 'transfer_kv_per_layer'", "repair",
    ),
    "15 raises": (h100() | package("raise RuntimeError('x')"), "broken", "raised RuntimeError: x", "repair"),
    "16 stubbed": (
        h100() | {"sitecustomize.py": STUB}, "broken", "importable, not native: sgl_kernel.kvcacheio is a mock", ""
    ),
    "16 mocked module": (
        h100() | package(kvcacheio=MOCK), "broken", "importable, not native: sgl_kernel.kvcacheio is a mock", ""
    ),
    "16 mocked package": (h100() | package(MOCK), "broken", "", ""),
}  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_kernel_package_has_its_true_state(tmp_path, situation):
    """Importable is not available, not installed is not broken, and what would help is said."""
    files, state, words, remedy = SITUATIONS[situation]
    seen = doctor(tmp_path, files)

    found = seen.record["capabilities"]["kvcacheio"]
    assert (found["state"], words in found["reason"]) == (state, True), found
    assert remedy in found["remedy"]


#: The libraries that the real wheel asks for, in the order in which it misses them.
LIBRARIES = (
    "libc10_cuda.so",
    "libcuda.so.1",
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libtorch_cuda.so",
    "libcudart.so.12",
)


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_missing_library_is_named(tmp_path, name):
    """Supplied one at a time, each that is still missing is the remedy."""
    seen = doctor(tmp_path, h100() | CUDA_13 | package(critical(library(name))))

    found = seen.record["capabilities"]["kvcacheio"]
    assert (found["state"], found["remedy"]) == ("broken", f"make these libraries loadable: {name}")


def test_a_module_is_found_without_importing_its_parent(tmp_path, monkeypatch):
    """``find_spec`` on a dotted name imports the parent, which may raise or hang; we never do."""
    for name, text in (package("raise SystemExit") | {"plain.py": "", "folder/below/x": ""}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    assert where_is("sgl_kernel.kvcacheio") == str(tmp_path / "sgl_kernel/kvcacheio.py")
    assert where_is("folder.below") == str(tmp_path / "folder/below")
    assert [where_is(name) for name in ("sgl_kernel.nothing", "plain.below", "absent", "absent.below")] == [None] * 4


def test_what_only_this_process_finds_is_not_installed(tmp_path):
    """A stub that a test module put into the running process says nothing about a fresh one, and breaks nothing."""
    code = f"{STUB}\nimport pytest_sglhw\nprint(pytest_sglhw.probe_environment(['kvcacheio']).capability('kvcacheio'))"
    environ = plant(tmp_path, h100() | {"stubbed.py": code})
    done = subprocess.run(
        [sys.executable, tmp_path / "stubbed.py"], env=environ, capture_output=True, text=True, check=True
    )

    assert "state='unavailable'" in done.stdout, done.stdout
    assert "no module sgl_kernel in a fresh process; this one finds it through __main__.Loader" in done.stdout


def test_two_distributions_of_one_module_are_said(tmp_path):
    """Files of both lie in one folder, and what fails may be the mixture."""
    mixed = "raise ImportError('undefined symbol: _ZN3c10')"
    seen = doctor(tmp_path, h100() | CUDA_12 | CUDA_13 | package(mixed))

    found = seen.record["capabilities"]["kvcacheio"]
    assert found["state"] == "broken"
    assert found["evidence"][:3] == [
        "sglang-kernel 0.4.10 is installed",
        "sgl-kernel 0.3.21 is installed",
        "they bring the same module sgl_kernel.kvcacheio: the one installed last overwrote the other",
    ]


def test_each_kernel_has_its_own_state(tmp_path):
    """An old release has some kernels and lacks others."""
    seen = doctor(tmp_path, h100(prefix="sgl_kernel::transfer_kv_per") | package())

    kernels = seen.record["kernels"]["kvcacheio"]
    assert kernels["transfer_kv_per_layer"]["state"] == "available"
    assert kernels["transfer_kv_all_layer"]["state"] == "unavailable"


def test_doctor_says_what_is_missing_even_where_the_platform_settles_it(tmp_path):
    """On a CPU machine the kernels are unavailable, and the evidence names the library they would lack."""
    cpu = torch_package(TENSORS, __version__="2.11.0+cpu")
    seen = doctor(tmp_path, cpu | CUDA_13 | package(critical(library("libnvrtc.so.13"))))

    found = seen.record["capabilities"]["kvcacheio"]
    assert found["state"] == "unavailable"
    assert "make these libraries loadable: libnvrtc.so.13" in found["evidence"]
