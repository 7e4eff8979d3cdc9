"""Mistakes that no test can show, found while files are collected."""

from __future__ import annotations

import re

import pytest

from pytest_sglhw.gates.marks import spelled

_VERSION = re.compile(r"\s*\d+(\.\d+)*([-+.~]?\w+)*\s*")


def version_condition(mark: pytest.Mark) -> str | None:
    """Refuse a ``skipif`` or ``xfail`` whose condition is a version string.

    pytest evaluates a string as Python: ``skipif(torch.version.hip)`` is ``skipif("6.4.1")`` on ROCm, an error at best
    and, for ``"6"``, a condition that always holds.
    """
    condition = mark.args[0]
    if condition in ("0", "1") or not _VERSION.fullmatch(condition):
        return None
    return (
        f"{spelled(mark)}: the condition is the version string {condition!r}, which pytest would evaluate as Python "
        "code. Compare the version, or ask for the platform with a mark such as rocm_only."
    )
