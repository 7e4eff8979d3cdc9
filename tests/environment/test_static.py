"""Static facts: what files, names and variables say, read from trees of files."""

from __future__ import annotations

import os

import pytest
from hostile import TENSORS, distribution, doctor, plant, torch_package, version

from pytest_sglhw.environment import static
from pytest_sglhw.registry.loading import built_in

ROWS = tuple(built_in().platforms.values())


def gathered(tmp_path, *names, **texts):
    """Facts of a root that holds these empty files, and these with a text."""
    for name in (*names, *texts):
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts.get(name, ""))
    return static.gather(ROWS, environ={}, root=str(tmp_path), paths=[])


#: files -> platforms that a driver offers devices for, hints.
NODES = {
    "nvidia": (("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"), {"cuda": ("/dev/nvidia0", "/dev/nvidia1")}),
    "control node alone": (("/dev/nvidiactl", "/dev/nvidia-uvm"), {}),
    "wsl2": (("/dev/dxg", "/usr/lib/wsl/lib/libcuda.so.1"), {"cuda": ("/usr/lib/wsl/lib/libcuda.so.1",)}),
    "wsl2 of another vendor": (("/dev/dxg",), {}),
    "jetson": (("/dev/nvhost-gpu",), {"cuda": ("/dev/nvhost-gpu",)}),
    "jetson thor": (("/dev/nvgpu/igpu0/ctrl",), {"cuda": ("/dev/nvgpu/igpu0",)}),
    "amd": (("/dev/kfd", "/dev/dri/renderD128"), {"rocm": ("/dev/kfd",)}),
    "toolkit of amd": (("/opt/rocm/bin/hipcc",), {}),
    "ascend": (("/dev/davinci0", "/dev/davinci_manager"), {"npu": ("/dev/davinci0",)}),
    "display alone": (("/dev/dri/card0", "/dev/dri/renderD128"), {}),
}


@pytest.mark.parametrize("machine", NODES)
def test_device_nodes_show_a_driver_and_toolkits_do_not(tmp_path, machine):
    """A control node, a shared node or a folder of programs offers no device."""
    files, nodes = NODES[machine]
    found = gathered(tmp_path, *files).nodes

    assert {name: hits for name, hits in found.items() if name != "mps"} == nodes


DRIVERS = {
    "module": ({"/sys/module/nvidia/version": "580.65.06\n"}, {"cuda": "580.65.06"}),
    "open module": (
        {"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  R\n"},
        {"cuda": "580.95.05"},
    ),
    "amd": ({"/sys/module/amdgpu/version": "6.16.13\n"}, {"rocm": "6.16.13"}),
    "in the kernel": ({"/sys/module/amdgpu/srcversion": "ABC\n"}, {}),
    "ascend": ({"/usr/local/Ascend/driver/version.info": "Version=25.2.0\nhal=7.35\n"}, {"npu": "25.2.0"}),
    "empty": ({"/sys/module/nvidia/version": ""}, {}),
}  # fmt: skip


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_version_of_a_driver_is_read_where_it_says_one(tmp_path, driver):
    """Without a version file there is none, and none is made up."""
    texts, versions = DRIVERS[driver]

    assert gathered(tmp_path, **texts).drivers == versions


#: The text of torch/version.py -> version, strings, whether it proves a CPU build.
TYPED = """
from typing import Optional
__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '2.13.0+cpu'
debug = False
cuda: Optional[str] = None
git_version = 'c'
hip: Optional[str] = None
rocm: Optional[str] = None
xpu: Optional[str] = None
"""
TYPED_ROCM = """
__version__ = '2.9.1+rocm6.4'
cuda: Optional[str] = None
hip: Optional[str] = '6.4.43484-1'
rocm: Optional[str] = '6.4.4'
"""
TEXTS = {
    "cpu": (version(__version__="2.13.0+cpu"), "2.13.0+cpu", {}, True),
    "of today": (TYPED, "2.13.0+cpu", {}, True),
    "rocm": (TYPED_ROCM, "2.9.1+rocm6.4", {"hip": "6.4.43484-1"}, False),
    "xpu": (version(__version__="2.9.1+xpu", xpu="20250301"), "2.9.1+xpu", {"xpu": "20250301"}, False),
    "jetson": (version(__version__="2.9.0a0+145a3a7bda.nv25.10", cuda="13.0"), "2.9.0a0+145a3a7bda.nv25.10",
               {"cuda": "13.0"}, False),
    "built at home": (version(__version__="2.9.0a0+gitdeadbee"), "2.9.0a0+gitdeadbee", {}, False),
    "nightly": (version(__version__="2.9.0.dev20250801+cu130", cuda="13.0"), "2.9.0.dev20250801+cu130",
                {"cuda": "13.0"}, False),
    "a cpu build that names cuda": (version(__version__="2.9.0+cpu", cuda="13.0"), "2.9.0+cpu", {"cuda": "13.0"},
                                    False),
    "an xpu build before its string": ("__version__ = '2.4.0+xpu'\ncuda = None\nhip = None\n", "2.4.0+xpu", {}, False),
    "no cuda line": ("__version__ = '2.9.0+cpu'\n", "2.9.0+cpu", {}, False),
    "no version": ("cuda = None\nhip = None\n", None, {}, False),
    "computed": ("import os\n__version__ = os.environ['X']\ncuda = os.environ.get('Y')\n", None, {}, False),
    "in a branch": ("if True:\n    __version__ = '2.9.0+cpu'\n    cuda = None\n", None, {}, False),
    "marks order": ("\ufeff__version__ = '2.9.0+cpu'\ncuda = None\n", "2.9.0+cpu", {}, True),
    "empty strings": (version(__version__="2.9.0+cpu", cuda="", hip=""), "2.9.0+cpu", {}, True),
    "chained": ("__version__ = '2.9.0+cpu'\ncuda = hip = None\n", "2.9.0+cpu", {}, True),
    "final": ("from typing import Final\n__version__: Final = '2.9.0+cpu'\ncuda: Final[None] = None\n", "2.9.0+cpu",
              {}, True),
    "explained": ("'Made by setup.py'\n__version__ = '2.9.0+cpu'\ndebug = bool(0)\ncuda = None\n", "2.9.0+cpu", {},
                  True),
    "with a c++ abi": (version(__version__="2.9.0+cpu.cxx11.abi"), "2.9.0+cpu.cxx11.abi", {}, True),
    "of a branch of that name": (version(__version__="2.9.0a0+cpugit"), "2.9.0a0+cpugit", {}, False),
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_the_version_file_is_read_as_text(tmp_path, monkeypatch, text):
    """What it does not say outright is left open, and nothing of torch is run."""
    source, found, strings, cpu_only = TEXTS[text]
    plant(tmp_path, {"torch/version.py": source, "torch/__init__.py": "raise SystemExit"})
    monkeypatch.syspath_prepend(tmp_path)
    build = static.read_torch_build()

    assert (build.version, dict(build.strings), build.cpu_only) == (found, strings, cpu_only)


#: What a version file may say after it has said that it is a CPU build.
LATER = {
    "bound again": "cuda = '13.0'",
    "computed": "cuda = str(13.0)",
    "a number": "hip = 7.0",
    "another word": "musa = find_musa()",
    "in a branch": "if True:\n    cuda = '13.0'",
    "in an expression": "(cuda := '13.0')",
    "from elsewhere": "from .real_version import *",
    "by its name": "from .real_version import cuda",
    "among the globals": "globals()['cuda'] = '13.0'",
    "two at once": "cuda, hip = '13.0', None",
    "added": "__version__ += '.cu130'",
    "deleted": "del cuda",
}


@pytest.mark.parametrize("how", LATER)
def test_what_a_version_file_says_later_is_not_passed_over(tmp_path, monkeypatch, how):
    """The last word counts; where that takes more than reading, the child is asked."""
    text = f"{version(__version__='2.9.0+cpu')}{LATER[how]}\n"
    plant(tmp_path, {"torch/version.py": text, "torch/__init__.py": ""})
    monkeypatch.syspath_prepend(tmp_path)

    assert not static.read_torch_build().cpu_only


BROKEN = {"no file": None, "no python": "__version__ = (", "null bytes": "cuda = None\0", "deep": "(" * 500 + ")" * 500}


@pytest.mark.parametrize("text", BROKEN)
def test_a_version_file_that_is_none_leaves_all_open(tmp_path, monkeypatch, text):
    """The child is asked instead."""
    plant(tmp_path, {"torch/__init__.py": ""} | ({"torch/version.py": BROKEN[text]} if BROKEN[text] else {}))
    monkeypatch.syspath_prepend(tmp_path)
    build = static.read_torch_build()

    assert (build.version, build.readable, build.cpu_only) == (None, False, False)


LIBRARIES = {
    "cpu": (("libtorch_cpu.so",), True),
    "cuda": (("libtorch_cpu.so", "libtorch_cuda.so"), False),
    "split cuda": (("libtorch_cpu.so", "libtorch_cuda_linalg.so"), False),
    "hip": (("libtorch_cpu.so", "libtorch_hip.so"), False),
    "xpu": (("libtorch_cpu.so", "libtorch_xpu.so"), False),
    "windows": (("torch_cpu.dll", "torch_cuda.dll"), False),
    "one library for all": (("libtorch.so",), False),
    "none": ((), False),
}


@pytest.mark.parametrize("build", LIBRARIES)
def test_where_the_version_says_nothing_the_libraries_do(tmp_path, monkeypatch, build):
    """A build of one's own has no ``+cpu``; an accelerated one brings the library of its accelerator."""
    libraries, cpu_only = LIBRARIES[build]
    files = {f"torch/lib/{name}": "" for name in libraries}
    plant(tmp_path, files | {"torch/__init__.py": "", "torch/version.py": version(__version__="2.9.0a0+git1")})
    monkeypatch.syspath_prepend(tmp_path)

    assert static.read_torch_build().cpu_only == cpu_only


@pytest.mark.parametrize("local", ["cu130", "rocm6.4", "xpu", "hpu.git1"])
def test_libraries_do_not_overrule_a_version_that_names_an_accelerator(tmp_path, monkeypatch, local):
    """One of the two is wrong, and reading does not tell which."""
    text = version(__version__=f"2.9.0+{local}")
    plant(tmp_path, {"torch/lib/libtorch_cpu.so": "", "torch/__init__.py": "", "torch/version.py": text})
    monkeypatch.syspath_prepend(tmp_path)

    assert not static.read_torch_build().cpu_only


def test_a_node_that_may_not_be_opened_is_said_to_be_closed(tmp_path, monkeypatch):
    """The user is not in the group of the device: the commonest reason for a driver without devices."""
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("kfd"))

    assert gathered(tmp_path, "/dev/kfd", "/dev/nvidia0").closed == ("/dev/kfd",)


def test_a_torch_that_shadows_the_installed_one_is_said(tmp_path):
    """What is imported is not what is installed."""
    files = torch_package(TENSORS, __version__="1.0.0+cpu") | distribution("torch", "2.11.0+cu130")
    seen = doctor(tmp_path, files)

    assert seen.record["torch"]["version"] == "1.0.0+cpu"
    place = tmp_path / "torch" / "__init__.py"
    sentence = f"torch 2.11.0+cu130 is installed, but torch 1.0.0+cpu is imported, from {place}"
    assert sentence in seen.record["disagreements"]
