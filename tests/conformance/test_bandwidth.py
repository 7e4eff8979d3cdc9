"""Bandwidth beside a plain copy: which cases, what is counted, how it is shown. How fast is never a test."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw.conformance import bandwidth  # noqa: E402
from pytest_sglhw.conformance.bandwidth import Bandwidth  # noqa: E402
from pytest_sglhw.conformance.bench import Bench  # noqa: E402
from pytest_sglhw.conformance.cells import Cell  # noqa: E402
from pytest_sglhw.conformance.checks import check_always  # noqa: E402
from pytest_sglhw.conformance.devices import Place  # noqa: E402
from pytest_sglhw.conformance.kernels import all_kernels  # noqa: E402
from pytest_sglhw.conformance.providers import resolve  # noqa: E402

CELL = Cell("transfer_kv_direct", "layer_first", "bfloat16", 16)
MOVING = [name for name, kernel in all_kernels().items() if list(kernel.workload.bulk(kernel.cells()[0], 1))]


def changed(trial, want):
    return sum(int((image != trial.buffers[name].before).sum()) for name, image in want.items())


@pytest.mark.parametrize("name", MOVING)
def test_a_large_case_moves_what_it_says(name):
    """The bytes that arrive are those that are counted, up to bytes that stood there before by chance."""
    kernel = all_kernels()[name]
    cell = kernel.cells()[0]
    for bulk in kernel.workload.bulk(cell, 1 << 16):
        trial = kernel.workload.build(cell, bulk.case, Place("cpu"))
        arrived = changed(trial, trial.expected())

        assert 0.98 * bulk.nbytes < arrived <= bulk.nbytes
        assert {bulk.source, bulk.target} <= {"host", "device"}


def test_every_transfer_is_about_moving_bytes():
    """The 13 kernels, each direction of each, and the JIT family."""
    transfers = {name for name, kernel in all_kernels().items() if kernel.family in {"kvcacheio", "transfers"}}

    assert transfers <= set(MOVING)
    kernel = all_kernels()["transfer_kv_per_layer"]
    assert [bulk.way for bulk in kernel.workload.bulk(kernel.cells()[0], 1)] == [
        f"{direction}, quota {quota}"
        for direction in ("host to device", "device to host", "device to device")
        for quota in (2, 32)
    ]


@pytest.mark.parametrize("name", ["transfer_kv_all_layer_lf_ph", "transfer_kv_direct"])
def test_a_large_case_is_right(name):
    """What is timed keeps the contract."""
    kernel = all_kernels()[name]
    cell = next(cell for cell in kernel.cells() if cell.page_size == 16)
    bulk = next(iter(kernel.workload.bulk(cell, 1 << 18)))
    bench = Bench(kernel, cell, resolve("torch").kernels, Place("cpu"))
    trial = bench.trial(bulk.case)

    check_always(trial, bench.run(trial))


def test_one_cell_of_each_kernel_and_layout():
    """Pages near 16 tokens, bfloat16 where it is."""
    cells = [CELL._replace(page_size=size, dtype=dtype) for size in (1, 128, 24) for dtype in ("uint8", "bfloat16")]
    other = CELL._replace(layout="page_first", dtype="uint8")

    assert list(bandwidth._one_of_each([*cells, other])) == [CELL._replace(page_size=24), other]


def test_a_kernel_that_fails_is_said(monkeypatch):
    """One line with the first line of what it raised, and the others are measured."""
    monkeypatch.setattr(bandwidth, "CPU_BYTES", 1 << 16)

    def transfer_kv_direct(*arguments):
        raise RuntimeError("CUDA error: no\nmore words")

    found = SimpleNamespace(place=lambda: Place("cpu"), kernels=SimpleNamespace(transfer_kv_direct=transfer_kv_direct))
    row, *_ = bandwidth.measure(found, all_kernels()["transfer_kv_direct"], CELL)

    assert row == Bandwidth(CELL, "host to device", problem="RuntimeError: CUDA error: no")
    assert bandwidth.table("mine", [row])[1] == [
        "transfer_kv_direct layer_first",
        *("host to device", "16", "not measured:", "RuntimeError: CUDA error: no", "", ""),
    ]


def test_the_ratio_is_of_neighbours(monkeypatch):
    """Rates from the medians; the ratio from each round's own copy; two rounds are thrown away."""
    place = Place("cpu")
    seconds = iter([9.0, 9.0, 9.0, 9.0, *[value for _ in range(7) for value in (0.004, 0.001)]])
    place.seconds = lambda *_: next(seconds)
    found = SimpleNamespace(place=lambda: place, kernels=resolve("torch").kernels)
    monkeypatch.setattr(bandwidth, "CPU_BYTES", 1 << 20)
    row = next(bandwidth.measure(found, all_kernels()["transfer_kv_direct"], CELL))

    assert row.nbytes == 1 << 20
    assert (row.gb_per_s, row.copy_gb_per_s, row.ratio) == pytest.approx((0.262144, 1.048576, 0.25))
    assert bandwidth.table("mine", [row])[1][3:] == ["1.0", "0.3", "1.0", "0.25"]


def test_the_command_shows_and_records_it(pytester):
    """After the table; the report has a record for each row."""
    result = pytester.run(
        *(sys.executable, "-m", "pytest_sglhw", "conformance", "--kernels", "torch", "--kernel", "transfer_kv_direct"),
        *("--dtype", "uint8", "--page-size", "16", "--profile", "quick", "--bandwidth", "--report", "out.jsonl"),
        timeout=120,
    )

    assert result.ret == 0
    result.stdout.re_match_lines([
        r"bandwidth of torch +way +page size +MB +GB/s +copy GB/s +ratio",
        r"transfer_kv_direct layer_first +host to device +16 +8\.4 +[\d.]+ +[\d.]+ +\d+\.\d\d",
    ])  # fmt: skip
    records = [json.loads(line) for line in (pytester.path / "out.jsonl").read_text().splitlines()]
    rows = [record for record in records if record["kind"] == "bandwidth"]
    assert [row["way"] for row in rows] == ["host to device", "device to host", "device to device"]
    assert all(row["ratio"] > 0 and row["problem"] is None and row["nbytes"] == 8_388_608 for row in rows)
    assert records[-1]["kind"] == "end"
