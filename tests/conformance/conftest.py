"""What several test modules of the matrix share."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def fake_device():
    """The module ``fake_device``, which stands beside this file and needs torch."""
    spec = importlib.util.spec_from_file_location("fake_device", Path(__file__).with_name("fake_device.py"))
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
