"""The warning class of this project: a class of pytest's, apart from what needs no pytest."""

from __future__ import annotations

import pytest


class PytestSglhwWarning(pytest.PytestWarning):
    """Something about the hardware side of this run that a person should look at.

    Turn one into an error as with any warning: ``-W error::pytest_sglhw.PytestSglhwWarning``.
    """

    __module__ = "pytest_sglhw"
