"""A lane in one command, and the same without a network: ``.ci/lane.py`` and ``.ci/offline.py``, on any machine."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pytest_sglhw.lanes.config import load_lanes
from pytest_sglhw.registry.loading import built_in

ROOT = Path(__file__).parents[1]

sys.path.insert(0, str(ROOT / ".ci"))
import lane  # noqa: E402
import offline  # noqa: E402
from slim_wheel import slim  # noqa: E402

sys.path.remove(str(ROOT / ".ci"))


def make_wheel(folder, name="kernels-1.0-cp310-abi3-manylinux2014_x86_64.whl", files=None):
    files = files or {"kernels/__init__.py": "", "kernels/ops.so": "ops", "kernels/flash_ops.abi3.so": "large"}
    info = "kernels-1.0.dist-info"
    files = {
        **files,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: kernels\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp310-abi3-manylinux2014_x86_64\n",
    }
    record = "".join(f"{path},{hashed(text.encode())},{len(text)}\n" for path, text in files.items())
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return folder / name


def hashed(content):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


# --- a wheel without some of its files ---


def test_a_slim_wheel_says_exactly_what_is_in_it(tmp_path):
    """Every file stands in RECORD with its hash and size, and nothing else does."""
    (tmp_path / "out").mkdir()
    target = slim(make_wheel(tmp_path), ["kernels/flash_ops*"], tmp_path / "out")

    assert target.name == "kernels-1.0-1slim-cp310-abi3-manylinux2014_x86_64.whl"
    with zipfile.ZipFile(target) as wheel:
        content = {name: wheel.read(name) for name in wheel.namelist()}
    record = content.pop("kernels-1.0.dist-info/RECORD").decode()
    rows = {name: (digest, size) for name, digest, size in csv.reader(io.StringIO(record))}
    assert rows.pop("kernels-1.0.dist-info/RECORD") == ("", "")
    assert rows == {name: (hashed(data), str(len(data))) for name, data in content.items()}
    assert content["kernels-1.0.dist-info/LEFT_OUT"] == b"kernels/flash_ops.abi3.so\n"
    assert content["kernels-1.0.dist-info/WHEEL"].endswith(b"\nBuild: 1slim\n")
    assert content["kernels/ops.so"] == b"ops"


def test_pip_installs_a_slim_wheel(tmp_path):
    """It is a wheel like any other."""
    files = {"kernels/__init__.py": "", "kernels/flash_ops.py": "large"}
    wheel = make_wheel(tmp_path, "kernels-1.0-py3-none-any.whl", files)
    (tmp_path / "out").mkdir()
    target = slim(wheel, ["*/flash_ops*"], tmp_path / "out")
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(site)]
    subprocess.run([*pip, str(target)], check=True, timeout=60)

    assert sorted(path.name for path in (site / "kernels").glob("*.py")) == ["__init__.py"]


def test_a_pattern_that_matches_nothing_is_an_error(tmp_path):
    """A library that was renamed upstream is not kept in silence."""
    with pytest.raises(ValueError, match=r"has nothing that matches sgl_kernel/flash\*\."):
        slim(make_wheel(tmp_path), ["kernels/flash*", "sgl_kernel/flash*"], tmp_path)


def test_a_slim_wheel_is_not_slimmed_again(tmp_path):
    """Its list of what was left out would be wrong."""
    target = slim(make_wheel(tmp_path), ["kernels/flash*"], tmp_path)

    with pytest.raises(ValueError, match="is slim already"):
        slim(target, ["kernels/ops*"], tmp_path)


# --- collecting ---


def test_what_a_machine_has(tmp_path):
    """Pinned lines count, by the normalised name; what has no version does not."""
    (tmp_path / "freeze").write_text(
        "Torch==2.11.0+cu130\nhuggingface_hub==1.33.0\n-e /src/mine\nx @ file:///x\n# no\n"
    )

    assert offline.frozen(tmp_path / "freeze") == {"torch": "2.11.0+cu130", "huggingface-hub": "1.33.0"}


def test_pip_takes_a_stand_in_for_what_the_machine_has(tmp_path):
    """Dependencies are resolved with the machine's versions, which are not looked for anywhere."""
    options = offline.stand_ins({"torch": "2.11.0+cu130"}, tmp_path)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-index", "-d", str(tmp_path / "out")]
    subprocess.run([*command, *options, "torch>=2.6"], check=True, timeout=60)

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["torch-2.11.0+cu130.machine-py3-none-any.whl"]


def test_a_machine_without_torch_is_refused(tmp_path, capsys):
    """There is nothing to go with."""
    (tmp_path / "freeze").write_text("numpy==2.5.2\n")

    assert offline.main(["collect", str(tmp_path / "out"), "--machine", str(tmp_path / "freeze")]) == 2
    assert capsys.readouterr().err == (
        f"offline.py: {tmp_path / 'freeze'} names no torch (name==version). The machine's own torch is what is used.\n"
    )


@pytest.mark.parametrize(
    ("torch", "wanted"), [("2.11.0+cu130", "0.4.4"), ("2.13.0", "0.4.7"), ("2.14.1", "0.4.10"), ("2.12.0", None)]
)
def test_the_kernels_that_belong_to_a_torch(monkeypatch, torch, wanted):
    """A wheel that was compiled for another torch does not load; which one is right is known, or asked for."""
    monkeypatch.delenv("SGLHW_SGL_KERNEL", raising=False)
    assert lane.kernel_requirement(torch) == (f"sglang-kernel=={wanted}" if wanted else None)

    monkeypatch.setenv("SGLHW_SGL_KERNEL", "sglang-kernel==9")
    assert lane.kernel_requirement(torch) == "sglang-kernel==9"


@pytest.mark.parametrize(("torch", "vision"), [("2.11.0+cu130", "0.26"), ("2.13.0", "0.28"), ("2.14.1", "0.29")])
def test_the_torchvision_that_belongs_to_a_torch(torch, vision):
    """SGLang imports one, and it has to be the one of this torch."""
    assert lane.vision_requirement(torch) == f"torchvision=={vision}.*"


def test_requirements_are_those_of_the_project(monkeypatch):
    """What tox and pyproject say, and torch in none of it."""
    monkeypatch.delenv("SGLHW_SGLANG", raising=False)
    sglang, imports = lane.sglang_requirements()

    assert sglang == "sglang==0.5.23"
    assert {"triton", "apache-tvm-ffi==0.1.11", "transformers==5.19.0"} <= set(imports)
    if sys.version_info >= (3, 11):
        assert {name.partition(">")[0] for name in offline.test_requirements()} >= {"pytest", "hypothesis", "numpy"}


# --- running ---


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A lane whose commands are written down instead of run, on a machine that the doctor says is CUDA's."""
    commands = []
    (tmp_path / "doctor.py").write_text('print(\'{"platform": "cuda"}\')')
    monkeypatch.setattr(lane, "SGLHW", [sys.executable, str(tmp_path / "doctor.py")])
    monkeypatch.delenv("SGLHW_REPORT", raising=False)

    def call(*command, **environ):
        commands.append((command[2:], environ))
        return commands_fail.get(command[2], 0)

    commands_fail = {}
    monkeypatch.setattr(lane, "call", call)
    return commands, commands_fail


def test_the_doctor_speaks_first(machine, tmp_path):
    """Then one run of tests and matrix under the lane's promise, then the table and the page."""
    commands, _ = machine
    status = lane.main(["cuda", "--profile", "quick", "--reports", str(tmp_path), "-x"])

    doctor, run, *merges = commands
    report = str(tmp_path / "cuda.jsonl")
    assert status == 0
    assert doctor == (("doctor", "--lane", "cuda"), {})
    assert run[1] == {"SGLHW_LANE": "cuda", "SGLHW_REPORT": report}
    assert [part for part in run[0] if part.startswith("--sglhw-kernels")] == [
        f"--sglhw-kernels={name}" for name in ("sgl_kernel", "sglang_jit", "sglang_triton", "torch")
    ]
    assert {"tests", "pytest_sglhw.conformance", "--sglhw-profile=quick", "--sglhw-matrix-bandwidth", "-x"} <= {*run[0]}
    wanted = ("merge", report, "--expect", "cuda", "--fail-on", "crashed,missing")
    assert [merge[0][:6] for merge in merges] == [wanted] * 2
    assert (tmp_path / "cuda-doctor.json").read_text() == '{"platform": "cuda"}\n'


def test_a_machine_of_another_platform_is_refused_at_once(machine, tmp_path, capsys):
    """Before anything is installed for it or run on it."""
    commands, _ = machine

    assert lane.main(["rocm", "--install", "--reports", str(tmp_path)]) == 1
    assert [command for command, _ in commands] == [("doctor",)]
    assert "lane rocm needs a machine of platform rocm; this one is cuda." in capsys.readouterr().out


@pytest.mark.parametrize(("step", "status", "later"), [("doctor", 1, []), ("pytest", 1, ["merge", "merge"])])
def test_the_first_failure_is_the_exit_status(machine, tmp_path, step, status, later):
    """A broken promise ends it; the table of a red run is made all the same."""
    commands, fail = machine
    fail[step] = status

    assert lane.main(["cuda", "--reports", str(tmp_path)]) == status
    names = [command[0] for command, _ in commands]
    assert names[names.index(step) + 1 :] == later


@pytest.mark.parametrize(
    ("ending", "wanted", "words"),
    [
        ("os._exit(0)", 1, "sglhw merge: failed on crashed"),
        ("os.remove('cpu.jsonl'); os._exit(0)", 2, "there is nothing to merge"),
    ],
)
def test_a_run_that_ends_halfway_with_status_0_is_red(monkeypatch, tmp_path, capfd, ending, wanted, words):
    """A kernel that ends the process takes the summary and the status with it; what has no end then is the report."""
    test = tmp_path / "test_ends.py"
    test.write_text(f"import os\ndef test_ends():\n    {ending}\n")
    options = ("-p", "sglhw", "-p", "no:cacheprovider", "--sglhw-report", "cpu.jsonl")
    pytest_run = [sys.executable, "-m", "pytest", *options, str(test)]
    statuses = {}

    def call(*command, **environ):
        step = command[3] if command[2] == "pytest_sglhw" else command[2]
        command = {"doctor": [sys.executable, "-c", ""], "pytest": pytest_run}.get(step, command)
        statuses[step] = subprocess.run(command, cwd=tmp_path, timeout=60, check=False).returncode
        return statuses[step]

    monkeypatch.delenv("SGLHW_REPORT", raising=False)
    monkeypatch.setattr(lane, "look", lambda name, reports: 0)
    monkeypatch.setattr(lane, "save_machine", lambda name, reports: {})
    monkeypatch.setattr(lane, "call", call)
    (tmp_path / "cpu.jsonl").write_text("the report of an earlier run, which has its end\n")

    assert lane.main(["cpu", "--reports", str(tmp_path)]) == wanted
    assert statuses == {"doctor": 0, "pytest": 0, "merge": wanted}
    assert words in capfd.readouterr().err


def test_the_documentation_says_which_kernels_belong_to_a_torch():
    """The table of the page is the script's."""
    page = (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (2\.\d+) \| ([\d.]+) \|$", page, re.MULTILINE))

    assert rows == lane.KERNEL_OF_TORCH


def test_every_lane_has_its_providers():
    """The table speaks of the lanes of ``sglhw.toml`` and of registered providers."""
    assert set(lane.KERNELS) == set(load_lanes(ROOT, built_in()))
    assert {name for names in lane.KERNELS.values() for name in names} <= set(built_in().providers)


def test_an_empty_folder_is_refused(tmp_path, capsys):
    """It says who fills it."""
    assert offline.main(["run", str(tmp_path), "cpu"]) == 2
    assert capsys.readouterr().err == (
        f"offline.py: {tmp_path} holds no wheels. `offline.py collect` puts them there.\n"
    )


def test_the_environment_sees_the_packages_of_this_python(tmp_path):
    """Also where this Python is that of a virtual environment."""
    python = offline.environment(tmp_path / "venv")
    code = "import sys, pytest; print(sys.prefix)"
    done = subprocess.run([str(python), "-I", "-c", code], stdout=subprocess.PIPE, text=True, check=True, timeout=60)

    assert done.stdout.strip() == str(tmp_path / "venv")
