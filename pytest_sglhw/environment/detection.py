"""The one place that this run asks about its machine."""

from __future__ import annotations

import pytest

from pytest_sglhw.settings import Settings


class Detection:
    """Facts about the machine of this run, asked for at most once."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings


DETECTION = pytest.StashKey[Detection]()
