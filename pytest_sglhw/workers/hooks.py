"""Hooks of the workers part: pin workers to devices, contain what a lost device or a crash would spoil."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sglhw.settings import Settings


def register(config: pytest.Config, settings: Settings) -> None:
    """Register this part."""
