"""Our marks on collectors and items: refused at collection where they mean nothing, read as requirements after it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.errors import MarkError
from pytest_sglhw.gates.known_gap import Gap, read_gap
from pytest_sglhw.gates.marks import MarkReader, key_of
from pytest_sglhw.gates.names import KNOWN_GAP, REQUIRES

if TYPE_CHECKING:
    from pytest_sglhw.gates.ownership import Ownership
    from pytest_sglhw.gates.requirement import Requirement
    from pytest_sglhw.registry import Registry

Node = pytest.Collector | pytest.Item


class Asked:
    """What the marks of a test ask together, shared by all tests with the same marks."""

    __slots__ = ("gap", "requirement")

    def __init__(self, requirement: Requirement, gap: Gap | None) -> None:
        self.requirement = requirement
        self.gap = gap


class Reading:
    """The requirements of nodes; what several nodes share is read once."""

    def __init__(self, ownership: Ownership, registry: Registry) -> None:
        self.reader = MarkReader(registry)
        #: Capabilities that any collected test asks for: what the first probe looks at.
        self.capabilities: set[str] = set()
        self._ownership = ownership
        self._registry = registry
        self._chains: dict[Node, tuple[pytest.Mark, ...]] = {}
        self._asked: dict[tuple[Hashable, ...], Asked] = {}
        self._settled: dict[str, bool] = {}

    def problem(self, mark: pytest.Mark, node: Node) -> str | None:
        """Say why a mark on ``node`` means nothing; ``None`` where it is right or not ours."""
        owner = self._ownership.owner(mark.name, node)
        try:
            if owner == "slip":
                raise MarkError(self.slip(mark.name))
            if owner == "ours":
                if mark.name == KNOWN_GAP:
                    read_gap(mark)
                else:
                    self.capabilities.update(self.reader.need(mark).capabilities)
        except MarkError as error:
            return str(error)
        return None

    def slip(self, name: str) -> str:
        """Say what is wrong with a name that can only be meant as one of ours."""
        nearest = self._ownership.nearest(name)
        if nearest:
            return f"{name} is not a mark of pytest-sglhw. Did you mean {nearest!r}? {_yours(name)}"
        known = ", ".join(self._registry.capabilities)
        return f"{name}: {name.removeprefix(REQUIRES)!r} is not a known capability. Valid: {known}. {_yours(name)}"

    def asked(self, item: pytest.Item) -> Asked | None:
        """Give what the marks of ``item`` ask together: the same object for the same marks, ``None`` without marks.

        :raises MarkError: a mark that was added after collection and means nothing.
        """
        marks = self._own(item) + self._inherited(item.parent)
        if not marks:
            return None
        keys = tuple(map(key_of, marks))
        found = self._asked.get(keys)
        if found is None:
            needs = [self.reader.need(mark) for mark in marks if mark.name != KNOWN_GAP]
            gap = next((read_gap(mark) for mark in marks if mark.name == KNOWN_GAP), None)
            found = self._asked[keys] = Asked(tuple(dict.fromkeys(needs)), gap)
        return found

    def _own(self, node: Node) -> tuple[pytest.Mark, ...]:
        return tuple([mark for mark in node.own_markers if self._is_ours(mark.name, node)])

    def _inherited(self, node: Node | None) -> tuple[pytest.Mark, ...]:
        if node is None:
            return ()
        found = self._chains.get(node)
        if found is None:
            found = self._chains[node] = self._own(node) + self._inherited(node.parent)
        return found

    def _is_ours(self, name: str, node: Node) -> bool:
        settled = self._settled.get(name)
        if settled is None:
            settled = self._ownership.owner(name, node) == "ours"
            if not self._ownership.is_contested(name):
                self._settled[name] = settled
        return settled


def _yours(name: str) -> str:
    return f"If {name!r} is a mark of your own, register it in the ini value 'markers'."
