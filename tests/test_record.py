"""Records: what a frozen dataclass gives, without its price."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from pytest_sglhw.record import Record, as_dict, replace


class Point(Record):
    """A record with a default."""

    x: int
    y: int = 0


class Line(Record):
    """Records in a record."""

    points: tuple[Point, ...]
    names: dict[str, Point]


def test_values_come_by_position_or_name() -> None:
    """The order of fields is that of the class; what is not given has its default."""
    assert (Point(1).x, Point(1).y, Point(1, 2).y, Point(y=3, x=4).x) == (1, 0, 2, 4)
    assert repr(Point(1)) == "Point(x=1, y=0)"


def test_equality_is_by_class_and_values() -> None:
    """Records can stand in sets and as keys, as long as their values can."""

    class Other(Record):
        x: int
        y: int = 0

    assert Point(1) == Point(1, 0) != Point(2)
    assert Point(1) != Other(1)
    assert len({Point(1), Point(1, 0), Other(1)}) == 2
    with pytest.raises(TypeError):
        hash(Line((), {}))


def test_a_record_does_not_change() -> None:
    """Who shares a record need not fear for it; a copy may differ."""
    point = Point(1)
    with pytest.raises(AttributeError, match=re.escape("Point is frozen: x can't be set. Make a changed copy")):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError, match="Point is frozen: x can't be deleted"):
        del point.x
    assert replace(point, y=5) == Point(1, 5)
    assert point == Point(1)


@pytest.mark.parametrize(
    ("values", "named", "text"),
    [
        ((), {}, "Point: 'x' is missing. Valid: x, y."),
        ((1,), {"z": 1}, "Point: got an unexpected 'z'. Valid: x, y."),
        ((1,), {"x": 1}, "Point: got 'x' twice. Valid: x, y."),
        ((1, 2, 3), {}, "Point: got 3 values. Valid: x, y."),
    ],
)
def test_wrong_values(values: tuple[int, ...], named: dict[str, int], text: str) -> None:
    """An error says what is wrong and what is valid."""
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        Point(*values, **named)


def test_as_dict_goes_all_the_way_down() -> None:
    """Nested records become plain data that JSON can hold."""
    line = Line((Point(1), Point(2)), {"a": Point(3)})
    assert as_dict(line) == {"points": ({"x": 1, "y": 0}, {"x": 2, "y": 0}), "names": {"a": {"x": 3, "y": 0}}}


def test_copies_are_equal() -> None:
    """A record survives the ways in which Python copies objects."""
    point = Point(1, 2)
    assert pickle.loads(pickle.dumps(point)) == copy.deepcopy(point) == point
