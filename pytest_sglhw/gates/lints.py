"""Mistakes that no test can show, found while files are collected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.environment.loaded_torch import device_contexts
from pytest_sglhw.gates.marks import spelled

if TYPE_CHECKING:
    from pytest_sglhw.gates.reading import Node

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


def context_created(collector: pytest.Collector) -> Iterator[tuple[Node, str]]:
    """Name the file that was collected when this process got a device context."""
    device_type = next((name for name, _ in device_contexts()), None)
    if device_type:
        who = collector.nodeid or "what is imported before any file, such as a conftest.py,"
        text = f"{who} created a {device_type} context while it was collected. From here on a forked child"
        text += " can't use the device, and every worker holds memory on it. Move the call into a test or a fixture."
        yield collector, text
