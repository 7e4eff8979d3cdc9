"""Faked builds of torch: the platform is what the build and the enumerated devices say together."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hostile import TENSORS, doctor, namespace, torch_package

from pytest_sglhw.environment.records import Environment

CUDA, NONE = namespace("cuda", name="NVIDIA H100"), namespace("cuda", available=False, count=0)
XPU = namespace("xpu", name="Intel(R) Arc(TM) B580 Graphics")
MUSA = namespace("musa", major=3, minor=1, name="MTT S5000")
MPS = """
class mps:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
class backends:
    class mps:
        get_name = staticmethod(lambda: "Apple M3 Max")
"""
HPU = "class hpu:\n    is_available = staticmethod(lambda: True)\n"

NO_ACCELERATOR = "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available."
NO_NPU = "RuntimeError: torch_npu detected, but NPU device is not available or visible."
NO_HPU = "ImportError: Habana frameworks detected, but failed to import 'habana_frameworks.torch.hpu'."


class Build(NamedTuple):
    """A faked torch: its code and version strings, what it is, and what SGLang 0.5.23 takes it for."""

    code: str
    strings: dict[str, str | None]
    platform: str
    build: str
    arch: str | None = None
    true: str = ""
    """Those of SGLang's predicates that are true, or an error that ``is_npu`` raises."""
    device: str = NO_ACCELERATOR
    current: str = "unknown"
    disagrees: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    """Modules planted beside torch."""


#: Every build of torch that was tried on SGLang itself, with its own answers, and four more.
BUILDS = {
    "none": Build(NONE, {"__version__": "2.11.0+cpu"}, "cpu", "cpu"),
    "cpu_engine": Build(NONE, {"__version__": "2.11.0+cpu"}, "cpu", "cpu", None, "is_cpu", "cpu", "cpu"),
    "cuda_build_no_driver": Build(NONE, {"cuda": "13.0"}, "cpu", "cuda"),
    "cuda_h100": Build(CUDA, {"cuda": "13.0"}, "cuda", "cuda", "sm90", "is_cuda", "cuda", "cuda"),
    "cuda_b200": Build(
        namespace("cuda", major=10, name="NVIDIA B200"), {"cuda": "13.0"}, "cuda", "cuda", "sm100",
        "is_cuda", "cuda", "cuda",
    ),
    "cuda_h100+cpu_engine": Build(
        CUDA, {"cuda": "13.0"}, "cuda", "cuda", "sm90", "is_cuda is_cpu", "cpu", "cpu",
        ("is_cpu() says True; this machine is cuda", "get_device() says 'cpu'; this machine's device type is 'cuda'",
         "current_platform says 'cpu'; this machine is cuda"),
    ),
    "rocm_build_no_gpu": Build(
        NONE, {"hip": "7.0"}, "cpu", "rocm", None, "is_hip",
        disagrees=("is_hip() says True; this machine is cpu",),
    ),
    "rocm_mi300": Build(
        namespace("cuda", name="AMD Instinct MI300X", minor=4), {"hip": "7.0"}, "rocm", "rocm", "gfx942",
        "is_hip", "cuda", "rocm",
    ),
    "both_versions": Build(
        CUDA, {"cuda": "13.0", "hip": "7.0"}, "rocm", "rocm", "gfx942", "is_cuda is_hip", "cuda", "rocm",
        ("is_cuda() says True; this machine is rocm",),
    ),
    "cuda_avail_no_version": Build(
        CUDA, {}, "cuda", "cpu", "sm90", "", "cuda", "cuda", ("is_cuda() says False; this machine is cuda",)
    ),
    "sail": Build(
        namespace("cuda", name="ZW100", major=8), {"cuda": "12.8"}, "cuda", "cuda", "sm80",
        "is_cuda is_sail", "cuda", "sail",
        ("is_sail() says True; this machine is cuda", "current_platform says 'sail'; this machine is cuda"),
    ),
    "xpu": Build(XPU, {"xpu": "20250300"}, "xpu", "xpu", "bmg", "is_xpu", "xpu", "xpu"),
    "xpu+cuda": Build(
        CUDA + XPU, {"cuda": "13.0"}, "cuda", "cuda", "sm90", "is_cuda is_xpu", "cuda", "cuda",
        ("is_xpu() says True; this machine is cuda",),
    ),
    "npu_ok": Build(
        namespace("npu", name="Ascend910B3"), {}, "npu", "cpu", "ascend910b", "is_npu", "npu", "npu"
    ),
    "npu_no_device": Build(
        namespace("npu", available=False, count=0), {}, "cpu", "cpu", None, NO_NPU, NO_NPU, "unknown",
        (f"is_npu() raises {NO_NPU}", f"get_device() raises {NO_NPU}"),
    ),
    "musa_no_torchada": Build(
        MUSA, {"musa": "4.3.0"}, "musa", "musa", "mp31", "", NO_ACCELERATOR, "unknown",
        ("is_musa() says False; this machine is musa", f"get_device() raises {NO_ACCELERATOR}",
         "current_platform says 'unknown'; this machine is musa"),
    ),
    "musa": Build(MUSA, {"musa": "4.3.0"}, "musa", "musa", "mp31", "is_musa", "musa", "musa"),
    "mps": Build(MPS, {}, "mps", "cpu", "m3", "is_mps", "mps", "mps"),
    "hpu": Build(
        HPU, {}, "hpu", "cpu", None, "is_hpu", NO_ACCELERATOR, "unknown",
        (f"get_device() raises {NO_ACCELERATOR}", "current_platform says 'unknown'; this machine is hpu"),
    ),
    "hpu_pkg_only": Build(
        NONE, {"__version__": "2.11.0+cpu"}, "cpu", "cpu", None, "", NO_HPU, "unknown",
        (f"get_device() raises {NO_HPU}",), ("habana_frameworks/__init__.py",),
    ),
    "musa_no_device": Build(namespace("musa", available=False, count=0), {"musa": "4.3"}, "cpu", "musa"),
    "no_namespace": Build("", {"cuda": "13.0"}, "cpu", "cuda"),
    "npu_a3": Build(namespace("npu", name="Ascend910_9362"), {}, "npu", "cpu", "ascend910c", "is_npu", "npu", "npu"),
    "empty_version": Build(NONE, {"cuda": "", "hip": ""}, "cpu", "cpu"),
}  # fmt: skip

PREDICATES = ("is_cuda", "is_hip", "is_xpu", "is_npu", "is_musa", "is_mps", "is_hpu", "is_cpu", "is_sail")


def sglang(build: Build) -> dict[str, str]:
    """The files of an SGLang that gives the answers of a build."""
    answers = {name: _raises(build.true) if name == "is_npu" else "" for name in PREDICATES}
    answers = {name: code or f"return {name in build.true.split()}" for name, code in answers.items()}
    answers["get_device"] = _raises(build.device) or f"return {build.device!r}"
    return {
        "sglang/__init__.py": "",
        "sglang/srt/__init__.py": "",
        "sglang/srt/utils.py": "".join(f"def {name}(): {code}\n" for name, code in answers.items()),
        "sglang/srt/platforms.py": f"class current_platform: device_name = {build.current!r}\n",
    }


def _raises(text: str) -> str:
    error, colon, message = text.partition(": ")
    return f"raise {error}({message!r})" if colon else ""


@pytest.mark.parametrize("name", BUILDS)
def test_a_faked_build_gives_the_true_platform_and_lists_what_sglang_takes_it_for(tmp_path, name):
    """A version string decides between CUDA and ROCm, no build alone makes a device, and SGLang is only heard."""
    build = BUILDS[name]
    files = torch_package(build.code + TENSORS, **build.strings) | sglang(build) | dict.fromkeys(build.more, "")
    seen = doctor(tmp_path, files, "--full")

    archs = [device["arch"] for device in seen.record["devices"]] or [None]
    found = (seen.status, seen.record["platform"], seen.record["build"], archs[0])
    assert found == (0, build.platform, build.build, build.arch)
    said = [sentence for sentence in seen.record["disagreements"] if "SGLang" in sentence]
    assert said == [f"SGLang's {sentence}" for sentence in build.disagrees]


DISAGREEMENTS = {
    "both_versions": "torch carries several version strings (hip 7.0 and cuda 13.0); taken as rocm",
    "xpu+cuda": "torch enumerates more than one kind of accelerator (cuda, xpu); taken as cuda",
    "cuda_avail_no_version": "torch enumerates cuda devices but its build does not say cuda",
}


@pytest.mark.parametrize("build", DISAGREEMENTS)
def test_what_does_not_fit_together_is_said(tmp_path, build):
    """A machine that contradicts itself is taken for one thing, and the contradiction is listed."""
    seen = doctor(tmp_path, torch_package(BUILDS[build].code + TENSORS, **BUILDS[build].strings), "--full")

    assert DISAGREEMENTS[build] in seen.record["disagreements"]


BY_ZERO = "ZeroDivisionError: division by zero"

#: Two answers of one namespace -> devices, and the sentence.
HALVES = {
    "count_raises": (
        CUDA.replace("lambda: 1", "lambda: 1 / 0"), 1,
        f"torch.cuda.is_available() says True and device_count() raises {BY_ZERO}; taken as one device",
    ),
    "available_raises": (
        CUDA.replace("lambda: True", "lambda: 1 / 0"), 1,
        "torch.cuda.device_count() says 1 and is_available() raises ZeroDivisionError: division by zero",
    ),
    "not_available": (
        namespace("cuda", available=False, count=2), 2,
        "torch.cuda.is_available() says False and device_count() says 2",
    ),
    "none_counted": (
        namespace("cuda", count=0), 0, "torch.cuda.is_available() says True and device_count() says 0"
    ),
    "no_name": (
        CUDA.replace("lambda index=0: 'NVIDIA H100'", "lambda index=0: 1 / 0"), 1,
        "cuda device 0 could not be described in full: ZeroDivisionError: division by zero",
    ),
}  # fmt: skip


@pytest.mark.parametrize("half", HALVES)
def test_a_driver_that_answers_by_halves_is_said_to(tmp_path, half):
    """What decides is whether a device takes an allocation; the error that was swallowed for it is listed."""
    code, devices, sentence = HALVES[half]
    seen = doctor(tmp_path, torch_package(code + TENSORS, cuda="13.0"))

    assert len(seen.record["devices"]) == devices
    assert seen.record["platform"] == ("cuda" if devices else "cpu")
    assert sentence in seen.record["disagreements"]


#: What a driver answers for the bytes of a device that no device has.
SIZES = ["-1", "0", "True", "float('nan')", "8.5e10", "10**20", "10**5000", "'80 GiB'"]


@pytest.mark.parametrize("size", SIZES)
def test_a_size_that_no_device_has_is_not_known(tmp_path, size):
    """The device is as usable as it is, and the record can be read again."""
    seen = doctor(tmp_path, torch_package(CUDA.replace("80 << 30", size) + TENSORS, cuda="13.0"))

    assert [(device["state"], device["memory"]) for device in seen.record["devices"]] == [("available", None)]
    assert Environment.from_json(seen.record).platform == "cuda"


#: A UUID of torch is an object, of which the text is made by asking.
BAD_UUID = """
class _Bad:
    def __str__(self): raise RuntimeError("no uuid")
_Properties.uuid = _Bad()
"""


def test_a_device_that_can_not_be_described_is_there_all_the_same(tmp_path):
    """One fact of one device costs neither the others nor the platform."""
    second = "cuda.get_device_properties = staticmethod(lambda i=0: _Properties if i else type('P', (), {})())\n"
    code = namespace("cuda", count=2, name="NVIDIA H100") + TENSORS + BAD_UUID + second
    seen = doctor(tmp_path, torch_package(code, cuda="13.0"))

    assert [(d["state"], d["name"]) for d in seen.record["devices"]] == [
        ("available", "NVIDIA H100"),
        ("available", ""),
    ]
    said = "cuda device 1 could not be described in full: RuntimeError: no uuid"
    assert said in seen.record["disagreements"]


MOCK = "import sys, unittest.mock\nsys.modules[__name__] = unittest.mock.MagicMock()\n"
ANSWERS_ALL = (
    "class _Any: pass\ndef __getattr__(name):\n    if name[:2] != '__': return _Any()\n    raise AttributeError\n"
)
STAND_INS = {
    "mock": ({"torch/__init__.py": MOCK}, "torch is a mock (unittest.mock.MagicMock): it answers for every name"),
    "mock_file": ({"torch.py": MOCK}, "torch is a mock (unittest.mock.MagicMock): it answers for every name"),
    "mock_with_version": (
        torch_package("", cuda="13.0") | {"torch/__init__.py": MOCK},
        "torch is a mock (unittest.mock.MagicMock): it answers for every name",
    ),
    "mock_of_version": (
        {"torch/__init__.py": "import unittest.mock\nversion = unittest.mock.Mock()\n__version__ = '2.11.0'\n"},
        "torch.version is a mock (unittest.mock.Mock): it answers for every name",
    ),
    "answers_all": ({"torch.py": ANSWERS_ALL}, "torch is no module of torch: it answers for every name"),
    "empty": ({"torch/__init__.py": ""}, "is no torch: it has neither __version__ nor version"),
}


@pytest.mark.parametrize("stand_in", STAND_INS)
def test_a_torch_that_is_none_leaves_the_platform_unknown(tmp_path, stand_in):
    """What a mock answers is no fact, and a platform that nobody could ask for is not cpu."""
    files, words = STAND_INS[stand_in]
    seen = doctor(tmp_path, files)

    probe = seen.record["probe"]
    assert (seen.status, seen.record["platform"]) == (3, "unknown")
    assert (probe["status"], probe["stage"]) == ("garbled", "import of torch")
    assert words in seen.record["reason"]
    assert words in seen.reason("kvcacheio")


def test_a_mocked_namespace_has_no_working_device(tmp_path):
    """A build for CUDA whose ``torch.cuda`` was patched is broken, and the mock is named."""
    seen = doctor(tmp_path, torch_package("import unittest.mock\ncuda = unittest.mock.MagicMock()\n", cuda="13.0"))

    assert (seen.record["platform"], [d["state"] for d in seen.record["devices"]]) == ("cuda", ["broken"])
    assert "is_available() answers with a mock (unittest.mock.MagicMock)" in seen.record["reason"]


def test_a_vendor_package_that_hangs_leaves_the_platform_unknown(tmp_path):
    """Through the child: the stage is named, and torch itself is asked again past it."""
    cpu = torch_package(TENSORS, __version__="2.11.0+cpu")
    seen = doctor(tmp_path, cpu | {"torch_npu/__init__.py": "import time; time.sleep(600)"})

    assert (seen.status, seen.record["platform"]) == (3, "unknown")
    assert (seen.record["probe"]["status"], seen.record["probe"]["stage"]) == ("hung", "import of torch_npu")
    assert seen.record["torch"]["version"] == "2.11.0+cpu"


def test_a_device_name_is_one_line(tmp_path):
    """What a driver calls its device is no command to a terminal."""
    name = "NVIDIA\x1b[31m H100\n"
    seen = doctor(tmp_path, torch_package(namespace("cuda", name=name) + TENSORS, cuda="13.0"))

    assert [device["name"] for device in seen.record["devices"]] == ["NVIDIA [31m H100"]


def test_a_mask_that_hides_every_device_is_the_reason(tmp_path, monkeypatch):
    """A masked machine is no broken one: the platform is cpu and the mask is named."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    seen = doctor(tmp_path, torch_package(NONE, cuda="13.0"))

    assert seen.record["reason"] == "torch 2.11.0 is built for cuda; CUDA_VISIBLE_DEVICES='-1' hides every device"
    assert "CUDA_VISIBLE_DEVICES='-1' leaves no cuda device" in seen.record["disagreements"]


def test_a_cpu_build_is_settled_without_importing_torch(tmp_path):
    """The files of a CPU build say enough: a torch that would hang is never imported."""
    files = torch_package("import time; time.sleep(600)", __version__="2.11.0+cpu")
    seen = doctor(tmp_path, files)

    assert (seen.record["platform"], seen.record["probe"]["status"], seen.status) == ("cpu", "skipped", 0)
