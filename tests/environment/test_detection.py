"""The record that another process of the run probed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_sglhw.environment.detection import HANDED_OVER, Detection
from pytest_sglhw.environment.records import Environment
from pytest_sglhw.record import encodable
from pytest_sglhw.sharing import SharedFolder

RECORD = Environment(platform="cuda", device_type="cuda", masks={"ROCR_VISIBLE_DEVICES": "\udcff"})

DAMAGE = {
    "of another schema": lambda record: record | {"schema": "9.0"},
    "of another kind": lambda record: [record],
    "without its platform": lambda record: record | {"platform": None},
}


@pytest.fixture
def shared(tmp_path) -> SharedFolder:
    """The folder that the controller hands over."""
    return SharedFolder(str(tmp_path))


@pytest.fixture
def detection(shared) -> Detection:
    """The detection of a worker in a run that probes every stage."""
    config = SimpleNamespace(stash=pytest.Stash(), workerinput={HANDED_OVER: shared.folder}, option=SimpleNamespace())
    return Detection(config, SimpleNamespace(lane=None, fake=None, probe="full"))


def test_it_is_known_as_it_was_written(detection, shared):
    """A mask that is no text included: escapes stand for the bytes that are none."""
    shared.write("environment", RECORD.to_json())

    assert detection.known() == encodable(RECORD)


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_no_record_is_not_known(detection, shared, damage):
    """It is probed and written again; no worker falls over it."""
    shared.write("environment", DAMAGE[damage](RECORD.to_json()))

    assert detection.known() is None
