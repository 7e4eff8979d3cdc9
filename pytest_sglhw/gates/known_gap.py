"""``known_gap``: a test that runs and must fail until the gap it names is closed."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, NamedTuple

import pytest

from pytest_sglhw.errors import MarkError
from pytest_sglhw.gates.marks import spelled, suggestion
from pytest_sglhw.gates.values import READERS, InvalidValueError

_KEYWORDS = ("issue", "until", "raises", "reason")
_URL = re.compile(r"https?://\S+/\S+")
_VERSION = re.compile(r"\d+(\.\d+)+\S*")


class Gap(NamedTuple):
    """A known gap. Without an ``issue`` that can be opened the test fails: nobody would ever close it.

    ``until`` is the last day on which the gap may be open, or the SGLang release that closes it.
    """

    text: str
    issue: str | None = None
    until: dt.date | str | None = None
    raises: tuple[type[BaseException], ...] = ()
    reason: str | None = None

    @property
    def wording(self) -> str:
        """What pytest shows as the reason of the expected failure."""
        return f"known gap {self.issue}" + (f": {self.reason}" if self.reason else "")


def read_gap(mark: pytest.Mark) -> Gap:
    """Read a ``known_gap`` mark.

    :raises MarkError: a wrong keyword, value or number of arguments; the text says what is valid.
    """
    if mark.args:
        raise MarkError(f"{spelled(mark)}: known_gap takes keywords only. Valid: {', '.join(_KEYWORDS)}.")
    values: dict[str, Any] = {}
    for key, value in mark.kwargs.items():
        if key not in _KEYWORDS:
            valid = f"{', '.join(_KEYWORDS)}.{suggestion(key, _KEYWORDS)}"
            raise MarkError(f"{spelled(mark)}: {key!r} is not a keyword of known_gap. Valid: {valid}")
        if value is not None:
            values[key] = _read(mark, key, value)
    return Gap(spelled(mark), **values)


def _read(mark: pytest.Mark, key: str, value: Any) -> Any:
    try:
        return _VALUES[key](value)
    except InvalidValueError as error:
        raise MarkError(f"{spelled(mark)}: {value!r} is not a valid {key}. Valid: {error}.") from error


def _issue(value: Any) -> str | None:
    text = READERS["reason"](value)
    return str(text) if _URL.fullmatch(text) else None


def _until(value: Any) -> dt.date | str:
    if isinstance(value, dt.date):
        return value
    if isinstance(value, str):
        if _VERSION.fullmatch(value):
            return value
        try:
            return dt.date.fromisoformat(value)
        except ValueError:
            pass
    raise InvalidValueError("a date such as '2027-01-31', or an SGLang version such as '0.5.30'")


_VALUES = {"issue": _issue, "until": _until, "raises": READERS["raises"], "reason": READERS["reason"]}


def expired(gap: Gap, today: dt.date, sglang: str | None) -> str | None:
    """Say since what the gap should be closed, or ``None`` while it may be open."""
    if isinstance(gap.until, dt.date):
        return f"{gap.until} is past" if today > gap.until else None
    if gap.until and sglang:
        from packaging.version import Version

        if Version(sglang) >= Version(gap.until):
            return f"SGLang {sglang} is here, and the gap was to be closed in {gap.until}"
    return None
