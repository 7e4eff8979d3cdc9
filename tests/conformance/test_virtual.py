"""Offsets beyond 2 and 4 GiB: a kernel that computes them in 32 bits is caught, with nothing of that size allocated."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw import kvcacheio  # noqa: E402
from pytest_sglhw.conformance.bench import Bench  # noqa: E402
from pytest_sglhw.conformance.devices import Place  # noqa: E402
from pytest_sglhw.conformance.failures import BrokenLawError, RejectedError  # noqa: E402
from pytest_sglhw.conformance.kernels import all_kernels  # noqa: E402
from pytest_sglhw.conformance.strategies import PinnedDraw  # noqa: E402
from pytest_sglhw.conformance.virtual import check_addresses  # noqa: E402

KERNELS = [name for name, kernel in all_kernels().items() if kernel.family == "kvcacheio"]


def _check(name, provider, page_size=16, place=None, large_trials=0):
    kernel = all_kernels()[name]
    cell = next(cell for cell in kernel.cells() if cell.page_size == page_size)
    bench = Bench(kernel, cell, provider, place or Place("cpu"), large_trials=large_trials)
    trial = bench.trial(kernel.workload.draw(cell, PinnedDraw(7, {"row_bytes": 576, "heads": 1, "layers": 1})))
    check_addresses(bench, trial)
    return bench


@pytest.mark.parametrize("name", KERNELS)
def test_right_kernels_reach_every_row(name):
    """The CPU kernels move rows beyond 4 GiB of a pool."""
    _check(name, kvcacheio)


def _narrow(bits):
    """A kernel of one layer whose source offsets are numbers of so many bits."""

    def transfer_kv_per_layer_mla(src, dst, reads, writes, size, *rest):
        bytes_of = src.flatten().view(torch.uint8)
        whole = torch.as_strided(bytes_of, (bytes_of.storage_offset() + len(bytes_of),), (1,), 0)
        for read, write in zip(reads.tolist(), writes.tolist(), strict=True):
            offset = read * size % (1 << bits)
            offset -= (1 << bits) * (bits == 32 and offset >= 1 << 31)
            at = bytes_of.storage_offset() + offset
            dst[write].view(torch.uint8).copy_(whole[at : at + size].view(dst[write].view(torch.uint8).shape))

    return SimpleNamespace(transfer_kv_per_layer_mla=transfer_kv_per_layer_mla)


@pytest.mark.parametrize(("bits", "where"), [(31, "2.00"), (32, "2.00"), (40, None)])
def test_offsets_that_wrap_are_caught(bits, where):
    """Offsets of 31 bits and signed 32 bits go wrong at 2 GiB; wider ones are right."""
    if where is None:
        _check("transfer_kv_per_layer_mla", _narrow(bits))
        return
    with pytest.raises(BrokenLawError, match="law 'addresses' is broken") as caught:
        _check("transfer_kv_per_layer_mla", _narrow(bits))
    assert "GiB into the pool" in str(caught.value)


@pytest.fixture
def large_device(fake_device):
    """Makes a device with so many bytes free."""
    return fake_device.LargeDevice


@pytest.mark.parametrize(("bits", "fails"), [(32, True), (40, False)])
def test_a_device_with_room_takes_real_memory_and_gives_it_back(bits, fails, large_device):
    """The profile ``deep`` allows it once for each cell."""
    place = large_device(1 << 36)
    with pytest.raises(BrokenLawError, match="addresses") if fails else nullcontext():
        _check("transfer_kv_per_layer_mla", _narrow(bits), place=place, large_trials=1)
    assert max(place.taken) > 6 << 30
    assert place.released == 1


def test_a_device_without_room_is_left_alone(large_device):
    """Half of what is free belongs to others."""
    place = large_device(12 << 30)
    with pytest.raises(
        RejectedError, match=r"no room for a large pool \(\d+ bytes on the device, where 12884901888 are"
    ):
        _check("transfer_kv_per_layer_mla", kvcacheio, place=place, large_trials=1)
    assert max(place.taken) < 1 << 30


def test_a_device_takes_no_gigabytes_unasked(large_device):
    """All but the profile ``deep`` give the example up, and another law takes its place."""
    place = large_device(1 << 36)
    with pytest.raises(RejectedError, match="once for each cell of the profile deep"):
        _check("transfer_kv_per_layer_mla", kvcacheio, place=place)
    assert max(place.taken) < 1 << 30
