"""What a probe started ends with it, also where the process that asked is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hostile import DEADLINE, doctor, h100, plant, torch_package

from pytest_sglhw.asking.processes import end

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")

#: A package that starts a process which nothing but its parent tells of, and notes who it is.
CLEAN = """
import os, subprocess
process = subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
with open(os.environ["STRAYS"], "a") as file: file.write(f"{process.pid}\\n")
"""
#: The same without a parent: the one that started it has ended.
ORPHAN = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(os.environ["STRAYS"], "a") as file: file.write(f"{os.getpid()}\\n")
        os.execve("/bin/sleep", ["sleep", "600"], {})
    os._exit(0)
os.wait()
while not os.path.exists(os.environ["STRAYS"]): pass
"""
HUNG = "\nimport os, time\nopen(os.environ['HUNG'], 'w').write(str(os.getpid()))\ntime.sleep(600)"


def test_a_process_of_its_own_session_and_environment_ends(tmp_path, monkeypatch):
    """Found by its parent, which is held until it has been looked for."""
    monkeypatch.setenv("STRAYS", str(tmp_path / "strays"))
    seen = doctor(tmp_path, h100() | {"sgl_kernel/__init__.py": CLEAN, "sgl_kernel/kvcacheio.py": ""})

    strays = [int(pid) for pid in tmp_path.joinpath("strays").read_text().split()]
    assert strays
    assert not [pid for pid in strays if _alive(pid)]
    assert seen.left == []


#: How the probe's child goes on after it has left an orphan.
AFTER = {
    "goes on": "",
    "aborts": "os.abort()",
    "exits": "os._exit(0)",
    "hangs": "import time; time.sleep(600)",
}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody can inherit orphans")
@pytest.mark.parametrize("how", AFTER)
def test_an_orphan_without_a_trace_ends(tmp_path, monkeypatch, how):
    """Its own session, an empty environment and no parent: it is inherited by the process that keeps the child."""
    monkeypatch.setenv("STRAYS", str(tmp_path / "strays"))
    doctor(tmp_path, h100() | {"sgl_kernel/__init__.py": ORPHAN + AFTER[how], "sgl_kernel/kvcacheio.py": ""})

    strays = [int(pid) for pid in tmp_path.joinpath("strays").read_text().split()]
    assert strays
    assert not [pid for pid in strays if _alive(pid)]


COMMANDS = {
    "doctor": ["pytest_sglhw", "doctor"],
    "pytest": ["pytest", "-p", "sglhw", "-p", "no:cacheprovider", "--sglhw-probe-timeout", "60", "test_it.py"],
}


def _heed_signals():
    """In a new process: what nohup or a shell's background ignores would be ignored there too."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_probe_ends_with_the_process_that_asked(tmp_path, command, number):
    """With all that its child started, and its folder: that is how a CI job is cancelled."""
    files = torch_package(CLEAN + HUNG, cuda="13.0")
    files["test_it.py"] = "import pytest\n@pytest.mark.cuda_only\ndef test_it(): pass"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environ = plant(tmp_path, files) | {
        "HUNG": str(tmp_path / "hung"),
        "STRAYS": str(tmp_path / "strays"),
        "TMPDIR": str(temporary),
    }
    line = [sys.executable, "-m", *COMMANDS[command]]
    asking = subprocess.Popen(line, env=environ, cwd=tmp_path, preexec_fn=_heed_signals)  # noqa: PLW1509 (no other thread)
    _until(lambda: tmp_path.joinpath("hung").is_file() and tmp_path.joinpath("hung").read_text())
    child, stray = int(tmp_path.joinpath("hung").read_text()), int(tmp_path.joinpath("strays").read_text())
    assert [path.name[:12] for path in temporary.iterdir()] == ["sglhw-probe-"]
    asking.send_signal(number)

    assert asking.wait(30) == -number
    _until(lambda: not _alive(child) and not _alive(stray) and not list(temporary.iterdir()))


def test_an_interrupt_of_the_command_is_one_line(tmp_path):
    """Exit status 130, no traceback, and the child is gone."""
    environ = plant(tmp_path, torch_package(HUNG, cuda="13.0")) | {"HUNG": str(tmp_path / "hung")}
    command = [sys.executable, "-m", "pytest_sglhw", "doctor"]
    asking = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_signals)  # noqa: PLW1509 (no other thread)
    _until(lambda: tmp_path.joinpath("hung").is_file() and tmp_path.joinpath("hung").read_text())
    asking.send_signal(signal.SIGINT)

    assert asking.communicate(timeout=30)[1] == "sglhw doctor: interrupted\n"
    assert asking.returncode == 130
    _until(lambda: not _alive(int(tmp_path.joinpath("hung").read_text())))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_output_that_has_no_place_is_one_line(tmp_path):
    """And not a success."""
    environ = plant(tmp_path, torch_package("", __version__="2.11.0+cpu"))
    command = [sys.executable, "-m", "pytest_sglhw", "doctor"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, env=environ, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    words = "sglhw doctor: the output can't be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (74, words)


def _until(condition, seconds=10 * DEADLINE):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def test_nothing_watches_after_the_end(tmp_path):
    """No process and no folder is left of a probe that went well."""
    code = (
        "import os, pytest_sglhw\n"
        "assert pytest_sglhw.probe_environment((), full=True).probe.status != 'skipped'\n"
        "try: os.waitpid(-1, os.WNOHANG)\nexcept ChildProcessError: print('none')"
    )
    environ = plant(tmp_path, h100()) | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)

    assert done.stdout == "none\n", done.stderr
    assert not list(tmp_path.glob("sglhw-probe-*"))


class Unkillable:
    """A process that waits for a wedged driver: no signal ends it before the driver comes back."""

    pid = 2**22 + 1  # beyond what Linux gives to anybody

    def __init__(self):
        self.waited = 0.0

    def poll(self):
        return None

    def kill(self):
        pass

    def wait(self, timeout):
        self.waited += timeout
        raise subprocess.TimeoutExpired("child", timeout)


def test_a_process_that_no_signal_ends_is_given_up():
    """The run goes on without it."""
    process = Unkillable()
    end(process, "no such cookie")

    assert 0 < process.waited < 60
