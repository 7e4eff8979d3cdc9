"""``sglhw conformance``: exact filters, ids, missing kernels, crashes, workers. Real runs."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("hypothesis")

SMALL = ("--profile", "quick", "--page-size", "3", "--dtype", "bfloat16")


@pytest.mark.parametrize("plugins", ["by name", "by themselves"])
def test_an_item_is_named_by_kernel_layout_dtype_and_page_size(conformance, request, plugins):
    """One cell by exact filters is one item with a readable id, and the table counts its examples; by a seed too."""
    if plugins == "by themselves":
        request.getfixturevalue("every_plugin")
    options = ("--kernel", "transfer_kv_all_layer_lf_pf", *SMALL, "--seed", "7")
    result = conformance("--kernels", "torch", *options, "-v")

    assert result.returncode == 0, result.stdout + result.stderr
    assert "test_transfer[transfer_kv_all_layer_lf_pf-page_first-bfloat16-p3] PASSED" in result.stdout
    assert "1 cells (1 passed), 7 examples" in result.stdout
    assert "transfer matrix, profile quick, seed 7 =" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--page-size", "7"), "7 is not a valid page size (--page-size). Valid: 1, 2, 3, 4, 5, 16, 24, 64, 128."),
        (
            ("--dtype", "float12"),
            "float12 is not a valid dtype (--dtype). Valid: float32, float16, bfloat16, float8_e4m3fn, float8_e5m2,",
        ),
        (("--kernel", "transfer_kv"), "transfer_kv is not a valid kernel (--kernel). Valid: transfer_kv_per_layer, "),
        (("--layout", "pf"), "pf is not a valid layout (--layout). Valid: layer_first, page_first, "),
        (("--profile", "fast"), "'fast' is not a valid profile (--sglhw-profile, ini sglhw_profile). Valid: quick, ci"),
        *(
            (
                (f"--isolate-timeout={given}",),
                f"{given!r} is not a valid time limit (--isolate-timeout, --sglhw-matrix-isolate-timeout). Valid: a ",
            )
            for given in ("0", "-1", "nan", "inf", "1m", "")
        ),
        (("--kernels", "no_such"), "'no_such' is not a kernel provider (--kernels, --sglhw-kernels): "),
    ],
)
def test_a_wrong_name_is_a_usage_error_that_shows_what_is_valid(conformance_here, arguments, message):
    """Exit status 4 and one line, no traceback."""
    result = conformance_here("--kernels", "torch", *arguments)

    assert result.returncode == 4
    assert message in result.stderr
    assert "Traceback" not in result.stderr + result.stdout


CRASHES = """
import os, signal
from pytest_sglhw import kvcacheio
sglhw_device = "cpu"
def transfer_kv_per_layer_mla(*arguments):
    if arguments[2].numel() == 0:
        os.kill(os.getpid(), signal.SIGFPE)
    kvcacheio.transfer_kv_per_layer_mla(*arguments)
transfer_kv_all_layer_mla = kvcacheio.transfer_kv_all_layer_mla
"""


def test_a_crash_is_one_failed_cell_with_its_signal_and_example(conformance):
    """With ``--isolate`` the run goes on after a kernel has ended its process."""
    result = conformance("--kernels", "crashing", "--isolate", *SMALL[2:], "--profile", "ci", "-v", crashing=CRASHES)

    assert result.returncode == 1, result.stdout + result.stderr
    assert "KernelCrashError: the kernel crashed its process with SIGFPE" in result.stdout
    assert "source_indices=(), destination_indices=()" in result.stdout
    assert "test_transfer[transfer_kv_all_layer_mla-layer_first-bfloat16-p3] PASSED" in result.stdout


LOSING = """
from pytest_sglhw import kvcacheio
sglhw_device = "cpu"
transfer_kv_per_layer = kvcacheio.transfer_kv_per_layer
calls = []
def transfer_kv_all_layer(*arguments):
    calls.append(arguments)
    raise RuntimeError(f"CUDA error: an illegal memory access was encountered (call {len(calls)})")
transfer_kv_per_layer_mla = kvcacheio.transfer_kv_per_layer_mla
"""


def test_nothing_runs_on_a_device_that_was_lost(conformance_here):
    """The first example is kept as it was drawn; the cells after it are ``not_run``, with the test that lost it."""
    result = conformance_here("--kernels", "losing", *SMALL, "--report", "lost.jsonl", "-rs", losing=LOSING)

    records = [json.loads(line) for line in (result.folder / "lost.jsonl").read_text().splitlines()]
    tests = {record["kernel"]: record for record in records if record["kind"] == "test"}
    assert result.returncode == 1, result.stdout + result.stderr
    assert "an illegal memory access was encountered (call 1)" in result.stdout
    assert "smallest example (found in 0 steps): TransferCase(" in result.stdout
    assert [record["outcome"] for record in tests.values()] == ["passed", "failed", "not_run", "not_run"]
    loser = tests["transfer_kv_all_layer"]["nodeid"]
    assert tests["transfer_kv_per_layer_mla"]["reason"] == f"the device was lost in {loser}"
    assert tests["transfer_kv_per_layer_mla"]["examples"] == 0


PARTIAL = """
from pytest_sglhw.kvcacheio import transfer_kv_direct
sglhw_kernels = ("transfer_kv_direct", "transfer_kv_gone")
"""


def test_filters_that_select_nothing_together_say_why(conformance_here):
    """Each is valid by itself; pytest's exit status for nothing to run, and the reason."""
    result = conformance_here("--kernels", "torch", "--kernel", "transfer_kv_direct", "--layout", "page_head", *SMALL)

    said = " ".join(line.strip() for line in result.stdout.splitlines())
    assert result.returncode == 5, result.stdout + result.stderr
    assert (
        "--kernel transfer_kv_direct selects no cell beside the other filters: transfer_kv_direct has --layout "
        "layer_first, not page_head" in said
    )


HANGING = """
import time
from pytest_sglhw import kvcacheio
sglhw_device = "cpu"
transfer_kv_all_layer_mla = kvcacheio.transfer_kv_all_layer_mla
def transfer_kv_per_layer_mla(*arguments):
    time.sleep(1e6)
"""


def test_the_time_limit_of_an_example_can_be_given(conformance):
    """A hang ends after as many seconds and is one failed cell; the limit alone asks for child processes."""
    kernels = ("--kernel", "transfer_kv_per_layer_mla", "--kernel", "transfer_kv_all_layer_mla")
    result = conformance("--kernels", "hanging", *kernels, *SMALL, "--isolate-timeout", "2.5", hanging=HANGING)

    assert result.returncode == 1, result.stdout + result.stderr
    assert "KernelCrashError: the kernel did not return within 2.5 s; its process was ended" in result.stdout
    assert "2 cells (1 passed, 1 failed)" in result.stdout or "2 cells (1 failed, 1 passed)" in result.stdout


def test_missing_kernels_are_listed_and_declared_ones_fail(conformance_here):
    """What a provider lacks is named with the reason; what it declares and lacks fails an item of its own."""
    result = conformance_here("--kernels", "partial", *SMALL, "-v", partial=PARTIAL)

    assert result.returncode == 1
    assert "test_provider[partial] FAILED" in result.stdout
    assert "provider 'partial' declares kernels that it does not have: transfer_kv_gone" in result.stdout
    lines = result.stdout.splitlines()
    missing = next(at for at, line in enumerate(lines) if line.startswith("missing from partial: "))
    assert lines[missing].endswith(" kernels (the provider has no attribute of this name)")
    assert lines[missing + 1].startswith("    transfer_kv_per_layer, ")
    names = [*itertools.takewhile(lambda line: line.startswith("    "), lines[missing + 1 :])]
    assert lines[missing].split()[3] == str(len(" ".join(names).split(", ")))
    assert max(map(len, names)) <= 110
    assert "test_transfer[transfer_kv_direct-layer_first-bfloat16-p3] PASSED" in result.stdout


def test_a_provider_that_is_broken_fails_and_one_that_is_absent_is_listed(conformance_here):
    """An import that raises is broken; nothing to run at all is pytest's exit status 5."""
    broken = conformance_here("--kernels", "broken", *SMALL, broken="raise RuntimeError('driver too old')\n")
    absent = conformance_here("--kernels", "sgl_kernel_npu", *SMALL)

    assert broken.returncode == 1
    assert "provider 'broken' is broken: RuntimeError: driver too old" in broken.stdout
    assert absent.returncode == 5
    assert "missing from sgl_kernel_npu: " in absent.stdout


def test_a_raw_skip_in_a_kernel_is_refused(conformance_here):
    """``pytest.skip`` inside an example would end a cell after a few examples; it fails instead."""
    module = "import pytest\ndef transfer_kv_direct(*arguments):\n    pytest.skip('not today')\n"
    result = conformance_here("--kernels", "skipping", *SMALL, skipping=module)

    assert result.returncode == 1
    assert "called pytest.skip inside an example of the matrix" in result.stdout


KEYS = ("nodeid", "outcome", "provider", "kernel", "layout", "dtype", "page_size", "examples")


def test_two_workers_give_the_same_ids_and_outcomes(conformance, conformance_here, tmp_path):
    """The report of a run with two workers has the matrix facts and outcomes of a run without."""
    rows = []
    for run, extra in ((conformance_here, ()), (conformance, ("-p", "xdist", "-n", "2"))):
        report = tmp_path / f"report{len(extra)}.jsonl"
        result = run("--kernels", "torch", *SMALL, "--report", str(report), *extra)
        assert result.returncode == 0, result.stdout + result.stderr
        records = [json.loads(line) for line in report.read_text().splitlines()]
        tests = [record for record in records if record["kind"] == "test"]
        rows.append(sorted(tuple(test[key] for key in KEYS) for test in tests))

    assert len(rows[0]) == 13 + 9  # kernels, and layouts of their pools
    assert rows[0] == rows[1]


def test_the_package_runs_by_pyargs(conformance, tmp_path):
    """``pytest -p sglhw --pyargs`` runs the same items, with the profile and the provider by the plugin's options."""
    command = [sys.executable, "-m", "pytest", "-p", "sglhw", "--pyargs", "pytest_sglhw.conformance"]
    options = [
        "--sglhw-kernels",
        "torch",
        "--sglhw-profile",
        "quick",
        "-q",
        "-k",
        "transfer_kv_direct-layer_first-int8",
    ]
    result = subprocess.run(
        [*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )

    assert result.returncode == 0, result.stdout + result.stderr
    assert "transfer matrix, profile quick" in result.stdout
    assert "9 passed" in result.stdout
