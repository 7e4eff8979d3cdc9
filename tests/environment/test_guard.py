"""The guard that a launcher asks, and the probes that a project brings itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipapp
from pathlib import Path

import pytest
from hostile import DEADLINE, distribution, doctor, h100, plant, torch_package

import pytest_sglhw
from pytest_sglhw.asking import child
from pytest_sglhw.asking.asker import Asker

WORKS = """
def transfer_kv_per_layer(src_k, dst_k, src_v, dst_v, src, dst, item_size):
    dst_k[dst] = src_k[src]
    dst_v[dst] = src_v[src]
"""
KERNELS = distribution("sglang-kernel", "0.4.10") | {"sgl_kernel/__init__.py": "", "sgl_kernel/kvcacheio.py": WORKS}
GUARD = f"""
import json, sys, pytest_sglhw
found = pytest_sglhw.probe_environment(["kvcacheio"], timeout={DEADLINE})
loaded = sorted({{"torch", "sgl_kernel", "sglang", "numpy"}} & set(sys.modules))
print(json.dumps([found.platform, found.available("kvcacheio"), sorted(found.capabilities), loaded]))
"""

#: files -> platform, whether the guard lets the launcher in.
MACHINES = {
    "with kernels": (h100() | KERNELS, "cuda", True),
    "without kernels": (h100(), "cuda", False),
    "with broken kernels": (h100() | KERNELS | {"sgl_kernel/__init__.py": "import os; os.abort()"}, "cuda", False),
    "with a torch that hangs": (torch_package("import time; time.sleep(600)", cuda="13.0"), "unknown", False),
    "a cpu": (torch_package("raise SystemExit", __version__="2.11.0+cpu") | KERNELS, "cpu", False),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_guard_is_true_only_where_the_kernels_work(tmp_path, machine):
    """It never raises, looks at what it was asked for alone, and leaves nothing imported in the launcher."""
    files, platform, available = MACHINES[machine]
    environ = plant(tmp_path, files)
    done = subprocess.run([sys.executable, "-c", GUARD], env=environ, capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == [platform, available, ["kvcacheio"], []]


SECONDS = "Valid: a number of seconds from 0.001 to 86400 (a day)."
WRONG = {
    "a string": (
        {"capabilities": "kv4"}, "'kv4' is no list of capabilities. Valid: a list of names, here ['kv4'].",
    ),
    "a number": ({"capabilities": 5}, "5 is no list of capabilities. Valid: a list of names, or None for all."),
    "lists": (
        {"capabilities": [["kv4"]]}, "[['kv4']] is no list of capabilities. Valid: a list of names, or None for all.",
    ),
    "no seconds": ({"timeout": 0}, f"0 is not a valid timeout. {SECONDS}"),
    "text": ({"timeout": "5"}, f"'5' is not a valid timeout. {SECONDS}"),
    "never": ({"timeout": float("inf")}, f"inf is not a valid timeout. {SECONDS}"),
    "no number": ({"timeout": float("nan")}, f"nan is not a valid timeout. {SECONDS}"),
    "years": ({"timeout": 6e8}, f"600000000.0 is not a valid timeout. {SECONDS}"),
    "too short for a clock": ({"timeout": 1e-9}, f"1e-09 is not a valid timeout. {SECONDS}"),
    "a truth value": ({"timeout": True}, f"True is not a valid timeout. {SECONDS}"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_question_is_refused(case):
    """The whole message: what was given and what is valid."""
    arguments, text = WRONG[case]
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        pytest_sglhw.probe_environment(**arguments)


@pytest.mark.parametrize("timeout", [0.001, 86400])
def test_the_shortest_and_the_longest_timeout_are_understood_by_the_child(tmp_path, timeout):
    """The child is there and answers, or is told to be too slow."""
    code = f"import pytest_sglhw; print(pytest_sglhw.probe_environment((), timeout={timeout}).reason)"
    environ = plant(tmp_path, h100())
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)

    assert re.search(r"enumerates 1 cuda device|hung: did not end within 0\.001 s", done.stdout), done.stdout


def test_the_child_looks_for_modules_where_this_process_does(tmp_path):
    """What an isolated Python does not see, its child does not see either."""
    environ = plant(tmp_path, {"json.py": "raise RuntimeError('rubbish')"})
    code = (
        f"import sys; sys.path[:0] = {[str(Path(pytest_sglhw.__file__).parents[1])]!r}\n"
        "import pytest_sglhw; print(pytest_sglhw.probe_environment((), full=True).reason)"
    )
    command = [sys.executable, "-I", "-c", code]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)

    assert "child process" not in done.stdout


def test_a_launcher_that_is_one_archive_has_a_guard(tmp_path):
    """With this package in it: the files of the child are laid beside its answers, and removed with them."""
    app, temporary = tmp_path / "app", tmp_path / "temporary"
    temporary.mkdir()
    shutil.copytree(Path(pytest_sglhw.__file__).parent, app / "pytest_sglhw", ignore=lambda *_: ["__pycache__"])
    app.joinpath("__main__.py").write_text(GUARD)
    zipapp.create_archive(app, tmp_path / "app.pyz")
    files = h100() | KERNELS | {"sgl_kernel/__init__.py": "import os; os.abort()"}
    environ = plant(tmp_path / "site", files) | {"PYTHONPATH": str(tmp_path / "site"), "TMPDIR": str(temporary)}
    command = [sys.executable, str(tmp_path / "app.pyz")]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == ["cuda", False, ["kvcacheio"], []]
    assert not list(temporary.iterdir())


def test_a_child_that_ends_at_once_is_said_with_its_last_words(tmp_path):
    """How it ended and what it wrote."""
    plant(tmp_path, {"json.py": "raise RuntimeError('rubbish')"})
    with Asker(DEADLINE, {**os.environ, "PYTHONPATH": str(tmp_path)}) as asker:
        answer = asker.ask("a stage", "driver")

    words = "the child process ends before it answers: it exited with status 1: RuntimeError: rubbish"
    assert answer.detail == words
    assert answer.output.startswith("Traceback")


def test_an_unknown_capability_is_refused_with_the_valid_ones():
    """Before anything is probed."""
    with pytest.raises(ValueError, match=r"^no capability 'nope'\. Valid: .*kvcacheio.*\.$"):
        pytest_sglhw.probe_environment(["nope"])


VALID = "Valid: True where the capability works, False where it is not here, an error where it is broken."
#: What numpy and torch give for a comparison: an object of one value, ``item()``; of several it raises.
SCALAR = "Scalar"
SCALARS = """
class Scalar:
    def __init__(self, value): self.value = value
    def __bool__(self): return True
    def __repr__(self): return str(self.item())
    def item(self):
        if isinstance(self.value, type): raise self.value("not one value")
        return self.value
"""

#: What a project's own check does -> the state, and words of the reason.
CHECKS = {
    "passes": ("return True", "available", ""),
    "passes as a number": ("return 1", "available", ""),
    "passes as a scalar": (f"return {SCALAR}(True)", "available", ""),
    "says no": ("return False", "unavailable", "says that it is not there"),
    "says no as a number": ("return 0", "unavailable", "says that it is not there"),
    "says no as a scalar": (f"return {SCALAR}(False)", "unavailable", "says that it is not there"),
    "returns nothing": ("pass", "broken", f"the check own_check:works returned None, which is no answer. {VALID}"),
    "returns text": ("return 'no'", "broken", f"returned 'no' (str), which is no answer. {VALID}"),
    "returns a list": ("return []", "broken", "returned [] (list), which is no answer."),
    "returns a status": ("return -1", "broken", "returned -1 (int), which is no answer."),
    "returns several": (f"return {SCALAR}(ValueError)", "broken", "which is no answer."),
    "returns a mock": ("import unittest.mock; return unittest.mock.MagicMock()", "broken", "which is no answer."),
    "yields": ("yield True", "broken", "returned <generator object works"),
    "shows itself badly": (f"return {SCALAR}(SystemExit)", "broken", "returned something (own_check.Scalar)"),
    "raises": ("raise RuntimeError('first line\\nlast line')", "broken", "RuntimeError: first line last line"),
    "asserts": ("assert 1 == 2", "broken", "AssertionError"),
    "exits": ("raise SystemExit(3)", "broken", "SystemExit: 3"),
    "skips": ("import unittest; raise unittest.SkipTest('no card')", "broken", "SkipTest: no card"),
    "dies": ("import os; os._exit(3)", "unknown", "exited with status 3"),
    "hangs": ("import time; time.sleep(600)", "unknown", "did not end within"),
}


def own(check):
    """The files of an installed package that brings a capability whose check is ``own_check:{check}``."""
    row = {"name": "own", "summary": "s", "platforms": {"cuda": ""}, "probe": {"check": f"own_check:{check}"}}
    points = "[sglhw]\nown = own_rows:register\n"
    return distribution("own-rows", "1.0") | {
        "own_rows.py": f"def register(registry): registry.add_capability({row!r})\n",
        "own_rows-1.0.dist-info/entry_points.txt": points,
    }


@pytest.mark.parametrize("check", CHECKS)
def test_a_projects_own_check_has_a_state_whatever_it_does(tmp_path, check):
    """And the capabilities of others are as they were."""
    code, state, words = CHECKS[check]
    seen = doctor(
        tmp_path, h100() | KERNELS | own("works") | {"own_check.py": f"{SCALARS}\ndef works():\n    {code}\n"}
    )

    assert (seen.state("own"), words in seen.reason("own")) == (state, True), seen.reason("own")
    assert seen.state("kvcacheio") == "available"
    assert seen.left == []


def test_a_check_that_is_not_there_is_named(tmp_path):
    """A slip in a row is no riddle."""
    seen = doctor(tmp_path, h100() | own("wroks") | {"own_check.py": "def works(): pass\n"})

    assert seen.reason("own") == "the check own_check:wroks raised AttributeError: own_check has no function 'wroks'"


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("make", ["numpy.bool_({})", "torch.tensor({})", "torch.tensor([{}]) .all()"])
@pytest.mark.torch
def test_a_scalar_of_a_library_is_judged_by_its_truth(make, value):
    """``return (a == b).all()`` is a yes or a no, whichever library compared."""
    torch = pytest.importorskip("torch")
    numpy = pytest.importorskip("numpy")

    assert child._truth(eval(make.format(value), {"numpy": numpy, "torch": torch})) is value


def several(checks):
    """The files of an installed package with one capability for each check, all in one module."""
    rows = [
        {"name": f"own_{name}", "summary": "s", "platforms": {"cuda": ""}, "probe": {"check": f"own_check:{name}"}}
        for name in checks
    ]
    code = "".join(f"def {name}():\n    {body}\n" for name, body in checks.items())
    return distribution("own-rows", "1.0") | {
        "own_rows.py": f"def register(registry):\n    for row in {rows!r}: registry.add_capability(row)\n",
        "own_rows-1.0.dist-info/entry_points.txt": "[sglhw]\nown = own_rows:register\n",
        "own_check.py": code,
    }


def test_one_check_costs_itself_alone(tmp_path):
    """The others of its module are asked, before it and after it."""
    checks = {
        "first": "return True",
        "dies": "import ctypes; ctypes.string_at(0)",
        "second": "return True",
        "raises": "raise RuntimeError('x')",
        "aborts": "import os; os.abort()",
        "last": "return False",
    }
    seen = doctor(tmp_path, h100() | several(checks))

    states = {name: seen.state(f"own_{name}") for name in checks}
    assert states == {
        "first": "available",
        "dies": "unknown",
        "second": "available",
        "raises": "broken",
        "aborts": "unknown",
        "last": "unavailable",
    }
    assert seen.reason("own_dies") == "the check own_check:dies crashed: was killed by SIGSEGV"


def test_a_module_of_checks_that_dies_at_import_costs_one_crash(tmp_path):
    """All its checks are unknown, by the import."""
    files = several({"first": "return True", "second": "return True"})
    seen = doctor(tmp_path, h100() | files | {"own_check.py": "import os; os.abort()"})

    assert seen.reason("own_first") == "importing own_check crashed: was killed by SIGABRT"
    assert seen.reason("own_second").endswith("not asked again: import of own_check was killed by SIGABRT")
