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


class Reading:
    """The requirements of nodes; what several nodes share is read once."""

    def __init__(self, ownership: Ownership, registry: Registry) -> None:
        self.reader = MarkReader(registry)
        #: Capabilities that any collected test asks for: what the first probe looks at.
        self.capabilities: set[str] = set()
        self._ownership = ownership
        self._registry = registry
        self._chains: dict[Node, tuple[pytest.Mark, ...]] = {}
        self._requirements: dict[tuple[Hashable, ...], Requirement] = {}

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

    def marks(self, item: pytest.Item) -> tuple[pytest.Mark, ...]:
        """Give our marks on ``item``, the closest first."""
        owner = self._ownership.owner
        own = tuple(mark for mark in item.own_markers if owner(mark.name, item) == "ours")
        return own + self._inherited(item.parent)

    def _inherited(self, node: Node | None) -> tuple[pytest.Mark, ...]:
        if node is None:
            return ()
        found = self._chains.get(node)
        if found is None:
            owner = self._ownership.owner
            own = tuple(mark for mark in node.own_markers if owner(mark.name, node) == "ours")
            found = self._chains[node] = own + self._inherited(node.parent)
        return found

    def requirement(self, item: pytest.Item) -> Requirement:
        """Give what the marks of ``item`` ask together: the same object for the same marks.

        :raises MarkError: a mark that was added after collection and means nothing.
        """
        marks = self.marks(item)
        keys = tuple(map(key_of, marks))
        found = self._requirements.get(keys)
        if found is None:
            needs = [self.reader.need(mark) for mark in marks if mark.name != KNOWN_GAP]
            found = self._requirements[keys] = tuple(dict.fromkeys(needs))
        return found

    def gap(self, item: pytest.Item) -> Gap | None:
        """Give the closest known gap that ``item`` names."""
        return next((read_gap(mark) for mark in self.marks(item) if mark.name == KNOWN_GAP), None)


def _yours(name: str) -> str:
    return f"If {name!r} is a mark of your own, register it in the ini value 'markers'."
