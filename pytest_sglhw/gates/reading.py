"""Our marks on collectors and items: refused at collection where they mean nothing, read as requirements after it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.errors import MarkError
from pytest_sglhw.gates import ISOLATED, KNOWN_GAP, REQUIRES
from pytest_sglhw.gates.marks import MarkReader, key_of, spelled

if TYPE_CHECKING:
    from pytest_sglhw.gates.known_gap import Gap
    from pytest_sglhw.gates.ownership import Ownership
    from pytest_sglhw.gates.requirement import Requirement
    from pytest_sglhw.gates.verdict import Verdict
    from pytest_sglhw.registry.registry import Registry

Node = pytest.Collector | pytest.Item


#: Marks of ours that say how a test runs, not what it needs.
_NO_NEED = frozenset({KNOWN_GAP, ISOLATED})


class Asked:
    """What the marks of a test ask together, shared by all tests with the same marks; its verdict once it is known."""

    __slots__ = ("gap", "looked_at", "requirement", "verdict")

    def __init__(self, requirement: Requirement, gap: Gap | None) -> None:
        self.requirement = requirement
        self.gap = gap
        self.verdict: Verdict | None = None
        self.looked_at = False
        """Whether somebody has asked whether the marks contradict each other."""


class Reading:
    """The requirements of nodes; what several nodes share is read once."""

    def __init__(self, ownership: Ownership, registry: Registry) -> None:
        self.reader = MarkReader(registry)
        #: Capabilities that any collected test asks for: what the first probe looks at.
        self.capabilities: set[str] = set()
        #: Whether a mark asks for more than to run or to skip, so that somebody has to judge its tests.
        self.judged = False
        self._ownership = ownership
        self.registry = registry
        self._ours: dict[str, bool] = {}
        self._inherited: dict[Node, tuple[pytest.Mark, ...]] = {}
        self._parent: Node | None = None
        self._below: dict[str | None, Asked | None] = {}  # what the tests of that parent ask, by their one plain mark
        self._asked: dict[tuple[Hashable, ...], Asked] = {}

    def problem(self, mark: pytest.Mark, node: Node) -> str | None:
        """Say why a mark of ours, or a slip for one, means nothing; ``None`` where it is right."""
        try:
            if self._ownership.owner(mark.name, node) == "slip":
                raise MarkError(self.slip(mark.name))
            if mark.name == KNOWN_GAP:
                self._gap(mark)
                self.judged = True
            elif mark.name == ISOLATED:
                read_isolated(mark)
            else:
                need = self.reader.need(mark)
                self.capabilities.update(need.capabilities)
                self.judged = self.judged or need.otherwise == "raise"
        except MarkError as error:
            return str(error)
        return None

    def slip(self, name: str) -> str:
        """Say what is wrong with a name that can only be meant as one of ours."""
        nearest = self._ownership.nearest(name)
        if nearest:
            return f"{name} is not a mark of pytest-sglhw. Did you mean {nearest!r}? {self._yours(name)}"
        known = ", ".join(self.registry.capabilities)
        return f"{name}: {name.removeprefix(REQUIRES)!r} is not a known capability. Valid: {known}. {self._yours(name)}"

    def _yours(self, name: str) -> str:
        if self._ownership.is_contested(name):
            return (
                f"The project registers {name!r} in 'markers', but this run asks for our marks (by -p sglhw, a setting "
                "or an import of pytest_sglhw): spell it as ours, or give a mark of your own another name."
            )
        return f"If {name!r} is a mark of your own, register it in the ini value 'markers'."

    def asked(self, item: pytest.Item) -> Asked | None:
        """Give what the marks of ``item`` ask together: the same object for the same marks, ``None`` without marks.

        :raises MarkError: a mark that was added after collection and means nothing.
        """
        # Asked twice for every test of a run, most of which have no mark, or one without arguments.
        own = item.own_markers
        mark = own[0] if own else None
        if len(own) > 1 or (mark is not None and (mark.args or mark.kwargs)):
            return self._together(item)
        if item.parent is not self._parent:
            self._parent, self._below = item.parent, {}
        name = mark.name if mark is not None else None
        if name not in self._below:
            self._below[name] = self._together(item)
        return self._below[name]

    def _together(self, item: pytest.Item) -> Asked | None:
        marks = self._own(item) + self._from(item.parent)
        if not marks:
            return None
        keys = tuple([key_of(mark) for mark in marks])
        found = self._asked.get(keys)
        if found is None:
            found = self._asked[keys] = self._read(marks)
        return found

    def contradiction(self, item: pytest.Item) -> str | None:
        """Say of each combination of marks that no machine can meet why, once, at its first test."""
        asked = self.asked(item)
        if asked is None or asked.looked_at:
            return None
        asked.looked_at = True
        if len(asked.requirement) == 1 and asked.requirement[0].names_platforms_alone:
            return None
        from pytest_sglhw.gates.contradiction import contradiction
        from pytest_sglhw.gates.requirement import describe

        why = contradiction(asked.requirement, self.registry)
        return f"no machine has all that {describe(asked.requirement)} ask for: {why}." if why else None

    def _read(self, marks: tuple[pytest.Mark, ...]) -> Asked:
        needs = [self.reader.need(mark) for mark in marks if mark.name not in _NO_NEED]
        gap = next((self._gap(mark) for mark in marks if mark.name == KNOWN_GAP), None)
        return Asked(tuple(dict.fromkeys(needs)), gap)

    def _gap(self, mark: pytest.Mark) -> Gap:
        from pytest_sglhw.gates.known_gap import read_gap

        return read_gap(mark)

    def _own(self, node: Node) -> tuple[pytest.Mark, ...]:
        ours = self._ours
        return tuple([m for m in node.own_markers if (ours[m.name] if m.name in ours else self._is_ours(m.name, node))])

    def _from(self, node: Node | None) -> tuple[pytest.Mark, ...]:
        if node is None:
            return ()
        found = self._inherited.get(node)
        if found is None:
            found = self._inherited[node] = self._own(node) + self._from(node.parent)
        return found

    def _is_ours(self, name: str, node: Node) -> bool:
        ours = self._ownership.owner(name, node) == "ours"
        if not self._ownership.is_contested(name):
            self._ours[name] = ours
        return ours


def read_isolated(mark: pytest.Mark) -> None:
    """Check the mark that asks for a child process.

    :raises MarkError: any argument.
    """
    if mark.args or mark.kwargs:
        raise MarkError(f"{spelled(mark)}: {ISOLATED} takes no arguments. Write: @{ISOLATED}")
