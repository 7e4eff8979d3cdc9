"""The error and warning classes of this project."""

from __future__ import annotations

import pytest


class PytestSglhwWarning(pytest.PytestWarning):
    """Something about the hardware side of this run that a person should look at.

    Turn one into an error as with any warning: ``-W error::pytest_sglhw.PytestSglhwWarning``.
    """

    __module__ = "pytest_sglhw"


class MarkError(Exception):
    """A mark of ours was used in a way that means nothing; ends as a collection error of its file."""


class RegistryError(ValueError):
    """A platform, capability or provider row is invalid, or is defined twice."""


class RecordError(ValueError):
    """A stored record (environment or report) can't be read: names the file, what was found and what is valid."""
