"""The error and warning classes of this project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_sglhw.warning import PytestSglhwWarning

__all__ = ["MarkError", "PytestSglhwWarning", "RecordError", "RegistryError"]


def __getattr__(name: str) -> Any:
    # A program that asks for the machine (probe_environment) does not pay for an import of pytest.
    if name == "PytestSglhwWarning":
        from pytest_sglhw.warning import PytestSglhwWarning

        return PytestSglhwWarning
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class MarkError(Exception):
    """A mark of ours was used in a way that means nothing; ends as a collection error of its file."""


class RegistryError(ValueError):
    """A platform, capability or provider row is invalid, or is defined twice."""


class RecordError(ValueError):
    """A stored record (environment or report) can't be read: names the file, what was found and what is valid."""
