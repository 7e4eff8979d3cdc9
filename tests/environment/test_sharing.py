"""The record that workers share, and what may be done to it behind their backs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pytest_sglhw.environment.records import Environment
from pytest_sglhw.environment.sharing import SharedRecord
from pytest_sglhw.record import encodable

RECORD = Environment(platform="cuda", device_type="cuda", masks={"ROCR_VISIBLE_DEVICES": "\udcff"})

#: Takes the lock and dies without giving it back.
HOLDS = """
import os, sys
from pytest_sglhw.environment.sharing import SharedRecord
from pytest_sglhw.record import encodable
with SharedRecord(sys.argv[1]).locked():
    print("held", flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def shared(tmp_path) -> SharedRecord:
    """A record in a folder of its own."""
    return SharedRecord(str(tmp_path))


def test_it_is_read_as_it_was_written(shared):
    """A mask that is no text included: escapes stand for the bytes that are none."""
    shared.write(RECORD)

    assert shared.read() == encodable(RECORD)
    assert shared.read().masks == {"ROCR_VISIBLE_DEVICES": "\\udcff"}


DAMAGE = {
    "missing": lambda file: file.unlink(),
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-9]),
    "no text": lambda file: file.write_bytes(b"\xff\xfe"),
    "of another schema": lambda file: file.write_text(file.read_text().replace('"1.0"', '"9.0"')),
    "of another kind": lambda file: file.write_text("[]"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_record_that_cannot_be_read_is_as_none(shared, tmp_path, damage):
    """It is probed and written again; no worker falls over it."""
    shared.write(RECORD)
    DAMAGE[damage](tmp_path / "environment.json")
    assert shared.read() is None

    shared.write(RECORD)
    assert shared.read() == encodable(RECORD)


def test_without_its_folder_nothing_is_shared_and_nothing_fails(tmp_path):
    """What cleans the temporary folder may have been at it."""
    gone = SharedRecord(str(tmp_path / "gone"))
    with gone.locked():
        gone.write(RECORD)

    assert gone.read() is None


@pytest.mark.skipif(os.name == "nt", reason="kills by signal")
def test_the_lock_of_a_dead_process_is_free(shared):
    """No worker waits for one that was killed while it probed."""
    held = subprocess.run([sys.executable, "-c", HOLDS, shared.folder], capture_output=True, text=True, check=False)
    assert held.stdout == "held\n"

    with shared.locked():
        pass
