"""Masks as the runtimes read them, and what is said where they and the devices do not fit."""

from __future__ import annotations

import pytest
from hostile import TENSORS, doctor, namespace, torch_package

from pytest_sglhw.environment.masks import hiding_mask, masks_of
from pytest_sglhw.registry.loading import built_in

ROWS = built_in().platforms
CUDA, HIP, ROCR, ZE = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"

#: value of CUDA_VISIBLE_DEVICES -> the devices that it lets through.
VALUES = {
    "0": ("0",),
    "2,3": ("2", "3"),
    " 1 , 0 ": ("1", "0"),
    "+1": ("1",),
    "1st,2nd": ("1", "2"),
    "": (),
    " ": (),
    ",0": (),
    "-1": (),
    "2,-1,1": ("2",),
    "0,,1": ("0",),
    "0,0": (),
    "1,0,1": (),
    "none": (),
    "NoDevFiles": (),
    "GPU-1f2e,GPU-aaaa": ("GPU-1f2e", "GPU-aaaa"),
    "GPU-1f2e,GPU-1f2e": (),
    "GPU-1f2e,0": ("GPU-1f2e",),
    "0,GPU-1f2e": ("0",),
    "MIG-GPU-1f2e/1/0": ("MIG-GPU-1f2e/1/0",),
    "MIG-1,MIG-2": ("MIG-1", "MIG-2"),
    "0;1": ("0",),
    "\N{ARABIC-INDIC DIGIT ONE}": (),
}


@pytest.mark.parametrize("value", VALUES)
def test_a_mask_is_cut_where_the_runtime_cuts_it(value):
    """At the first entry that is no device; a device that is named twice leaves none."""
    mask = masks_of(ROWS["cuda"], {CUDA: value})[0]

    assert mask.tokens == VALUES[value]
    assert (hiding_mask(ROWS["cuda"], {CUDA: value}) is not None) == (not VALUES[value])


def test_level_zero_names_tiles_and_takes_a_repeat_once():
    """A tile is a number with a point in it, and no identity."""
    mask = masks_of(ROWS["xpu"], {ZE: "0.0,0.1,0.1"})[0]

    assert (mask.tokens, mask.by_identity) == (("0.0", "0.1"), False)


def test_rocr_takes_numbers_and_uuids_in_one_list():
    """As AMD documents it; HIP takes numbers alone."""
    value = "0,GPU-4b2c1a9f8d3e6f7a,2,-1,3"
    rocr, hip = masks_of(ROWS["rocm"], {ROCR: value, HIP: value})

    assert rocr.tokens == ("0", "GPU-4b2c1a9f8d3e6f7a", "2")
    assert hip.tokens == ("0",)
    assert hiding_mask(ROWS["rocm"], {ROCR: value}) is None


NODES = ("/dev/nvidia0", "/dev/nvidia1")


@pytest.mark.parametrize(("value", "nodes", "hides"), [
    ("1", NODES, False), ("2", NODES, True), ("2", (), False), ("GPU-1", NODES, False), ("0,7", NODES, False),
    ("7", ("/usr/lib/wsl/lib/libcuda.so.1",), False),
])  # fmt: skip
def test_a_number_beyond_the_nodes_names_no_device(value, nodes, hides):
    """Where the driver offers one node for each device; a UUID may or may not be of this machine."""
    assert (hiding_mask(ROWS["cuda"], {CUDA: value}, nodes) is not None) == hides


def test_a_number_of_any_length_is_read():
    """Python itself refuses to make a number of so many digits."""
    nodes = ("/dev/nvidia0", "/dev/nvidia1")

    assert hiding_mask(ROWS["cuda"], {CUDA: "9" * 5000}, nodes) is not None
    assert hiding_mask(ROWS["cuda"], {CUDA: "0" * 5000 + "1"}, nodes) is None


#: The mask of HIP within two devices of ROCr's -> whether it leaves none.
INNER = {"0": False, "1": False, "2": True, "4": True, "GPU-1f2e": False}


@pytest.mark.parametrize("inner", INNER)
def test_an_inner_mask_counts_in_what_the_outer_one_leaves(inner):
    """Devices 4 and 5 of the machine are 0 and 1 to HIP: who names them 4 and 5 again gets none."""
    hiding = hiding_mask(ROWS["rocm"], {ROCR: "4,5", HIP: inner}, ["/dev/kfd"])

    assert (hiding is not None and hiding.variable == HIP) == INNER[inner]


def test_gaudis_modules_keep_their_numbers_in_a_container():
    """Two nodes, and the board's modules 4 and 5; what the container runtime was asked for is no mask of a process."""
    nodes = ("/dev/hl0", "/dev/hl1")

    assert hiding_mask(ROWS["hpu"], {"HABANA_VISIBLE_MODULES": "4,5"}, nodes) is None
    assert hiding_mask(ROWS["hpu"], {"HABANA_VISIBLE_MODULES": ""}, nodes).variable == "HABANA_VISIBLE_MODULES"
    assert masks_of(ROWS["hpu"], {"HABANA_VISIBLE_DEVICES": "all"}) == ()


def test_layers_count_from_the_outside():
    """ROCR hides from HIP; within a layer the first variable that is set counts."""
    environ = {ROCR: "0,1", HIP: "1", CUDA: "7"}

    assert [mask.variable for mask in masks_of(ROWS["rocm"], environ)] == [ROCR, HIP]
    assert hiding_mask(ROWS["rocm"], {ROCR: "", HIP: "0"}).variable == ROCR


#: masks, devices that torch enumerates, the sentence about them (none: they fit).
SENTENCES = {
    "uuids": ({CUDA: "GPU-1,GPU-2"}, 1, f"{CUDA} names 2 devices by UUID, torch enumerates 1"),
    "one uuid of two devices": ({CUDA: "GPU-1"}, 2, f"{CUDA} names 1 device by UUID, torch enumerates 2"),
    "one mig": ({CUDA: "MIG-GPU-1f2e/1/0"}, 1, None),
    "migs": ({CUDA: "MIG-1,MIG-2"}, 1, f"{CUDA} names 2 MIG instances; CUDA gives a process the first one only"),
    "numbers": ({CUDA: "0,9"}, 1, f"{CUDA} names 2 devices, torch enumerates 1"),
    "as many": ({CUDA: "3,1"}, 2, None),
    "not of this platform": ({"ASCEND_RT_VISIBLE_DEVICES": ""}, 1, None),
    "repeated": ({CUDA: "0,0"}, 0, f"{CUDA}='0,0' leaves no cuda device"),
    "empty": ({CUDA: ""}, 0, f"{CUDA}='' leaves no cuda device"),
    "negative": ({CUDA: "-1"}, 0, f"{CUDA}='-1' leaves no cuda device"),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_masks_that_do_not_fit_the_devices_are_said_to(tmp_path, monkeypatch, case):
    """Through the probe: only what is set for this platform, and only where it disagrees."""
    masks, count, sentence = SENTENCES[case]
    for name in (CUDA, HIP, ROCR, ZE):
        monkeypatch.delenv(name, raising=False)
    for name, value in masks.items():
        monkeypatch.setenv(name, value)
    code = namespace("cuda", available=count > 0, count=count) + TENSORS
    seen = doctor(tmp_path, torch_package(code, cuda="13.0"))

    said = [text for text in seen.record["disagreements"] if "_VISIBLE_DEVICES" in text]
    assert said == ([sentence] if sentence else [])
    assert seen.record["masks"] == masks
    assert seen.record["platform"] == ("cuda" if count else "cpu")


def test_only_the_innermost_mask_is_compared(tmp_path, monkeypatch):
    """HIP's mask counts in what ROCR's leaves: four are shown to HIP, which shows two."""
    monkeypatch.delenv(CUDA, raising=False)
    monkeypatch.setenv(ROCR, "0,1,2,3")
    monkeypatch.setenv(HIP, "0,1")
    seen = doctor(tmp_path, torch_package(namespace("cuda", count=2) + TENSORS, hip="7.0"))

    assert not [text for text in seen.record["disagreements"] if "_VISIBLE_DEVICES" in text]
