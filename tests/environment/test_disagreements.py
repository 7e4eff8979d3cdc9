"""What does not fit together on machines that no test can be run on: from canned facts, without a process."""

from __future__ import annotations

import pytest

from pytest_sglhw.asking.asker import Answer
from pytest_sglhw.environment.disagreements import Findings, disagreements
from pytest_sglhw.environment.families import Family, broken_devices, choose
from pytest_sglhw.environment.records import Device
from pytest_sglhw.environment.static import StaticFacts, TorchBuild
from pytest_sglhw.registry.loading import built_in

ROWS = tuple(built_in().platforms.values())
CPU = TorchBuild("/torch/__init__.py", "2.11.0+cpu", {}, True, True)
CUDA = TorchBuild("/torch/__init__.py", "2.11.0+cu130", {"cuda": "13.0"})


def facts(torch=None, **known):
    """Static facts of a machine of which little is known."""
    nothing = {"nodes": {}, "drivers": {}, "hints": {}, "vendors": {}, "masks": {}, "packages": {}}
    return StaticFacts(torch=torch, **nothing | known)


def said(static, platform="cpu", build=None, **seen):
    """The sentences about these facts."""
    strings = static.torch.strings if static.torch else {}
    return disagreements(Findings(ROWS, static, platform, build, strings, **seen))


GPUS = {"nodes": {"cuda": ("/dev/nvidia0",)}, "drivers": {"cuda": "580.65.06"}}
NVCC = {"hints": {"cuda": ("/usr/local/bin/nvcc",)}}

#: facts, platform, build -> the sentences.
CASES = {
    "a plain CPU machine": (facts(CPU), "cpu", "cpu", ()),
    "an NVIDIA machine": (facts(CUDA, **GPUS, **NVCC), "cuda", "cuda", ()),
    "driver and CPU build": (
        facts(CPU, **GPUS), "cpu", "cpu",
        ("a cuda driver is here (/dev/nvidia0, driver 580.65.06) but torch is a cpu build",),
    ),
    "driver without nodes": (
        facts(CPU, drivers={"rocm": "6.16.13"}), "cpu", "cpu",
        ("a rocm driver is here (driver 6.16.13) but torch is a cpu build",),
    ),
    "driver and no torch": (
        facts(**GPUS), "cpu", None,
        ("a cuda driver is here (/dev/nvidia0, driver 580.65.06) but there is no torch",),
    ),
    "driver of another vendor": (
        facts(CUDA, nodes=GPUS["nodes"] | {"rocm": ("/dev/kfd",)}), "cuda", "cuda",
        ("a rocm driver is here (/dev/kfd) but torch is a cuda build",),
    ),
    "toolkit alone": (
        facts(CPU, **NVCC), "cpu", "cpu",
        ("/usr/local/bin/nvcc: a cuda toolkit is here but no driver; it is no device and is ignored",),
    ),
    "toolkit of another vendor": (
        facts(CUDA, **GPUS, hints={"rocm": ("/opt/rocm",)}), "cuda", "cuda",
        ("/opt/rocm: a rocm toolkit is here but no driver; it is no device and is ignored",),
    ),
    "node that may not be opened": (
        facts(CUDA, **GPUS, closed=("/dev/nvidia0",)), "cuda", "cuda",
        ("/dev/nvidia0 is here and this process may not open it: it needs reading and writing (see its group)",),
    ),
    "metadata without a module": (
        facts(packages={"torch": "2.11.0+cu130"}), "cpu", None,
        ("torch 2.11.0+cu130 is installed, by its metadata, but there is no module torch",),
    ),
    "metadata of another torch": (
        facts(CPU, packages={"torch": "2.9.0"}), "cpu", "cpu",
        ("torch 2.9.0 is installed, but torch 2.11.0+cpu is imported, from /torch/__init__.py",),
    ),
    "metadata of another build of it": (facts(CPU, packages={"torch": "2.11.0"}), "cpu", "cpu", ()),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_disagreement_is_one_sentence(case):
    """And what fits together has none."""
    static, platform, build, sentences = CASES[case]

    assert said(static, platform, build) == sentences


def test_a_vendor_package_that_does_not_import_is_said():
    """Its platform is then not what this machine is, and nobody would know why."""
    answer = Answer("import of torch_npu", error="ImportError: libhccl.so: cannot open shared object file")
    sentence = "torch_npu is installed and does not import: ImportError: libhccl.so: cannot open shared object file"

    assert said(facts(CPU), "cpu", "cpu", vendors={"torch_npu": answer}) == (sentence,)


def family(row, built=True, **value):
    """The answer of one namespace of torch."""
    answer = Answer(f"devices of torch.{row.api}", value={"devices": (), **value})
    return Family(row, answer, built)


def row(name):
    """The row of a platform."""
    return built_in().platforms[name]


#: static facts -> the platform of a ROCm build that enumerates nothing, and why.
NOTHING_ENUMERATED = {
    "no node": (facts(), "cpu", "there is no device node either"),
    "node": (facts(nodes={"rocm": ("/dev/kfd",)}), "rocm", "offers /dev/kfd and torch enumerates no rocm device"),
    "closed node": (
        facts(nodes={"rocm": ("/dev/kfd",)}, closed=("/dev/kfd",)),
        "rocm", "enumerates no rocm device; this process may not open /dev/kfd",
    ),
    "hidden": (
        facts(nodes={"rocm": ("/dev/kfd",)}, masks={"ROCR_VISIBLE_DEVICES": ""}),
        "cpu", "ROCR_VISIBLE_DEVICES='' hides every device",
    ),
    "perhaps hidden": (
        facts(nodes={"rocm": ("/dev/kfd",)}, masks={"HIP_VISIBLE_DEVICES": "GPU-1"}),
        "rocm", "enumerates no rocm device; HIP_VISIBLE_DEVICES='GPU-1' may name none of them",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NOTHING_ENUMERATED)
def test_no_device_is_absent_hidden_or_broken(case):
    """A driver without devices is broken unless a mask hides them; the likely reason is named."""
    static, platform, reason = NOTHING_ENUMERATED[case]
    rocm = family(row("rocm"), available=False, count=0)
    choice = choose([rocm], static, "2.11.0")

    assert (choice.name, reason in choice.reason) == (platform, True), choice.reason


NPU_NODES = {"npu": ("/dev/davinci0", "/dev/davinci1")}
MISSING = Answer("import of torch_npu", error="ImportError: libascendcl.so: cannot open shared object file")
HUNG = Answer("import of torch_npu", fault="hung", detail="did not end within 60 s")

#: static facts, what came of torch_npu -> the platform, and words of the reason.
VENDORS = {
    "raises beside its devices": (
        facts(CPU, nodes=NPU_NODES), MISSING, "npu",
        "the driver offers /dev/davinci0, /dev/davinci1 and torch_npu does not import: ImportError: libascendcl.so",
    ),
    "raises without devices": (facts(CPU), MISSING, "cpu", "enumerates no accelerator"),
    "raises behind a mask": (
        facts(CPU, nodes=NPU_NODES, masks={"ASCEND_RT_VISIBLE_DEVICES": ""}), MISSING, "cpu", "no accelerator"
    ),
    "hangs": (facts(CPU, nodes=NPU_NODES), HUNG, "unknown", "import of torch_npu did not end within 60 s"),
    "hangs without devices": (facts(CPU), HUNG, "unknown", "import of torch_npu did not end within 60 s"),
}  # fmt: skip


@pytest.mark.parametrize("case", VENDORS)
def test_a_vendor_package_that_fails_is_no_cpu_where_its_devices_are(case):
    """A broken runtime is not an absent device, and nobody knows what a hang hides."""
    static, answer, platform, reason = VENDORS[case]
    families = [family(row("cuda"), built=False), family(row("npu"), built=False)]
    choice = choose(families, static, "2.8.0", {"torch_npu": answer})

    assert (choice.name, reason in choice.reason) == (platform, True), choice.reason
    assert bool(choice.fault) == (platform == "unknown")


def test_a_vendor_package_that_adds_nothing_is_said_to():
    """It imports, and torch is as it was without it."""
    vendors = {"torch_npu": Answer("import of torch_npu", value={})}
    static = facts(CPU, vendors={"torch_npu": "/site/torch_npu/__init__.py"})
    npu = family(row("npu"), present=False)
    findings = Findings(tuple(built_in().platforms.values()), static, "cpu", "cpu", {}, families=[npu], vendors=vendors)

    reason = "torch 2.9.0+cpu with torch_npu enumerates no npu device; there is no device node either"
    assert choose([npu], static, "2.9.0+cpu", vendors).reason == reason
    assert disagreements(findings) == ("torch_npu imports and adds no torch.npu",)


def test_what_is_enumerated_stands_beside_a_vendor_package_that_fails():
    """A CUDA machine with a leftover of another vendor is a CUDA machine."""
    cuda = family(row("cuda"), devices=({"name": "NVIDIA H100"},))

    assert choose([cuda], facts(CUDA), "2.11.0", {"torch_npu": HUNG}).name == "cuda"


def test_a_mask_beyond_the_nodes_hides_every_device():
    """The mask of another machine is no broken driver."""
    static = facts(CUDA, **GPUS, masks={"CUDA_VISIBLE_DEVICES": "7"})
    choice = choose([family(row("cuda"), available=False, count=0)], static, "2.11.0")

    assert (choice.name, choice.reason) == (
        "cpu", "torch 2.11.0 is built for cuda; CUDA_VISIBLE_DEVICES='7' hides every device"
    )  # fmt: skip
    assert "CUDA_VISIBLE_DEVICES='7' leaves no cuda device" in said(static, "cpu", "cuda")


def test_devices_that_nobody_can_describe_are_as_many_as_their_nodes():
    """A broken driver of two cards has two broken devices."""
    cuda = family(row("cuda"))

    assert len(broken_devices(cuda, facts(nodes={"cuda": ("/dev/nvidia0", "/dev/nvidia1")}), "why")) == 2
    assert len(broken_devices(cuda, facts(), "why")) == 1


def test_what_is_alike_of_many_devices_is_said_once():
    """With their number; each is still described by itself."""
    hung = [Device(n, state="unknown", reason=f"allocation on cuda:{n} did not end within 3 s") for n in range(2)]
    rest = [Device(n, state="unknown", reason=f"cuda:{n} not asked: two hung") for n in range(2, 40)]
    undescribed = {"devices": [{"error": "RuntimeError: no"}] * 3}
    families = [Family(ROWS[1], Answer("devices of torch.cuda", value=undescribed), True)]

    assert said(facts(CUDA, **GPUS), "cuda", "cuda", devices=[*hung, *rest], families=families) == (
        "3 cuda devices (0 to 2) could not be described in full: RuntimeError: no",
        "2 cuda devices (0 to 1) are enumerated and not usable: allocation on cuda:0 did not end within 3 s",
        "38 cuda devices (2 to 39) are enumerated and not usable: cuda:2 not asked: two hung",
    )


def test_what_differs_between_devices_is_said_of_each():
    """A number that is not the device's own is no likeness."""
    devices = [Device(n, state="broken", reason=f"error {n}") for n in range(2)]

    assert said(facts(CUDA, **GPUS), "cuda", "cuda", devices=devices) == (
        "cuda device 0 is enumerated and not usable: error 0",
        "cuda device 1 is enumerated and not usable: error 1",
    )
