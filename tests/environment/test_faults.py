"""The fault campaign: hostile packages and drivers through the real child process."""

from __future__ import annotations

import pytest
from hostile import FLASHINFER, SGLANG, TENSORS, doctor, h100, namespace, torch_package

FORK = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
"""
RECORD = """
import json, sys
for stream in (sys.stdout, sys.stderr):
    answer = {"nonce": "0" * 32, "id": "import of sgl_kernel.kvcacheio", "event": "end", "value": {}}
    print(json.dumps(answer), file=stream, flush=True)
"""
CHAIN = """
class Loader:
    def load(self): raise ImportError("libnvrtc.so.13: cannot open shared object file: No such file or directory")
try:
    Loader().load()
except ImportError as error:
    head = "[sgl_kernel] CRITICAL: Could not load any common_ops library!" + " x" * 3000
    text = f"{head} - ImportError: {error}" + " y" * 3000
    raise ImportError(text) from None
"""

#: Puts a finder before the others that lets nobody import FlashInfer.
HIDES = """
import sys
class Finder:
    @staticmethod
    def find_spec(name, *rest):
        if name == "flashinfer": raise ImportError(name)
sys.meta_path.insert(0, Finder)
"""

#: Finds the file that the child answers in, as a package that cleans up too much would.
ANSWERS = """
import glob, os, tempfile
found = [f for f in glob.glob(tempfile.gettempdir() + "/sglhw-probe-*/answers") if os.stat(f).st_size]
mine = max(found, key=os.path.getmtime)
"""

#: What a kernel package does when it is imported -> the state of the capability, and words of its reason.
PACKAGES = {
    "hang": ("import time; time.sleep(600)", "unknown", "hung"),
    "hang_in_c": ("import ctypes; ctypes.PyDLL(None).sleep(600)", "unknown", "hung"),
    "abort": ("import os; os.abort()", "unknown", "SIGABRT"),
    "segfault": ("import ctypes; ctypes.string_at(0)", "unknown", "SIGSEGV"),
    "killed": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "unknown", "SIGKILL"),
    "exit_0": ("import os; os._exit(0)", "unknown", "exited with status 0"),
    "exit_9": ("import os; os._exit(9)", "unknown", "exited with status 9"),
    "sys_exit": ("import sys; sys.exit(0)", "broken", "SystemExit: 0"),
    "keyboard_interrupt": ("raise KeyboardInterrupt", "broken", "KeyboardInterrupt"),
    "recursion": ("def f(): f()\nf()", "broken", "RecursionError"),
    "runtime_error": ("raise RuntimeError('no driver')", "broken", "RuntimeError: no driver"),
    "bad_message": (
        "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
        "broken",
        "its message raised",
    ),
    "missing_library": (
        "raise ImportError('libcuda.so.1: cannot open shared object file: No such file')",
        "broken",
        "libcuda",
    ),
    "chained_library": (CHAIN, "broken", "CRITICAL"),
    "syntax_error": ("def", "broken", "SyntaxError"),
    "closes_files": ("import os; os.closerange(3, 256)", "broken", "check"),
    "reads_stdin": ("import sys; sys.stdin.read()", "broken", "check"),
    "flood": ("import os\nfor _ in range(100): os.write(2, b'x' * (1 << 20))", "broken", "check"),
    "imitates": (RECORD, "broken", "check"),
    "lingers": (FORK, "broken", "check"),
    "forks": ("import os; os.fork()", "broken", "check"),
    "removes_answers": (ANSWERS + "os.remove(mine)", "unknown", "removed the file of answers"),
    "cuts_answers": (ANSWERS + "os.truncate(mine, 0)", "unknown", "cut the file of answers short"),
    "cuts_a_line": (ANSWERS + "os.truncate(mine, os.stat(mine).st_size - 9)", "unknown", "the file of answers"),
    "writes_answers": (ANSWERS + "open(mine, 'a').write('{}\\n')", "unknown", "garbled: wrote something else"),
    "writes_bytes": (ANSWERS + "open(mine, 'ab').write(b'\\xff\\n')", "unknown", "garbled: wrote something else"),
    "removes_its_folder": (ANSWERS + "import shutil; shutil.rmtree(os.path.dirname(mine))", "unknown", "removed"),
    "output_of_bytes": ("import os; os.write(2, bytes(range(256)) * 9); os.abort()", "unknown", "SIGABRT"),
    "changes_folder": ("import os; os.chdir('/')", "broken", "check"),
    "long_message": ("raise RuntimeError('x' * 5_000_000)", "broken", "RuntimeError: xxx"),
    "exiting_message": (
        "class E(Exception):\n    def __str__(self): raise SystemExit(0)\nraise E",
        "broken",
        "its message raised SystemExit",
    ),
    "endless_causes": ("e = ImportError('x')\ne.__cause__ = e\nraise e", "broken", "ImportError: x"),
    "raises_for_names": (
        "def __getattr__(name): raise RuntimeError(name)",
        "broken",
        "check",
    ),
    "empties_path": ("import sys; sys.path.clear()", "broken", "check"),
    "empties_finders": ("import sys; sys.meta_path.clear()", "broken", ""),
    "replaces_import": (
        "import builtins\ndef no(*a, **k): raise ImportError('no')\nbuiltins.__import__ = no",
        "broken",
        "",
    ),
    "hides_others": (
        HIDES,
        "broken",
        "check",
    ),
    "captures_stderr": ("import io, sys; sys.stderr = io.StringIO()", "broken", "check"),
    "has_no_stderr": ("import sys; sys.stderr = sys.stdout = None", "broken", "check"),
    "closes_stderr": ("import sys; sys.stderr.close()", "broken", "check"),
    "detaches_stderr": ("import sys; sys.stderr.detach(); sys.stdout.detach()", "broken", "check"),
    "no_alarm": ("import signal; signal.alarm(0)", "broken", "check"),
    "ignores_signals": (
        "import signal, time\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\ntime.sleep(600)",
        "unknown",
        "hung",
    ),
}


#: The capabilities of others, beside a working FlashInfer and SGLang. (The torch of ``hostile`` has no CUDA graphs.)
NEIGHBOURS = {"flashinfer": "available", "kv4": "available", "cuda_graph": "broken", "aiter": "unavailable"}


def kernels(code: str) -> dict[str, str]:
    """The files of a kernel package that runs ``code`` when it is imported."""
    names = "def transfer_kv_per_layer(*a, **k): raise RuntimeError('fake kernel')\n"
    return {"sgl_kernel/__init__.py": code, "sgl_kernel/kvcacheio.py": names}


@pytest.mark.parametrize("fault", PACKAGES)
def test_a_hostile_package_costs_its_own_capability_and_nothing_else(tmp_path, fault):
    """Whatever a kernel package does, the platform and the other capabilities are as without it."""
    code, state, words = PACKAGES[fault]
    seen = doctor(tmp_path, h100() | FLASHINFER | SGLANG | kernels(code))

    assert (seen.status, seen.record["platform"], seen.record["probe"]["status"]) == (0, "cuda", "ok")
    assert [d["state"] for d in seen.record["devices"]] == ["available"]
    assert (seen.state("kvcacheio"), words in seen.reason("kvcacheio")) == (state, True), seen.reason("kvcacheio")
    assert {name: seen.state(name) for name in ("flashinfer", "kv4", "cuda_graph", "aiter")} == NEIGHBOURS
    assert seen.left == []


#: What a package does in a function that lies below twenty others -> what it is said to have died of.
DEEP = {
    "hangs": ("time.sleep(600)", "Timeout ("),
    "hangs without stderr": ("sys.stderr.close(), time.sleep(600)", "Timeout ("),
    "hangs beside a thread": ("threading.Thread(target=time.sleep, args=[600]).start(), time.sleep(600)", "Timeout ("),
    "aborts": ("os.abort()", "Fatal Python error: Aborted"),
}


@pytest.mark.parametrize("how", DEEP)
def test_the_place_of_a_hang_or_crash_is_shown(tmp_path, how):
    """The top of the stack, not what lies below it: our own child and the import system."""
    does, died = DEEP[how]
    code = f"import os, sys, threading, time\ndef down(n): return down(n - 1) if n else place()\ndef place(): {does}\n"
    seen = doctor(tmp_path, h100() | kernels(f"{code}down(20)\n"))

    said = seen.record["capabilities"]["kvcacheio"]["evidence"][-1]
    assert said.startswith(died)
    assert 'sgl_kernel/__init__.py", line 3 in place' in said
    assert "importlib" not in said


#: What torch does when it is imported -> how the probe of the platform went.
TORCHES = {
    "hang": ("import time; time.sleep(600)", "hung"),
    "abort": ("import os; os.abort()", "crashed"),
    "segfault": ("import ctypes; ctypes.string_at(0)", "crashed"),
    "exit_0": ("import os; os._exit(0)", "crashed"),
    "sys_exit": ("raise SystemExit(0)", "crashed"),
    "import_error": ("raise ImportError('libcudart.so.13: cannot open shared object file')", "crashed"),
    "recursion": ("def f(): f()\nf()", "crashed"),
    "hang_in_devices": (namespace("cuda").replace("lambda: 1", "lambda: __import__('time').sleep(600)"), "hung"),
    "segfault_in_devices": (
        namespace("cuda").replace("lambda: 1", "lambda: __import__('ctypes').string_at(0)"),
        "crashed",
    ),
}


@pytest.mark.parametrize("fault", TORCHES)
def test_a_torch_that_hangs_or_dies_leaves_the_platform_unknown(tmp_path, fault):
    """The platform is unknown, every capability with it, the stage is named, and the exit status is 3."""
    code, status = TORCHES[fault]
    seen = doctor(tmp_path, torch_package(code, cuda="13.0"))

    assert (seen.status, seen.record["platform"], seen.record["probe"]["status"]) == (3, "unknown", status)
    assert seen.record["probe"]["stage"]
    assert seen.state("kvcacheio") == "unknown"
    assert seen.left == []


def test_what_hung_once_is_not_imported_again(tmp_path):
    """Four capabilities share a package that hangs: one deadline is paid, not four."""
    noted = "import os, time; open(os.environ['TMPDIR'] + '/imports', 'a').write('once '); time.sleep(600)"
    seen = doctor(tmp_path, h100() | SGLANG | kernels(noted))

    assert {seen.state(name) for name in ("kvcacheio", "hisparse", "hicache_kernel", "device_ptr")} == {"unknown"}
    assert tmp_path.joinpath("imports").read_text() == "once "


ALLOCATIONS = {
    "raises": ("raise RuntimeError('CUDA error: out of memory')", "broken"),
    "segfaults": ("__import__('ctypes').string_at(0)", "broken"),
    "hangs": ("__import__('time').sleep(600)", "unknown"),
}


@pytest.mark.parametrize("fault", ALLOCATIONS)
def test_a_device_that_is_counted_and_not_usable_is_not_fine(tmp_path, fault):
    """The platform stands as enumerated, the device says what happened, and no capability of it is available."""
    code, state = ALLOCATIONS[fault]
    torch = torch_package(namespace("cuda") + f"\ndef zeros(*a, **k): {code}\n", cuda="13.0")
    seen = doctor(tmp_path, torch)

    assert (seen.status, seen.record["platform"]) == (0, "cuda")
    assert [d["state"] for d in seen.record["devices"]] == [state]
    assert seen.state("p2p") == state
    assert any("not usable" in sentence for sentence in seen.record["disagreements"])


def test_a_missing_library_is_named_in_the_remedy(tmp_path):
    """Of a long message the library that could not be opened is kept."""
    seen = doctor(tmp_path, h100() | kernels(CHAIN))

    remedy = seen.record["capabilities"]["kvcacheio"]["remedy"]
    assert remedy == "make these libraries loadable: libnvrtc.so.13"


def test_an_enumeration_that_raises_is_broken_and_not_absent(tmp_path):
    """A driver error while counting devices does not make the machine a CPU."""
    code = namespace("cuda").replace("lambda: 1", "lambda: 1 / 0").replace("lambda: True", "lambda: 1 / 0") + TENSORS
    seen = doctor(tmp_path, torch_package(code, cuda="13.0"))

    assert (seen.record["platform"], [d["state"] for d in seen.record["devices"]]) == ("cuda", ["broken"])
