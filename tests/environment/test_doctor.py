"""``sglhw doctor`` as a command: exit statuses, lanes, bad input, what it writes and where."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hostile import TENSORS, doctor, h100, namespace, plant, torch_package

from pytest_sglhw.environment.reading import read_environment

CPU = torch_package("", __version__="2.11.0+cpu")
HANGS = torch_package("import time; time.sleep(600)", cuda="13.0")

LANES = """
[lanes.cpu]
platform = "cpu"
[lanes.cuda]
platform = "cuda"
min_devices = 2
archs = ["sm100"]
capabilities = ["kvcacheio"]
"""


def command(folder, files, *arguments, **variables):
    """Run the command over ``files`` in ``folder``."""
    environ = plant(folder, files) | variables
    line = [sys.executable, "-m", "pytest_sglhw", "doctor", *arguments]
    return subprocess.run(line, env=environ, cwd=folder, capture_output=True, check=False, timeout=60)


def test_a_kept_promise(tmp_path):
    """Exit status 0, and nothing beside the report."""
    done = command(tmp_path, CPU | {"sglhw.toml": LANES}, "--lane", "cpu")

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"platform      cpu: torch 2.11.0+cpu is a CPU build\n")


def test_an_unmet_promise_is_a_table_beside_the_record(tmp_path):
    """Exit status 1; the table goes to the standard error, so that the standard output stays JSON."""
    done = command(tmp_path, h100() | {"sglhw.toml": LANES}, "--json", "--lane", "cuda", "--probe-timeout", "9")

    assert done.returncode == 1
    assert read_environment(json.loads(done.stdout), "stdout").platform == "cuda"
    table = [line.split() for line in done.stderr.decode().splitlines()]
    assert ["x", "devices", "at", "least", "2", "1"] in table
    assert ["x", "archs", "sm100", "sm90"] in table
    assert ["platform", "cuda", "cuda", "torch", "2.11.0", "enumerates", "1", "cuda", "device"] in table
    assert any(row[:4] == ["x", "kvcacheio", "available", "unavailable"] for row in table)


def test_an_unknown_platform_is_exit_status_3_whatever_the_lane(tmp_path):
    """Nobody knows whether the promise is kept; both are said."""
    files = torch_package("raise ImportError('libcudart.so.13')", cuda="13.0") | {"sglhw.toml": LANES}
    done = command(tmp_path, files, "--lane", "cuda")

    assert done.returncode == 3
    assert b"\nprobe         crashed at: import of torch\n" in done.stdout
    assert b"x platform" in done.stderr


WRONG = {
    "unknown lane": (("--lane", "nope"), LANES, "there is no lane 'nope'"),
    "no configuration": (("--lane", "cpu"), None, "lane"),
    "broken configuration": (("--lane", "cpu"), "[lanes.cpu", "sglhw.toml"),
    "unknown option": (("--jsn",), None, "unrecognized arguments: --jsn"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_refused_before_anything_is_probed(tmp_path, case):
    """Exit status 2 at once: a torch that would hang is never asked, and no report is printed."""
    arguments, lanes, words = WRONG[case]
    done = command(tmp_path, HANGS | ({"sglhw.toml": lanes} if lanes else {}), *arguments)

    assert (done.returncode, done.stdout) == (2, b"")
    assert words in done.stderr.decode()


def test_an_unknown_lane_shows_the_valid_ones(tmp_path):
    """The whole message: what was given, where, what is valid."""
    done = command(tmp_path, HANGS | {"sglhw.toml": LANES}, "--lane", "nope")

    places = f"{tmp_path}/pyproject.toml as [tool.sglhw.lanes.NAME], or in sglhw.toml beside it as [lanes.NAME]"
    assert done.stderr.decode() == (
        f"sglhw doctor: there is no lane 'nope'. Configured: cpu, cuda. Lanes stand in {places}.\n"
    )


def test_the_text_shows_a_person_what_the_record_holds(tmp_path):
    """Platform, device, build, versions, masks, a line for each capability, disagreements."""
    code = namespace("cuda", name="NVIDIA H100 80GB HBM3", available=False) + TENSORS
    done = command(tmp_path, torch_package(code, cuda="13.0"), CUDA_VISIBLE_DEVICES="GPU-1")

    lines = done.stdout.decode().splitlines()
    assert lines[0] == "platform      cuda: torch 2.11.0 enumerates 1 cuda device"
    assert lines[1] == "device 0      NVIDIA H100 80GB HBM3, sm90, 80 GiB, GPU-1"
    assert lines[2] == "torch         2.11.0 (cuda 13.0)"
    assert "masks         CUDA_VISIBLE_DEVICES GPU-1" in lines
    assert any(line.split()[:2] == ["kvcacheio", "unavailable"] for line in lines)
    assert "disagreements" in lines
    assert "  torch.cuda.is_available() says False and device_count() says 1" in lines


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_what_no_encoding_can_write_is_escaped(tmp_path, encoding):
    """A mask that is no text, and a message in another script, do not end the command."""
    files = h100() | {"sgl_kernel/__init__.py": "raise RuntimeError('驱动程序')", "sgl_kernel/kvcacheio.py": ""}
    done = command(tmp_path, files, PYTHONIOENCODING=encoding, ROCR_VISIBLE_DEVICES="\udcff")

    assert (done.returncode, done.stderr) == (0, b"")
    assert b"RuntimeError: " in done.stdout
    assert b"ROCR_VISIBLE_DEVICES \\udcff" in done.stdout


@pytest.mark.parametrize("folder", ["absent", "file"])
def test_without_a_temporary_folder_nothing_can_be_asked(tmp_path, folder):
    """No child process: the platform is unknown and says why, the command does not fall over."""
    tmp_path.joinpath("file").touch()
    code = f"import tempfile; tempfile.tempdir = {str(tmp_path / folder)!r}"
    seen = doctor(tmp_path, h100() | {"sitecustomize.py": code})

    assert (seen.status, seen.record["platform"], seen.record["probe"]["status"]) == (3, "unknown", "crashed")
    assert "no child process could be started: " in seen.record["reason"]
    assert str(tmp_path / folder) in seen.record["reason"]


def test_a_name_is_no_flood(tmp_path):
    """A driver that gives millions of letters as a name is shown with the first of them."""
    torch = torch_package(namespace("cuda", name="H" * 5_000_000) + TENSORS, cuda="13.0")
    seen = doctor(tmp_path, torch)

    assert seen.record["devices"][0]["name"] == "H" * 200


def test_nothing_that_a_package_says_moves_the_cursor(tmp_path):
    """Or begins a line of its own, as a platform or as a command to a CI runner."""
    says = "import os; os.write(1, b'\\x1b[2J::error::no\\n'); raise RuntimeError('\\x1b]0;no\\x07 \\u202e')"
    files = h100("\n__version__ = '2.11\\x1b[31m\\nplatform      cpu: no'\n") | {"flashinfer/__init__.py": says}
    done = command(tmp_path, files)
    record = doctor(tmp_path, files).record["capabilities"]["flashinfer"]

    shown = done.stdout.decode()
    assert [char for char in shown if not (char.isprintable() or char == "\n")] == []
    assert r"torch         2.11\x1b[31m\nplatform      cpu: no" in shown
    assert [line for line in shown.splitlines() if line.lstrip().startswith("::")] == []
    assert record["reason"] == r"importing flashinfer raised RuntimeError: \x1b]0;no\x07 \u202e"
