"""What the processes of a run share, and what may be done to it behind their backs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pytest_sglhw.sharing import SharedFolder

DATA = {"platform": "cuda", "masks": {"ROCR_VISIBLE_DEVICES": "\\udcff"}, "devices": [None, 1, 2.5]}

#: Takes the lock and dies without giving it back.
HOLDS = """
import os, sys
from pytest_sglhw.sharing import SharedFolder
with SharedFolder(sys.argv[1]).locked("it"):
    print("held", flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def shared(tmp_path) -> SharedFolder:
    """A folder of its own."""
    return SharedFolder(str(tmp_path))


def test_it_is_read_as_it_was_written(shared):
    """By its name."""
    shared.write("it", DATA)
    shared.write("other", [])

    assert shared.read("it") == DATA
    assert shared.read("other") == []


DAMAGE = {
    "missing": lambda file: file.unlink(),
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-9]),
    "no text": lambda file: file.write_bytes(b"\xff\xfe"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_cannot_be_read_is_as_none(shared, damage):
    """It is asked for and written again; no worker falls over it."""
    shared.write("it", DATA)
    DAMAGE[damage](shared.file("it"))
    assert shared.read("it") is None

    shared.write("it", DATA)
    assert shared.read("it") == DATA


def test_without_its_folder_nothing_is_shared_and_nothing_fails(tmp_path):
    """What cleans the temporary folder may have been at it."""
    gone = SharedFolder(str(tmp_path / "gone"))
    with gone.locked("it"):
        gone.write("it", DATA)

    assert gone.read("it") is None


def test_who_holds_one_lock_may_take_another(shared):
    """Who asks for the machine may learn of rows on the way."""
    with shared.locked("it"), shared.locked("other"):
        pass


@pytest.mark.skipif(os.name == "nt", reason="kills by signal")
def test_the_lock_of_a_dead_process_is_free(shared):
    """No worker waits for one that was killed while it asked."""
    held = subprocess.run([sys.executable, "-c", HOLDS, shared.folder], capture_output=True, text=True, check=False)
    assert held.stdout == "held\n"

    with shared.locked("it"):
        pass
