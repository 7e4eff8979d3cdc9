"""How a child process is asked: what hangs takes no more than its share, and nothing is too long to be asked."""

from __future__ import annotations

import os
import sys
import time

from hostile import DEADLINE, plant, torch_package

from pytest_sglhw.asking.asker import Asker
from pytest_sglhw.environment.ladder import in_order
from pytest_sglhw.registry.loading import load

HANGS = "import time; time.sleep(600)"


def asker(folder, files, timeout=DEADLINE, cap=60.0):
    made = Asker(timeout, plant(folder, files))
    made.cap = cap
    return made


def imported(asking, module):
    return asking.ask(f"import of {module}", "import", imports=module, module=module)


def test_however_many_hang_the_next_one_is_asked(tmp_path, monkeypatch):
    """No stage may take more than half of what is left, so something is left."""
    monkeypatch.syspath_prepend(tmp_path)
    files = {f"hangs_{number}.py": HANGS for number in range(4)} | {"works.py": ""}
    with asker(tmp_path, files, timeout=2, cap=8) as asking:
        hung = [imported(asking, f"hangs_{number}") for number in range(4)]
        healthy = imported(asking, "works")

    assert [answer.fault for answer in hung] == ["hung"] * 4
    assert (healthy.ok, asking.seconds < 8) == (True, True), healthy
    assert hung[0].detail == "did not end within 2 s"
    assert hung[3].detail.startswith("did not end within 0.")
    assert hung[3].detail.endswith(
        " s, which was all that was left for it: the 8 s that the whole probe may take are nearly used up by what hung:"
        " import of hangs_0, import of hangs_1, import of hangs_2. A longer --probe-timeout (pytest:"
        " --sglhw-probe-timeout) raises that to four times as long"
    )


def test_what_needs_nobody_but_torch_is_asked_first():
    """A package that hangs can't use up its time."""
    rows = load().capabilities
    ordered = [row.name for row in in_order(rows.values())]

    assert ordered[:3] == ["fp8", "cuda_graph", "p2p"]
    assert ordered[3:] == [name for name in rows if name not in ordered[:3]]


def test_a_search_path_may_be_longer_than_a_command_line(tmp_path, monkeypatch):
    """Build systems make such paths: the child gets it by a file."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path, *(f"/{'x' * 200}/{number}" for number in range(2000))])
    with asker(tmp_path, {"works.py": ""}) as asking:
        assert imported(asking, "works").ok


#: Begins a thread that keeps everybody else in the process waiting, as soon as there is a file ``freeze``.
FREEZES = """
import ctypes, os, pathlib, threading, time
here = pathlib.Path(__file__).parent
def later():
    while not (here / "freeze").exists(): time.sleep(0.01)
    (here / "frozen").touch()
    ctypes.PyDLL(None).sleep(600)
threading.Thread(target=later, daemon=True).start()
"""


def test_a_request_that_nobody_reads_has_a_deadline_too(tmp_path, monkeypatch):
    """It may be longer than a pipe holds."""
    monkeypatch.syspath_prepend(tmp_path)
    with asker(tmp_path, {"freezes.py": FREEZES}, timeout=2) as asking:
        assert imported(asking, "freezes").ok
        (tmp_path / "freeze").touch()
        until = time.monotonic() + 60
        while not (tmp_path / "frozen").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        time.sleep(0.1)
        answer = asking.ask("a long one", "ops", ops=["x" * 1000] * 200, keys=[], modules=[])

    assert (answer.fault, answer.detail) == ("hung", "did not end within 2 s")


def test_the_time_for_a_stage_may_be_short(tmp_path):
    """Shorter than what is too short to begin with at the end of the whole probe."""
    with asker(tmp_path, torch_package(""), timeout=0.01) as asking:
        assert asking.ask("import of torch", "torch", imports="torch").detail == "did not end within 0.01 s"


def test_a_warning_is_one_line(tmp_path, monkeypatch):
    """It becomes part of a reason, of which a CI runner reads each line."""
    environ = plant(tmp_path, {"warns.py": "import warnings\nwarnings.warn('no driver\\n::error::  found\\n')"})
    monkeypatch.syspath_prepend(tmp_path)
    with Asker(DEADLINE, environ) as asking:
        answer = imported(asking, "warns")

    assert answer.warnings == ("no driver ::error:: found",)


def test_nothing_is_left_open(tmp_path):
    """Neither file nor pipe, however the child ended."""
    before = len(os.listdir("/dev/fd"))
    with asker(tmp_path, {}) as asking:
        asking.ask("exit", "check", function="os:abort", modules=[])
    assert len(os.listdir("/dev/fd")) == before
