"""Fixtures of the environment part: functions, since pytest deprecates methods as fixtures of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.environment.detection import DETECTION

if TYPE_CHECKING:
    from pytest_sglhw.environment.records import Environment


@pytest.fixture(scope="session")
def sglhw_environment(pytestconfig: pytest.Config) -> Environment:
    """The record of this run's machine (:class:`pytest_sglhw.Environment`), every capability looked at."""
    return pytestconfig.stash[DETECTION].environment()


@pytest.fixture(scope="session")
def sglhw_device(pytestconfig: pytest.Config) -> str:
    """Torch's device string of the first usable device, ``cpu`` on a machine without an accelerator."""
    environment = pytestconfig.stash[DETECTION].environment(())
    if environment.platform == "cpu":
        return "cpu"
    if environment.usable_devices:
        return f"{environment.device_type}:{environment.usable_devices[0].index}"
    seen = "; ".join(dict.fromkeys(d.reason for d in environment.devices)) or environment.reason
    text = f"no usable device on platform {environment.platform}: {seen}"
    in_lane = pytestconfig.stash[DETECTION].in_lane
    raise pytest.fail.Exception(text, pytrace=False) if in_lane else pytest.skip.Exception(text)
