"""Free memory is measured for each test, of the source that costs and disturbs least."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from hostile import TENSORS, namespace, torch_package

from pytest_sglhw.asking.asker import Answer
from pytest_sglhw.environment import free_memory
from pytest_sglhw.environment.records import Device
from pytest_sglhw.registry.loading import built_in

PLATFORMS = built_in().platforms
GIB = 2**30


class NoChild:
    """A child process that knows nothing, and what it was asked."""

    def __init__(self, **values: int) -> None:
        self.values = values
        self.asked: list[str] = []

    def __enter__(self):
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def ask(self, stage, do, **arguments):
        self.asked.append(stage)
        return Answer(stage, value=self.values.get(f"{arguments.get('api')}{arguments.get('index')}"))


def measured(platform, *devices, child=None, vendors=()):
    found = free_memory.with_free_memory(devices, PLATFORMS[platform], lambda: child or NoChild(), vendors, timeout=5)
    return [(device.free_memory, device.reason) for device in found]


@pytest.fixture
def torch(monkeypatch):
    """A torch that this process has loaded, without a device context at first."""
    module = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.fixture(autouse=True)
def no_tools(monkeypatch, tmp_path):
    """No ``nvidia-smi`` of the machine that runs these tests."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_a_context_of_this_process_is_asked_first(torch):
    """What the driver has free, and the whole blocks that torch keeps unused; no child process."""
    stats = {
        "reserved_bytes.all.current": 10 * GIB, "active_bytes.all.current": 3 * GIB,
        "inactive_split_bytes.all.current": 2 * GIB,
    }  # fmt: skip
    torch.cuda = SimpleNamespace(
        is_initialized=lambda: True,
        mem_get_info=lambda index: ((1 + index) * GIB, 80 * GIB),
        memory_stats=lambda index: stats if index == 0 else {},
    )
    child = NoChild()
    assert measured("cuda", Device(0), Device(1), child=child) == [(6 * GIB, ""), (2 * GIB, "")]
    assert child.asked == []


def test_without_a_context_this_process_makes_none(torch):
    """A loaded torch is left alone; the child process is asked, after the packages that add the platform."""
    torch.npu = SimpleNamespace(is_initialized=lambda: False)
    child = NoChild(npu0=3, npu2=5)
    assert measured("npu", Device(0), Device(2), child=child, vendors=["torch_npu"]) == [(3, ""), (5, "")]
    assert child.asked == [
        "import of torch", "import of torch_npu", "free memory of npu:0", "free memory of npu:2"
    ]  # fmt: skip


def test_a_lost_context_says_nothing_about_the_device(torch):
    """The error of the context is not that of the question: somebody else is asked."""

    def lost(index):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    torch.cuda = SimpleNamespace(is_initialized=lambda: True, mem_get_info=lost)
    assert measured("cuda", Device(0), child=NoChild(cuda0=7)) == [(7, "")]


def test_what_nobody_can_tell_says_why():
    """A torch without the call, such as the one for Apple's GPUs."""
    assert measured("mps", Device(0)) == [(None, "torch.mps has no mem_get_info")]


NVIDIA_SMI = """#!/bin/sh
echo "GPU-aaaa-1, 81920, 70000"
echo "GPU-bbbb-2, 81920, 60000"
echo "GPU-cccc-3, [N/A], [N/A]"
"""


@pytest.mark.parametrize(
    ("device", "free"),
    [
        pytest.param(Device(0, uuid="bbbb-2", memory=79 * GIB), 60000 * 2**20, id="by-uuid"),
        pytest.param(Device(0, uuid="GPU-AAAA-1", memory=79 * GIB), 70000 * 2**20, id="prefix-and-case"),
        pytest.param(Device(0, uuid="bbbb-2", memory=10 * GIB), 42, id="a-part-of-the-card"),
        pytest.param(Device(0, uuid="cccc-3", memory=79 * GIB), 42, id="no-figures"),
        pytest.param(Device(0, memory=79 * GIB), 42, id="which-of-them"),
    ],
)
def test_nvidia_smi_is_asked_for_whole_cards(no_tools, device, free):
    """By uuid; the child process (which answers 42 here) has the rest."""
    tool = no_tools / "nvidia-smi"
    tool.write_text(NVIDIA_SMI)
    tool.chmod(0o755)
    assert measured("cuda", device, child=NoChild(cuda0=42)) == [(free, "")]


@pytest.mark.parametrize("program", ["#!/bin/sh\nexit 9\n", "#!/bin/sh\necho No devices were found\n"])
def test_an_nvidia_smi_that_fails_is_no_answer(no_tools, program):
    """Nor is one that prints something else."""
    tool = no_tools / "nvidia-smi"
    tool.write_text(program)
    tool.chmod(0o755)
    assert measured("cuda", Device(0, memory=GIB), child=NoChild(cuda0=42)) == [(42, "")]


def card(root, name, unique_id, total, used):
    folder = root / "sys/class/drm" / name / "device"
    folder.mkdir(parents=True)
    folder.joinpath("mem_info_vram_total").write_text(f"{total}\n")
    folder.joinpath("mem_info_vram_used").write_text(f"{used}\n")
    if unique_id:
        folder.joinpath("unique_id").write_text(f"{unique_id}\n")


def test_amdgpu_is_read_by_unique_id(tmp_path, monkeypatch):
    """HIP's uuid is the letters of the unique id; torch shows their codes."""
    card(tmp_path, "card1", "3a4b5c6d7e8f9012", 192 * GIB, 12 * GIB)
    card(tmp_path, "card2", "1111222233334444", 192 * GIB, 92 * GIB)
    card(tmp_path, "card3", "", 192 * GIB, 0)
    cards = free_memory.amd_cards(str(tmp_path))
    monkeypatch.setitem(free_memory._CARDS, "rocm", lambda _: cards)
    shown = "31313131-3232-3232-3333-333334343434"
    devices = (Device(0, uuid=shown, memory=191 * GIB), Device(1, uuid="GPU-3a4b5c6d7e8f9012", memory=191 * GIB))
    assert measured("rocm", *devices) == [(100 * GIB, ""), (180 * GIB, "")]


MEASURED = """
is_initialized = staticmethod(lambda: bool(__import__("os").environ.get("CONTEXT")))
synchronize = staticmethod(lambda: None)
mem_get_info = staticmethod(lambda index: (int(open(__import__("os").environ["FREE"]).read()), 80 << 30))
"""
SUITE = """
import os, pathlib, pytest
from pytest_sglhw import sglhw
FREE = pathlib.Path(os.environ["FREE"])

@sglhw(min_free_memory="4GiB")
def test_first():
    FREE.write_text(str(3 << 30))  # somebody takes the memory

@sglhw(min_free_memory="4GiB")
def test_too_little():
    raise AssertionError("ran")

@sglhw(min_free_memory="2GiB")
def test_less():
    import torch
    os.environ["CONTEXT"] = "1"

@sglhw(min_free_memory="3GiB")
def test_in_this_process():
    FREE.write_text("hung")

@sglhw(min_free_memory="1GiB")
def test_nobody_knows():
    raise AssertionError("ran")
"""


def test_each_test_is_asked_for_what_is_free_when_it_is_set_up(pytester, monkeypatch):
    """On a live machine with one device: what was free for the test before counts for nothing."""
    indented = "".join(f"    {line}\n" for line in MEASURED.strip().splitlines())
    for name, text in torch_package(namespace("cuda", name="NVIDIA H100") + indented + TENSORS, cuda="13.0").items():
        path = pytester.path / "planted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    free = pytester.path / "free"
    free.write_text(str(5 << 30))
    monkeypatch.setenv("FREE", str(free))
    monkeypatch.setenv("PYTHONPATH", str(pytester.path / "planted"), prepend=":")
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_subprocess("-p", "sglhw", "-rs", timeout=120)

    result.assert_outcomes(passed=3, skipped=2, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "SKIPPED *: sglhw(min_free_memory='4GiB'): 4 GiB of free memory needed, device 0 has 3 GiB of 80 GiB free",
            (
                "SKIPPED *: sglhw(min_free_memory='1GiB'): 1 GiB of free memory needed, what device 0 has free is "
                "not known: ValueError: invalid literal*"
            ),
        ]
    )
