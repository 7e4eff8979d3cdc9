"""Faked builds of torch: the platform is what the build and the enumerated devices say together."""

from __future__ import annotations

import pytest
from hostile import TENSORS, doctor, namespace, torch_package

SGLANG = "def {name}(): return {answer}\n"

CUDA, NONE = namespace("cuda", name="NVIDIA H100"), namespace("cuda", available=False, count=0)
XPU = namespace("xpu", name="Intel(R) Arc(TM) B580 Graphics")

#: build -> code of torch, version strings, platform, build as recorded, arch of the first device.
BUILDS = {
    "none": (NONE, {"__version__": "2.11.0+cpu"}, "cpu", "cpu", None),
    "cuda_build_no_driver": (NONE, {"cuda": "13.0"}, "cpu", "cuda", None),
    "cuda_h100": (CUDA, {"cuda": "13.0"}, "cuda", "cuda", "sm90"),
    "cuda_b200": (namespace("cuda", major=10, name="NVIDIA B200"), {"cuda": "13.0"}, "cuda", "cuda", "sm100"),
    "rocm_build_no_gpu": (NONE, {"hip": "7.0"}, "cpu", "rocm", None),
    "rocm_mi300": (namespace("cuda", name="MI300X", minor=4), {"hip": "7.0"}, "rocm", "rocm", "gfx942"),
    "both_versions": (CUDA, {"cuda": "13.0", "hip": "7.0"}, "rocm", "rocm", "gfx942"),
    "cuda_available_no_version": (CUDA, {}, "cuda", "cpu", "sm90"),
    "sail": (namespace("cuda", name="ZW100", major=8), {"cuda": "12.8"}, "cuda", "cuda", "sm80"),
    "xpu": (XPU, {"xpu": "20250300"}, "xpu", "xpu", "bmg"),
    "xpu_and_cuda": (CUDA + XPU, {"cuda": "13.0"}, "cuda", "cuda", "sm90"),
    "npu": (namespace("npu", name="Ascend910B3"), {}, "npu", "cpu", "ascend910b"),
    "npu_no_device": (namespace("npu", available=False, count=0), {}, "cpu", "cpu", None),
    "musa": (namespace("musa", major=3, minor=1, name="S5000"), {"musa": "4.3"}, "musa", "musa", "mp31"),
    "musa_no_device": (namespace("musa", available=False, count=0), {"musa": "4.3"}, "cpu", "musa", None),
    "mps": ("class mps:\n    is_available = staticmethod(lambda: True)\n", {}, "mps", "cpu", None),
    "hpu": ("class hpu:\n    is_available = staticmethod(lambda: True)\n", {}, "hpu", "cpu", None),
    "no_namespace": ("", {"cuda": "13.0"}, "cpu", "cuda", None),
}


@pytest.mark.parametrize("build", BUILDS)
def test_a_faked_build_gives_the_true_platform(tmp_path, build):
    """A version string decides between CUDA and ROCm, and no build alone makes a device."""
    code, strings, platform, recorded, arch = BUILDS[build]
    seen = doctor(tmp_path, torch_package(code + TENSORS, **strings), "--full")

    archs = [device["arch"] for device in seen.record["devices"]] or [None]
    assert (seen.status, seen.record["platform"], seen.record["build"], archs[0]) == (0, platform, recorded, arch)


DISAGREEMENTS = {
    "both_versions": "torch carries several version strings (hip 7.0 and cuda 13.0); taken as rocm",
    "xpu_and_cuda": "torch enumerates more than one kind of accelerator (cuda, xpu); taken as cuda",
    "cuda_available_no_version": "torch enumerates cuda devices but its build does not say cuda",
}


@pytest.mark.parametrize("build", DISAGREEMENTS)
def test_what_does_not_fit_together_is_said(tmp_path, build):
    """A machine that contradicts itself is taken for one thing, and the contradiction is listed."""
    code, strings, *_ = BUILDS[build]
    seen = doctor(tmp_path, torch_package(code + TENSORS, **strings), "--full")

    assert DISAGREEMENTS[build] in seen.record["disagreements"]


#: build, what SGLang answers, the sentence.
OPINIONS = [
    ("rocm_build_no_gpu", ("is_hip", "True"), "SGLang's is_hip() says True; this machine is cpu"),
    ("cuda_h100", ("is_cpu", "True"), "SGLang's is_cpu() says True; this machine is cuda"),
    ("cuda_available_no_version", ("is_cuda", "False"), "SGLang's is_cuda() says False; this machine is cuda"),
    ("sail", ("is_sail", "True"), "SGLang's is_sail() says True; this machine is cuda"),
    ("npu_no_device", ("is_npu", "1 / 0"), "SGLang's is_npu() raises ZeroDivisionError: division by zero"),
    ("cuda_h100", ("get_device", "'cpu'"), "SGLang's get_device() says 'cpu'; this machine's device type is 'cuda'"),
]


@pytest.mark.parametrize(("build", "opinion", "sentence"), OPINIONS)
def test_another_answer_of_sglang_is_listed(tmp_path, build, opinion, sentence):
    """SGLang is asked in the child; where it takes the machine for another one, this is a disagreement."""
    code, strings, *_ = BUILDS[build]
    name, answer = opinion
    sglang = {
        "sglang/__init__.py": "",
        "sglang/srt/__init__.py": "",
        "sglang/srt/utils.py": SGLANG.format(name=name, answer=answer),
    }
    seen = doctor(tmp_path, torch_package(code + TENSORS, **strings) | sglang, "--full")

    assert sentence in seen.record["disagreements"]


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
