"""What the fixtures of this part give."""

from __future__ import annotations

import warnings

import pytest

from pytest_sglhw.environment.detection import detection_of
from pytest_sglhw.warning import PytestSglhwWarning


def first_device(config: pytest.Config) -> str:
    """Give torch's device string of the first usable device; skip loudly, and in a lane fail, where none works."""
    detection = detection_of(config)
    environment = detection.environment(())
    if environment.platform == "cpu":
        return "cpu"
    if environment.usable_devices:
        return f"{environment.device_type}:{environment.usable_devices[0].index}"
    seen = "; ".join(dict.fromkeys(d.reason for d in environment.devices)) or environment.reason
    text = f"no usable device on platform {environment.platform}: {seen}"
    if detection.in_lane:
        raise pytest.fail.Exception(text, pytrace=False)
    warnings.warn(PytestSglhwWarning(text), stacklevel=2)
    raise pytest.skip.Exception(text)
