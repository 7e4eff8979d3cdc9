"""Dealing devices to workers: pure arithmetic on masks."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from execnet import XSpec
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_sglhw.registry.loading import built_in
from pytest_sglhw.workers.dealing import pin
from pytest_sglhw.workers.pinning import DevicesError, chosen, environment_of, pool_of, shares

CUDA = (("CUDA_VISIBLE_DEVICES",),)
ROCM = (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))
PLATFORMS = built_in().platforms
UUIDS = [f"GPU-{letter * 8}-0000-1111-2222-333333333333" for letter in "abcdefgh"]


def dealt(layers, environ, count, workers, per_worker=1, request="auto"):
    pool = pool_of(layers, environ, count)
    hands = shares(pool, chosen(pool, request), workers, per_worker)
    return [environment_of(pool, hand) for hand in hands]


@pytest.mark.parametrize(
    ("layers", "environ", "count", "workers", "expected"),
    [
        pytest.param(CUDA, {}, 2, 4, [{"CUDA_VISIBLE_DEVICES": v} for v in "0101"], id="no-mask"),
        pytest.param(CUDA, {"CUDA_VISIBLE_DEVICES": "1"}, 1, 8, [{"CUDA_VISIBLE_DEVICES": "1"}] * 8, id="one-device"),
        pytest.param(
            CUDA, {"CUDA_VISIBLE_DEVICES": "2,3"}, 2, 3, [{"CUDA_VISIBLE_DEVICES": v} for v in "232"], id="alternate"
        ),
        pytest.param(
            CUDA, {"CUDA_VISIBLE_DEVICES": "3, 1,-1,0"}, 4, 2, [{"CUDA_VISIBLE_DEVICES": v} for v in "31"], id="cut"
        ),
        pytest.param(ROCM, {}, 2, 2, [{"HIP_VISIBLE_DEVICES": v} for v in "01"], id="hip"),
        pytest.param(
            ROCM, {"ROCR_VISIBLE_DEVICES": "4,6"}, 2, 2, [{"HIP_VISIBLE_DEVICES": v} for v in "01"], id="rocr-renumbers"
        ),
        pytest.param(
            ROCM,
            {"CUDA_VISIBLE_DEVICES": "5,2"},
            2,
            2,
            [{"HIP_VISIBLE_DEVICES": v, "CUDA_VISIBLE_DEVICES": v} for v in "52"],
            id="cuda-mask-counts-on-hip",
        ),
        pytest.param(
            ROCM,
            {"ROCR_VISIBLE_DEVICES": "4,5,6,7", "HIP_VISIBLE_DEVICES": "3,1", "CUDA_VISIBLE_DEVICES": "0"},
            2,
            2,
            [{"HIP_VISIBLE_DEVICES": v, "CUDA_VISIBLE_DEVICES": v} for v in "31"],
            id="hip-before-cuda",
        ),
        pytest.param(
            CUDA,
            {"CUDA_VISIBLE_DEVICES": "MIG-aaa,MIG-bbb"},
            2,
            2,
            [{"CUDA_VISIBLE_DEVICES": v} for v in ("MIG-aaa", "MIG-bbb")],
            id="mig",
        ),
        pytest.param(
            (("ZE_AFFINITY_MASK",),),
            {"ZE_AFFINITY_MASK": "0.1,1.0"},
            2,
            2,
            [{"ZE_AFFINITY_MASK": v} for v in ("0.1", "1.0")],
            id="tiles",
        ),
    ],
)
def test_each_worker_gets_its_share_in_the_words_of_the_mask(layers, environ, count, workers, expected):
    """The innermost mask is set, with names from the caller's own mask."""
    assert dealt(layers, environ, count, workers) == expected


def test_several_devices_for_each_worker_stay_distinct_and_even():
    """Dealing goes on where the last worker left off."""
    assert dealt(CUDA, {}, 3, 3, per_worker=2) == [{"CUDA_VISIBLE_DEVICES": v} for v in ("0,1", "2,0", "1,2")]


def test_a_list_chooses_inside_the_mask():
    """Ids of --sglhw-devices are the caller's names."""
    assert dealt(CUDA, {"CUDA_VISIBLE_DEVICES": "2,3,7"}, 3, 2, request="7,2") == [
        {"CUDA_VISIBLE_DEVICES": v} for v in "72"
    ]


def test_without_a_mask_a_uuid_names_a_device():
    """The start of a UUID is enough."""
    assert chosen(pool_of(CUDA, {}, 4), "GPU-cccc,0", UUIDS) == (2, 0)


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ("GPU-", "'GPU-' is the start of 3 UUIDs"),
        ("9", "'9' is not a device of this run"),
        ("GPU-cccc,2", "'2' is named twice"),
    ],
)
def test_a_uuid_names_one_device_or_none(request_, problem):
    """The start of several means none of them, and a number is no start."""
    uuids = [*UUIDS[:3], "9-as-some-platforms-have-them"]
    with pytest.raises(DevicesError) as caught:
        chosen(pool_of(CUDA, {}, 4), request_, uuids)
    assert str(caught.value) == (
        f"{problem} (--sglhw-devices). Valid: off, auto, or some of 0, 1, 2, 3, separated by commas."
    )


@pytest.mark.parametrize(
    ("environ", "request_", "message"),
    [
        (
            {"CUDA_VISIBLE_DEVICES": "2,3"},
            "0",
            (
                "'0' is not a device of this run (--sglhw-devices). Valid: off, auto, or some of 2, 3 (from "
                "CUDA_VISIBLE_DEVICES), separated by commas."
            ),
        ),
        (
            {},
            "1,1",
            "'1' is named twice (--sglhw-devices). Valid: off, auto, or some of 0, 1, separated by commas.",
        ),
        (
            {},
            "0,",
            "'' is not a device of this run (--sglhw-devices). Valid: off, auto, or some of 0, 1, separated by commas.",
        ),
    ],
)
def test_an_id_outside_the_mask_says_what_is_valid(environ, request_, message):
    """The error names the id, the option and the valid ids."""
    with pytest.raises(DevicesError) as caught:
        chosen(pool_of(CUDA, environ, 2), request_)
    assert str(caught.value) == message


def test_more_devices_for_each_worker_than_there_are_is_refused():
    """The error says how many there are."""
    with pytest.raises(DevicesError) as caught:
        dealt(CUDA, {}, 1, 1, per_worker=2)
    assert str(caught.value) == (
        "each worker is to get 2 devices (--sglhw-devices-per-worker), but there are only 1 device to give. "
        "Valid: off, auto, or some of 0, separated by commas."
    )


@pytest.mark.parametrize(
    ("layers", "environ", "count", "why"),
    [
        (CUDA, {"CUDA_VISIBLE_DEVICES": ""}, 8, ", since CUDA_VISIBLE_DEVICES hides all"),
        (
            ROCM,
            {"ROCR_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "-1"},
            8,
            ", since CUDA_VISIBLE_DEVICES hides all",
        ),
        (CUDA, {}, 0, ""),
    ],
)
@pytest.mark.parametrize("request_", ["auto", "0"])
def test_without_a_device_there_is_nothing_to_give(layers, environ, count, why, request_):
    """A fake with eight devices does not widen a mask that hides them all."""
    with pytest.raises(DevicesError) as caught:
        dealt(layers, environ, count, 1, request=request_)
    assert str(caught.value) == (
        f"there is no device to give to workers{why} (--sglhw-devices {request_}). Valid here: off."
    )


MASK_NAMES = st.one_of(
    st.lists(st.integers(0, 15).map(str), unique=True, min_size=1, max_size=8),
    st.lists(st.sampled_from(UUIDS), unique=True, min_size=1, max_size=8),
    st.lists(st.integers(0, 7).map("MIG-GPU-aaaa/{}/0".format), unique=True, min_size=1, max_size=8),
)
#: The rules of the runtimes, stated here in another way than in the product: which mask names a worker's devices, the
#: first that is set, and which one renumbers them beforehand.
NAMING = {
    "cuda": ["CUDA_VISIBLE_DEVICES"],
    "rocm": ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"],
    "npu": ["ASCEND_RT_VISIBLE_DEVICES"],
    "musa": ["MUSA_VISIBLE_DEVICES"],
    "xpu": ["ZE_AFFINITY_MASK"],
    "hpu": ["HABANA_VISIBLE_MODULES"],
}
RENUMBERING = {"rocm": "ROCR_VISIBLE_DEVICES"}
CALLER = st.dictionaries(
    st.sampled_from(sorted({name for names in NAMING.values() for name in names} | set(RENUMBERING.values()))),
    MASK_NAMES.map(",".join),
    max_size=4,
)


def shown_by(platform, environ, count):
    """What the caller's masks leave of ``count`` devices that the runtime enumerates."""
    for name in NAMING[platform]:
        if name in environ:
            return environ[name].split(",")[:count]
    outer = environ.get(RENUMBERING.get(platform))
    return [str(i) for i in range(len(outer.split(",")) if outer else count)][:count]


def test_every_platform_with_a_mask_has_its_rules_here():
    """A platform that gets a mask needs a rule for workers."""
    assert {row.name for row in PLATFORMS.values() if row.device_control_env_vars} == NAMING.keys()


@settings(max_examples=1000, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(sorted(NAMING)), CALLER, st.integers(1, 8), st.integers(1, 24), st.integers(1, 8))
def test_every_worker_has_devices_of_the_callers_mask_spread_evenly(platform, environ, count, workers, per_worker):
    """1,000 random masks, device and worker counts: never outside the mask, never two takers more than another."""
    layers, allowed = PLATFORMS[platform].device_control_env_vars, shown_by(platform, environ, count)
    if per_worker > len(allowed):
        with pytest.raises(DevicesError):
            dealt(layers, environ, count, workers, per_worker)
        return
    environments = dealt(layers, environ, count, workers, per_worker)
    first, *others = NAMING[platform]
    assert {frozenset(environment) for environment in environments} == {
        frozenset([first, *(name for name in others if name in environ)])
    }
    assert all(len(set(environment.values())) == 1 for environment in environments)
    hands = [set(environment[first].split(",")) for environment in environments]
    assert len(hands) == workers
    assert all(len(hand) == per_worker and hand <= set(allowed) for hand in hands)
    takers = Counter(name for hand in hands for name in hand)
    assert max(takers.values()) - min(takers.get(name, 0) for name in allowed) <= 1


CPU = SimpleNamespace(
    environment=lambda _: SimpleNamespace(platform="cpu"), registry=SimpleNamespace(platforms={"cpu": None})
)


@pytest.mark.parametrize("devices", ["auto", "1,0"])
def test_remote_workers_are_numbered_on_their_own_host(devices):
    """A request for each, with its place among the workers of its host; local ones have none."""
    starts = ("ssh=a", "ssh=b", "popen", "ssh=a", "popen//via=proxy", "ssh=a", "ssh=b", "popen//via=proxy")
    specs = [XSpec(f"{start}//env:KEPT=1") for start in starts]
    pin(specs, CPU, SimpleNamespace(devices=devices, devices_per_worker=2))
    slots = [spec.env.get("SGLHW_PIN_SELF") for spec in specs]
    assert slots == [slot if slot is None else f"{devices};2;{slot}" for slot in (0, 0, None, 1, 0, 2, 1, 1)]
    assert all(spec.env["KEPT"] == "1" for spec in specs)


def machine(platform, count):
    devices = [SimpleNamespace(uuid=None) for _ in range(count)]
    environment = SimpleNamespace(platform=platform, devices=devices)
    return SimpleNamespace(environment=lambda _: environment, registry=built_in())


@pytest.mark.parametrize(
    ("platform", "variable"),
    [
        ("cuda", "CUDA_VISIBLE_DEVICES"),
        ("rocm", "ROCR_VISIBLE_DEVICES"),
        ("rocm", "HIP_VISIBLE_DEVICES"),
        ("rocm", "CUDA_VISIBLE_DEVICES"),
        ("xpu", "ZE_AFFINITY_MASK"),
    ],
)
def test_a_spec_that_says_itself_what_its_worker_sees_is_refused(platform, variable):
    """Neither of the two devices that the worker would have is taken in silence."""
    specs = [XSpec("popen//id=gw0"), XSpec(f"popen//id=gw1//env:{variable}=3,2")]
    with pytest.raises(pytest.UsageError) as caught:
        pin(specs, machine(platform, 4), SimpleNamespace(devices="auto", devices_per_worker=1))
    assert str(caught.value) == (
        f"the spec of worker gw1 sets {variable}='3,2' (--tx), and --sglhw-devices auto gives that worker its devices "
        f"as well. Valid: one of the two. Set {variable} for the whole run to name the devices that may be given away, "
        "or leave --sglhw-devices off to keep the specs as they are."
    )


@pytest.mark.parametrize(
    ("spec", "platform"),
    [
        ("popen//env:ZE_AFFINITY_MASK=3", "cuda"),
        ("popen//env:CUDA_VISIBLE_DEVICES=3", "cpu"),
        ("ssh=a//env:CUDA_VISIBLE_DEVICES=3", "cuda"),
    ],
    ids=["another platform's", "no devices to give", "remote"],
)
def test_a_mask_that_pinning_does_not_touch_stays(spec, platform):
    """A remote worker takes its share inside of the mask, on its own machine."""
    spec = XSpec(spec)
    before = dict(spec.env)
    pin([spec], machine(platform, 4), SimpleNamespace(devices="auto", devices_per_worker=1))
    assert spec.env.items() >= before.items()
