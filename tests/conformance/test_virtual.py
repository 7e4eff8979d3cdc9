"""Offsets beyond 2 and 4 GiB: a kernel that computes them in 32 bits is caught, with nothing of that size allocated."""

from __future__ import annotations

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


def _check(name, provider, page_size=16):
    kernel = all_kernels()[name]
    cell = next(cell for cell in kernel.cells() if cell.page_size == page_size)
    bench = Bench(kernel, cell, provider, Place("cpu"))
    trial = bench.trial(kernel.workload.draw(cell, PinnedDraw(7, {"row_bytes": 576, "heads": 1, "layers": 1})))
    try:
        check_addresses(bench, trial)
    except RejectedError as reason:
        pytest.skip(str(reason))


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
