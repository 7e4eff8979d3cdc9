"""Ids in reports are those of pytest, also where xdist hangs the group of a test on them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_sglhw.report.nodeids import NodeIds, without_group


@pytest.mark.parametrize(
    ("nodeid", "name", "plain"),
    [
        ("t.py::test_a@one", "test_a", "t.py::test_a"),
        ("t.py::test_a", "test_a", "t.py::test_a"),
        ("t.py::test_a[x@y]", "test_a[x@y]", "t.py::test_a[x@y]"),
        ("t.py::test_a[x@y]@one_two", "test_a[x@y]", "t.py::test_a[x@y]"),
        ("t.py::TestB::test_c[d::e]@at@home", "TestB.test_c[d::e]", "t.py::TestB::test_c[d::e]"),
        ("t.py::doc@one", "[doctest] doc", "t.py::doc@one"),
    ],
)
def test_the_group_is_cut_off(nodeid, name, plain):
    """What stands behind the name of the test goes; an ``@`` of its own stays, as does an id with another name."""
    assert without_group(nodeid, ("t.py", 1, name)) == plain


@pytest.mark.parametrize(("dist", "plain"), [("loadgroup", "t.py::test_a"), ("load", "t.py::test_a@one")])
def test_what_has_no_location_has_the_id_of_its_start(dist, plain):
    """The report of a crash, say; without groups nothing is looked at."""
    ids = NodeIds(SimpleNamespace(option=SimpleNamespace(dist=dist)))

    assert ids.started("t.py::test_a@one", ("t.py", 1, "test_a")) == plain
    assert ids.of("t.py::test_a@one") == plain
    assert ids.of("t.py::test_b@one") == "t.py::test_b@one"
