"""Requirement and environment in, verdict out: no pytest run, no probe."""

from __future__ import annotations

import pytest

from pytest_sglhw.environment.fakes import fake_environment
from pytest_sglhw.environment.records import CapabilityState, Device, Environment
from pytest_sglhw.gates.marks import MarkReader
from pytest_sglhw.gates.policy import LanePolicy
from pytest_sglhw.gates.verdict import decide
from pytest_sglhw.record import replace
from pytest_sglhw.registry.loading import built_in

REGISTRY = built_in()
READER = MarkReader(REGISTRY)
GIB = 2**30
mark = pytest.mark


def verdict(environment, *marks, policy=None):
    return decide(tuple(READER.need(m.mark) for m in marks), environment, policy)


def machine(spec, **changes):
    return replace(fake_environment(spec, REGISTRY), **changes)


def devices(*archs, memory=80 * GIB, state="available"):
    return tuple(Device(i, arch=arch, memory=memory, state=state) for i, arch in enumerate(archs))


NO_DRIVER = machine("cpu", build="cuda", reason="no NVIDIA driver")
UNKNOWN = Environment("unknown", "unknown", reason="the probe hung at 'import torch'")
BROKEN = machine("cuda:sm90", capabilities={"kvcacheio": CapabilityState("broken", "ImportError: libcuda.so.1")})

CASES = [
    # environment, marks, action, state, reason code
    (machine("cuda"), [mark.cuda_only], "run", "available", ""),
    (machine("rocm"), [mark.cuda_only], "skip", "unavailable", "platform"),
    (machine("rocm"), [mark.gpu_only], "run", "available", ""),
    (machine("cpu"), [mark.gpu_only], "skip", "unavailable", "platform"),
    (NO_DRIVER, [mark.cuda_only], "skip", "unavailable", "no_device"),
    (NO_DRIVER, [mark.gpu_only], "skip", "unavailable", "no_device"),
    (NO_DRIVER, [mark.rocm_only], "skip", "unavailable", "platform"),
    (NO_DRIVER, [mark.cpu_only], "run", "available", ""),
    (UNKNOWN, [mark.cpu_only], "skip", "unknown", "unknown:platform"),
    (UNKNOWN, [mark.gpu_only], "skip", "unknown", "unknown:platform"),
    (UNKNOWN, [mark.sglhw(min_devices=1)], "skip", "unknown", "unknown:platform"),
    (BROKEN, [mark.requires_kvcacheio], "skip", "broken", "broken:kvcacheio"),
    (machine("cuda"), [mark.requires_kvcacheio], "run", "available", ""),
    (machine("cuda,-kvcacheio"), [mark.requires_kvcacheio], "skip", "unavailable", "capability:kvcacheio"),
    (machine("cuda", devices=devices("sm90", state="broken")), [mark.cuda_only], "skip", "broken", "broken:devices"),
    (machine("cuda:sm90*2"), [mark.sglhw(min_devices=4)], "skip", "unavailable", "devices"),
    (machine("cpu"), [mark.sglhw(min_memory="1GiB")], "skip", "unavailable", "no_device"),
    (machine("cuda:sm90"), [mark.sglhw(archs="sm_90a")], "run", "available", ""),
    (machine("cuda:sm90"), [mark.sglhw(archs=("sm100", "sm120"))], "skip", "unavailable", "arch"),
    (machine("cuda:sm90"), [mark.sglhw(min_arch="sm80")], "run", "available", ""),
    (machine("cuda:sm90"), [mark.sglhw(min_arch="sm100")], "skip", "unavailable", "arch"),
    (machine("cuda:sm90", devices=devices("590 rev. 2")), [mark.sglhw(archs="sm90")], "skip", "unavailable", "arch"),
    (machine("cuda:sm90", devices=devices("590 rev. 2")), [mark.sglhw(min_arch="sm90")], "skip", "unavailable", "arch"),
    (machine("cuda:sm90", devices=devices("590 rev. 2")), [mark.sglhw(min_memory="40GiB")], "run", "available", ""),
    (machine("cuda:sm90", devices=devices("sm" + "9" * 5000)), [mark.sglhw(min_arch="sm90")], "skip", "unavailable",
     "arch"),
    (machine("rocm:gfx942"), [mark.sglhw(min_arch="sm80")], "skip", "unavailable", "arch"),
    (machine("rocm:gfx942"), [mark.sglhw(archs="gfx942:sramecc+:xnack-")], "run", "available", ""),
    (machine("cuda:sm90", devices=devices("sm90")), [mark.sglhw(min_memory="80GiB")], "run", "available", ""),
    (machine("cuda:sm90", devices=devices("sm90")), [mark.sglhw(min_memory="81GiB")], "skip", "unavailable", "memory"),
    (machine("cuda:sm90", devices=devices("sm80", "sm90")), [mark.sglhw(archs="sm90")], "skip", "unavailable", "arch"),
    (machine("cuda:sm90", devices=devices("sm90", "sm80")), [mark.sglhw(archs="sm90")], "run", "available", ""),
    (machine("cuda"), [mark.cuda_only, mark.rocm_only], "skip", "unavailable", "platform"),
]  # fmt: skip


@pytest.mark.parametrize(("environment", "marks", "action", "state", "code"), CASES)
def test_verdicts(environment, marks, action, state, code):
    """Each check with its own reason code, on machines where it holds and where it does not."""
    found = verdict(environment, *marks)
    assert (found.action, found.state, found.code) == (action, state, code)


def test_a_fact_that_is_not_known_does_not_hold_and_says_so():
    """A fake without arch and memory meets no requirement on them, and the verdict is not settled."""
    by_memory = verdict(machine("cuda"), mark.sglhw(min_memory="40GiB"))
    by_arch = verdict(machine("cuda"), mark.sglhw(archs="sm90"))
    assert by_memory.reason == "sglhw(min_memory='40GiB'): 40 GiB of memory needed, device 0 has an unknown amount"
    assert by_arch.reason == "sglhw(archs='sm90'): arch sm90 needed, device 0 is of unknown arch"
    assert not by_memory.settled
    assert not by_arch.settled
    assert verdict(machine("rocm"), mark.cuda_only).settled


def with_free(*sizes, **changes):
    return tuple(Device(i, arch="sm90", memory=80 * GIB, free_memory=free, **changes) for i, free in enumerate(sizes))


FREE_CASES = [
    (machine("cuda", devices=with_free(8 * GIB)), {}, None),
    (machine("cuda", devices=with_free(9 * GIB, 1)), {}, None),
    (
        machine("cuda", devices=with_free(9 * GIB, 8 * GIB - 1)),
        {"min_devices": 2},
        (
            "unavailable",
            "memory",
            "8 GiB of free memory needed, device 1 has 7.99 GiB of 80 GiB free",
            "a device with 8 GiB free: end what else holds memory on it (other processes, other workers)",
        ),
    ),
    (
        machine("cuda", devices=(Device(0, memory=6 * GIB, free_memory=5 * GIB),)),
        {},
        (
            "unavailable",
            "memory",
            "8 GiB of free memory needed, device 0 has 5 GiB of 6 GiB free",
            "a device with 8 GiB free",
        ),
    ),
    (
        machine("cuda"),
        {},
        (
            "unavailable",
            "memory",
            "8 GiB of free memory needed, device 0 has an unknown amount free",
            "a device with 8 GiB free",
        ),
    ),
    (
        machine("cuda", devices=with_free(None, reason="free memory of cuda:0 hung"), fake=None),
        {},
        (
            "unknown",
            "unknown:memory",
            "8 GiB of free memory needed, what device 0 has free is not known: free memory of cuda:0 hung",
            "a driver and devices that answer (sglhw doctor --full says what they did)",
        ),
    ),
    (
        machine("cpu"),
        {},
        ("unavailable", "no_device", "1 device needed, 0 found", "a machine with 1 device"),
    ),
]


@pytest.mark.parametrize(("environment", "more", "expected"), FREE_CASES)
def test_free_memory_is_asked_of_each_device_that_the_test_takes(environment, more, expected):
    """Too little names the device, what is free, what there is and what was wanted; not knowing is another state."""
    asked = mark.sglhw(min_free_memory="8GiB", **more)
    found = verdict(environment, asked)
    text = READER.need(asked.mark).text
    if expected is None:
        assert found.action == "run"
    else:
        state, code, reason, remedy = expected
        assert (found.action, found.state, found.code, found.reason, found.remedy) == (
            "skip",
            state,
            code,
            f"{text}: {reason}",
            remedy,
        )


def test_a_fake_that_does_not_say_what_is_free_settles_nothing():
    """The plan then promises neither a run nor a skip; a fake that says it settles both."""
    assert not verdict(machine("cuda"), mark.sglhw(min_free_memory="8GiB")).settled
    assert verdict(machine("cuda", devices=with_free(1)), mark.sglhw(min_free_memory="8GiB")).settled


def test_too_few_devices_says_how_many_were_needed_and_found():
    """The message of the lane that had 2 devices and a test for 4."""
    found = verdict(machine("cuda:sm90*2"), mark.sglhw(min_devices=4))
    assert found.reason == "sglhw(min_devices=4): 4 devices needed, 2 found"
    assert found.remedy == "a machine with 4 devices"


def test_devices_that_fail_are_broken_not_absent():
    """Enough devices of which too few are usable is a broken machine."""
    bad = (*devices("sm90"), Device(1, arch="sm90", state="broken", reason="out of memory at once"))
    found = verdict(machine("cuda:sm90", devices=bad), mark.sglhw(min_devices=2))
    assert found.state == "broken"
    assert found.reason == "sglhw(min_devices=2): 2 needed, 1 of 2 usable: device 1 is broken: out of memory at once"


def test_rocm_torch_is_not_cuda_and_the_reason_says_so():
    """``torch.cuda.is_available()`` is true on ROCm; ``cuda_only`` still does not run there."""
    found = verdict(machine("rocm", reason="torch.version.hip is 6.4"), mark.cuda_only)
    assert found.reason == "cuda_only: the platform here is rocm, not cuda (torch.version.hip is 6.4)"


def test_a_build_without_a_device_is_named():
    """A CUDA build on a machine without a device has a reason of its own."""
    found = verdict(NO_DRIVER, mark.cuda_only)
    assert found.reason == "cuda_only: torch is built for cuda, but no device was found (no NVIDIA driver)"


def test_single_kernels_are_asked_one_by_one():
    """A kernel that this build lacks skips, with its name; the others run."""
    kernels = {
        "transfer_kv_direct": CapabilityState("available"),
        "transfer_kv_all_layer": CapabilityState("unavailable", "no op"),
    }
    here = machine("rocm", kernels={"kvcacheio": kernels})
    assert verdict(here, mark.requires_kvcacheio("transfer_kv_direct")).action == "run"
    lacking = verdict(here, mark.requires_kvcacheio("transfer_kv_direct", "transfer_kv_all_layer"))
    assert (lacking.action, lacking.code) == ("skip", "capability:kvcacheio")
    assert "kvcacheio (transfer_kv_all_layer) is unavailable: no op" in lacking.reason


RAISING = mark.cuda_only(otherwise="raise", raises=RuntimeError)
KV4 = mark.requires_kv4(otherwise="raise")


def test_a_skip_decides_before_a_raise():
    """Of an unmet mark that skips and one that must raise, the skip decides, in any order."""
    for marks in ([RAISING, mark.requires_kv4], [mark.requires_kv4, RAISING]):
        assert verdict(machine("rocm"), *marks).action == "skip"


def test_any_documented_error_of_the_unmet_marks_will_do():
    """Several unmet marks that must raise are satisfied by any one's error; a mark that holds adds none."""
    found = verdict(machine("rocm"), RAISING, KV4, mark.gpu_only(otherwise="raise", raises=KeyError))
    assert found.action == "raise"
    assert [str(documented) for documented in found.expected] == [
        "RuntimeError (as the mark says)",
        "RuntimeError matching 'KV4 is not tested on non-CUDA platforms' (documented for kv4)",
    ]


def test_broken_and_unknown_are_loud_outside_a_lane():
    """They skip, and the verdict asks for a warning."""
    assert verdict(BROKEN, mark.requires_kvcacheio).loud
    assert verdict(UNKNOWN, mark.cuda_only).loud
    assert not verdict(machine("rocm"), mark.cuda_only).loud


@pytest.mark.parametrize(
    ("allowed", "action"),
    [((), "fail"), (("broken:kvcacheio",), "skip"), (("requires_kvcacheio",), "skip"), (("requires_kv4",), "fail")],
)
def test_broken_fails_inside_a_lane_unless_it_may_skip(allowed, action):
    """``allow_skips`` names marks or reason codes."""
    assert verdict(BROKEN, mark.requires_kvcacheio, policy=LanePolicy("x", frozenset(allowed))).action == action


def test_an_unknown_platform_fails_inside_a_lane():
    """A probe that hung is no reason to be green."""
    assert verdict(UNKNOWN, mark.cuda_only, policy=LanePolicy("x")).action == "fail"


def test_broken_beats_raise_and_unavailable_beats_broken():
    """A broken package is not a refusal; a wrong platform makes a broken package irrelevant."""
    assert verdict(BROKEN, mark.requires_kvcacheio(otherwise="raise")).state == "broken"
    assert verdict(BROKEN, mark.requires_kvcacheio, mark.rocm_only).code == "platform"


def test_the_facts_are_what_reports_carry():
    """The dict has the documented keys, ready for a report."""
    facts = verdict(machine("rocm"), mark.requires_kv4, mark.gpu_only).facts
    assert facts == {
        "marks": ["requires_kv4", "gpu_only"],
        "requirement": "requires_kv4, gpu_only",
        "platform": "rocm",
        "mark": "requires_kv4",
        "state": "unavailable",
        "reason_code": "capability:kv4",
        "reason": facts["reason"],
        "remedy": facts["remedy"],
    }
    assert facts["reason"].startswith("requires_kv4: kv4 is unavailable: ")
