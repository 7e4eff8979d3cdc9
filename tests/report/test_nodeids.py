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


@pytest.mark.parametrize("nodeid", ["t.py::test_a@one", "t.py::test_b@one", "t@b.py::test_c[x@y]@at@home"])
@pytest.mark.parametrize("started", [True, False])
def test_what_has_no_location_has_the_id_of_its_start(nodeid, started):
    """The report of a crash, say, also of a test that had not started; without groups nothing is looked at."""
    plain = nodeid.replace("@one", "").replace("@at@home", "")
    for dist, expected in (("loadgroup", plain), ("load", nodeid)):
        ids = NodeIds(SimpleNamespace(option=SimpleNamespace(dist=dist)))
        if started:
            file, _, name = plain.partition("::")
            assert ids.started(nodeid, (file, 1, name)) == expected
        assert ids.of(nodeid) == expected
