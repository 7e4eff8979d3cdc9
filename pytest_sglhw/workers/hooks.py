"""Hooks of the workers part."""

from __future__ import annotations

import pytest

from pytest_sglhw.settings import Settings


def register(config: pytest.Config, settings: Settings) -> None:
    """Register this part."""
