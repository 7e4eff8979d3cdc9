"""What the process that asks may have done to itself, or had done to it, makes no answer untrue."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from hostile import DEADLINE, FLASHINFER, TENSORS, h100, namespace, plant, torch_package

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits, signals and descriptors as on Linux")

ABORTS = h100() | FLASHINFER | {"sgl_kernel/__init__.py": "import os; os.abort()", "sgl_kernel/kvcacheio.py": ""}
ASKS = (
    "import json, pytest_sglhw\n"
    f"print(json.dumps(pytest_sglhw.probe_environment(['kvcacheio', 'flashinfer'], timeout={DEADLINE}).to_json()))\n"
)


def asked(folder, files, before="", **options):
    """The record that a program gets which did ``before`` first."""
    environ = plant(folder, files)
    line = [sys.executable, "-c", before + ASKS]
    done = subprocess.run(line, env=environ, cwd=folder, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


#: How the end of a child is taken away from the one who waits for it.
NOBODY_KNOWS = {
    "ignores the signal": "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n",
    "reaps everything": (
        "import os, threading, time\n"
        "def reap():\n"
        "    while True:\n"
        "        try: os.waitpid(-1, 0)\n"
        "        except ChildProcessError: time.sleep(0.001)\n"
        "threading.Thread(target=reap, daemon=True).start()\n"
    ),
    "blocks all signals": "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n",
}


@pytest.mark.parametrize("how", NOBODY_KNOWS)
def test_how_a_child_ended_is_known_all_the_same(tmp_path, how):
    """It says so itself."""
    found = asked(tmp_path, ABORTS, NOBODY_KNOWS[how])["capabilities"]

    assert found["kvcacheio"]["reason"] == "importing sgl_kernel.kvcacheio crashed: was killed by SIGABRT"
    assert found["flashinfer"]["state"] == "available"


#: Python takes bytecode that is cut off for whole, and every process after that would fail to import it.
NO_BYTECODE = "import os, sys; sys.dont_write_bytecode = True; os.environ['PYTHONDONTWRITEBYTECODE'] = '1'"


def test_an_answer_that_has_no_place_is_no_hang(tmp_path):
    """A limit or a full disk cuts it short: the child ends at once, and its error is shown."""
    names = "".join(f"{'x' * 90}{number} = 0\n" for number in range(1500))
    files = h100() | FLASHINFER | {"sgl_kernel/__init__.py": "", "sgl_kernel/kvcacheio.py": names}
    limit = f"import resource; {NO_BYTECODE}; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))\n"
    found = asked(tmp_path, files, limit)["capabilities"]

    assert found["kvcacheio"]["reason"] == "importing sgl_kernel.kvcacheio crashed: exited with status 1"
    assert "OSError: [Errno 27] File too large" in found["kvcacheio"]["evidence"][-1]
    assert found["flashinfer"]["state"] == "available"


@pytest.mark.parametrize("module", ["resource", "ctypes"])
def test_a_module_of_the_program_with_a_name_of_pythons_own_is_not_ours(tmp_path, module):
    """Neither run in the child on our account nor in our way."""
    found = asked(tmp_path, h100() | FLASHINFER | {f"{module}.py": "raise RuntimeError('mine')"})

    assert (found["platform"], found["capabilities"]["flashinfer"]["state"]) == ("cuda", "available")


def test_a_version_file_without_end_is_not_read(tmp_path):
    """What torch is built for is asked of torch."""
    files = torch_package(namespace("cuda") + TENSORS, cuda="13.0")
    # A line that is long, not many: torch itself has to be imported in time.
    files["torch/version.py"] += f"notes = '{'x' * 20_000_000}'\n"

    assert asked(tmp_path, files)["platform"] == "cuda"


def test_a_command_without_an_output_says_so(tmp_path):
    """Exit status 74 and one line, before anything is probed."""
    line = f"exec {sys.executable} -m pytest_sglhw doctor >&-"
    environ = plant(tmp_path, {})
    done = subprocess.run(["sh", "-c", line], env=environ, stderr=subprocess.PIPE, text=True, check=False)

    words = "sglhw doctor: the output can't be written: the standard output is closed\n"
    assert (done.returncode, done.stderr) == (74, words)


def test_output_beyond_a_limit_is_one_line(tmp_path):
    """As on a full disk."""
    environ = plant(tmp_path, torch_package("", __version__="2.11.0+cpu"))
    code = (
        f"import resource; {NO_BYTECODE}; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "from pytest_sglhw.cli import main; sys.exit(main(['capabilities']))"
    )
    environ.pop("PYTHONUNBUFFERED", None)  # with it, Python itself takes a short write for a whole one
    with (tmp_path / "out").open("w") as out:
        line = [sys.executable, "-c", code]
        done = subprocess.run(line, env=environ, stdout=out, stderr=subprocess.PIPE, text=True, check=False)

    words = "sglhw capabilities: the output can't be written: File too large\n"
    assert (done.returncode, done.stderr) == (74, words)


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGTERM])
def test_signals_that_the_caller_ignores_do_not_keep_a_hang_alive(tmp_path, number):
    """Ignored signals are inherited."""
    files = h100() | {"sgl_kernel/__init__.py": "import time; time.sleep(600)", "sgl_kernel/kvcacheio.py": ""}
    before = f"import signal; signal.signal({int(number)}, signal.SIG_IGN)\n"

    assert asked(tmp_path, files, before, timeout=60)["capabilities"]["kvcacheio"]["state"] == "unknown"


#: What a program may have in its search path, which Python's own imports pass over.
NO_FOLDERS = ["None", "5", "object()", "__import__('pathlib').Path('nowhere')"]
if sys.version_info >= (3, 11):  # before, bytes were too much for them
    NO_FOLDERS.append("b'/tmp'")


@pytest.mark.parametrize("what", NO_FOLDERS)
def test_what_is_no_folder_in_the_search_path_is_passed_over(tmp_path, what):
    """As by Python's own imports, here and in the child."""
    found = asked(tmp_path, h100() | FLASHINFER, f"import sys; sys.path.append({what})\n")

    assert (found["platform"], found["capabilities"]["flashinfer"]["state"]) == ("cuda", "available")


FORBIDS = {
    "audit hook": (
        "import sys\n"
        "def hook(event, _):\n"
        "    if event == 'subprocess.Popen': raise RuntimeError('not here')\n"
        "sys.addaudithook(hook)\n"
    ),
    "replaced": (
        "import subprocess\n"
        "class Popen(subprocess.Popen):\n"
        "    def __init__(self, *args, **options): raise RuntimeError('not here')\n"
        "subprocess.Popen = Popen\n"
    ),
}


@pytest.mark.parametrize("how", FORBIDS)
def test_a_program_that_forbids_processes_gets_an_unknown_platform(tmp_path, monkeypatch, how):
    """Whatever its policy raises; and no folder is left."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    found = asked(tmp_path, h100(), FORBIDS[how])

    assert found["platform"] == "unknown"
    assert found["reason"] == ("import of torch crashed: no child process could be started: RuntimeError: not here")
    assert not list(temporary.iterdir())
