"""What a kernel is handed on a device: pools and indices there, the host's pools pinned, a stream of its own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw import kvcacheio  # noqa: E402
from pytest_sglhw.conformance.bench import Bench  # noqa: E402
from pytest_sglhw.conformance.kernels import all_kernels  # noqa: E402
from pytest_sglhw.conformance.runner import CellRun, Effort  # noqa: E402
from pytest_sglhw.conformance.strategies import PinnedDraw  # noqa: E402

KERNELS = {name: kernel for name, kernel in all_kernels().items() if kernel.family == "kvcacheio"}
LAUNCHED = {name: kernel for name, kernel in KERNELS.items() if not kernel.workload.facts.direct}


def launched(name, place, seen):
    """A kernel over addresses that asks of its arguments what the one for CUDA asks."""
    at = 2 if "mla" in name else 4

    def kernel(*arguments):
        sides = zip(("Source", "Destination"), arguments[at : at + 2], strict=True)
        for side, indices in sides:
            if indices.is_cpu:
                raise RuntimeError(f"{side} indices must be a CUDA tensor")
        pools = [argument for argument in arguments[:at] if argument.is_cpu]
        if not all(map(place.is_pinned, pools)):
            raise RuntimeError("CUDA error: invalid argument")
        seen.append((place.runtime.current, tuple("host" if each.is_cpu else "device" for each in arguments[:at])))
        getattr(kvcacheio, name)(*arguments)

    return kernel


def run(name, kernels, place):
    kernel = KERNELS[name]
    cell = next(cell for cell in kernel.cells() if cell.page_size == 4 and cell.dtype == "bfloat16")
    provider = SimpleNamespace(**{name: kernels(name) for name in KERNELS}, get_device_accessible_ptr=lambda *_: 0)
    return CellRun(Bench(kernel, cell, provider, place, "fake"), Effort(8, 12)).run()


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_kernel_over_addresses_on_a_device(name, fake_device):
    """Every direction; every law of the cell holds, its error inputs included; each call on a stream of its own."""
    place, seen = fake_device.FakeDevice(), []
    tally = run(name, lambda each: launched(each, place, seen), place)

    facts = KERNELS[name].workload.facts
    per_layer = facts.host_layout == "layer_first" and not facts.all_layers
    sides = {sides[:2] for _, sides in seen}
    assert set(tally.laws) >= {"errors", "quota", "split"}
    assert {dict(levels)["direction"] for levels in tally.levels} == set(facts.directions)
    if per_layer:
        assert sides == {("host", "device"), ("device", "host"), ("device", "device")}
    elif facts.all_layers and facts.host_layout == "layer_first":
        assert sides == {("device", "device")}  # tables of addresses
    else:
        assert {"host", "device"} <= {where for pair in sides for where in pair}
    assert {type(stream) for stream, _ in seen} == {fake_device.Stream}


@pytest.mark.parametrize("name", sorted(set(KERNELS) - set(LAUNCHED)))
def test_a_kernel_over_tensors_on_a_device(name, fake_device):
    """Some tensor is the device's in every call, also in the refused ones: the dispatcher needs one to go by."""
    place, seen = fake_device.FakeDevice(), set()

    def direct(each):
        def kernel(sources, destinations, *rest):
            sides = {tensor.is_cpu for tensor in (*sources, *destinations)}
            assert False in sides
            assert all(place.is_pinned(tensor) for tensor in (*sources, *destinations) if tensor.is_cpu)
            seen.add(type(place.runtime.current))
            getattr(kvcacheio, each)(sources, destinations, *rest)

        return kernel

    tally = run(name, direct, place)

    assert "errors" in tally.laws
    assert seen == {fake_device.Stream}


def test_a_call_waits_for_what_filled_the_pools_and_for_the_kernel(fake_device):
    """The side stream begins after the current one; the images are taken when the device is done."""
    place = fake_device.FakeDevice()

    assert place.call(lambda: len(place.runtime.log)) == 1
    assert place.runtime.log == ["wait for default", "synchronize"]


def test_a_host_pool_that_is_not_pinned_has_to_be_refused(fake_device):
    """A kernel that takes it is caught by the law ``errors``."""
    place = fake_device.FakeDevice()
    place.is_pinned = lambda tensor: True

    with pytest.raises(AssertionError, match="a host pool that is not pinned"):
        run("transfer_kv_per_layer_mla_pf_lf", lambda each: launched(each, place, []), place)


@pytest.mark.parametrize("name", ["transfer_kv_per_layer", "transfer_kv_direct"])
def test_strided_indices_stay_strided_on_a_device(name, fake_device):
    """A view keeps its stride where it was put on the device whole; the indices of direct kernels stay on the CPU."""
    kernel, place, strides = KERNELS[name], fake_device.FakeDevice(), set()
    cell = next(cell for cell in kernel.cells() if cell.page_size == 4)
    for seed in range(60):
        case = kernel.workload.draw(cell, PinnedDraw(seed, {"pattern": "pages"}))
        *_, reads, writes = kernel.workload.build(cell, case, place).arguments()[: 4 if "direct" in name else 6]
        assert (reads.is_cpu, writes.is_cpu) == ("direct" in name,) * 2
        assert (reads.tolist(), writes.tolist()) == (list(case.source_indices), list(case.destination_indices))
        strides |= {(case.index_stride, reads.stride(), writes.stride())}

    assert strides == {(1, (1,), (1,)), (2, (2,), (2,))}
