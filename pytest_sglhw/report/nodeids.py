"""The id of a test as pytest gives it, whatever the scheduler of the workers makes of it."""

from __future__ import annotations

import pytest

Location = tuple[str, int | None, str]


class NodeIds:
    """``--dist loadgroup`` has xdist write ``@group`` behind ids; a report, which is merged by id, leaves it out."""

    def __init__(self, config: pytest.Config) -> None:
        self._grouped = getattr(config.option, "dist", "no") == "loadgroup"
        self._plain: dict[str, str] = {}

    def started(self, nodeid: str, location: Location) -> str:
        """Give the id of a test that starts at ``location``, and remember it for what has no location of its own."""
        if not self._grouped or "@" not in nodeid:
            return nodeid
        plain = self._plain[nodeid] = without_group(nodeid, location)
        return plain

    def of(self, nodeid: str) -> str:
        """Give the id of a test; of one that has not started, as well as can be told without its location."""
        plain = self._plain.get(nodeid)
        return plain or (without_any_group(nodeid) if self._grouped else nodeid)


def without_group(nodeid: str, location: Location) -> str:
    """Cut the group off: what stands behind the name of the test, which an ``@`` of its own may be part of.

    >>> without_group("test_a.py::TestB::test_c[x@y]@gpu", ("test_a.py", 3, "TestB.test_c[x@y]"))
    'test_a.py::TestB::test_c[x@y]'
    """
    head = nodeid
    while not head.replace("::", ".").endswith(location[2].replace("::", ".")):
        head, at, _ = head.rpartition("@")
        if not at:
            return nodeid
    return head


def without_any_group(nodeid: str) -> str:
    """Cut off what may be a group: all from the first ``@`` behind the name of the test and its parameters.

    >>> without_any_group("test_a@b.py::test_c[x@y]@gpu@0")
    'test_a@b.py::test_c[x@y]'
    >>> without_any_group("test_a.py::test_c[x@y]")
    'test_a.py::test_c[x@y]'
    """
    at = nodeid.find("@", max(nodeid.rfind("]"), nodeid.rfind("::")))
    return nodeid if at < 0 else nodeid[:at]
