"""The marks of a run as they are met. What acts on them while tests run is registered with the first of ours."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.gates import capability_line, marker_name, platform_line, registered_lines
from pytest_sglhw.settings import ON_FIRST

if TYPE_CHECKING:
    from pytest_sglhw.gates.ownership import Ownership
    from pytest_sglhw.gates.reading import Asked, Node, Reading
    from pytest_sglhw.gates.runtime import Gatekeeper
    from pytest_sglhw.settings import Settings

#: Names by which ``-p`` may ask for this plugin.
_PLUGIN_NAMES = frozenset({"sglhw", "pytest_sglhw.plugin"})

#: Marks of pytest itself and of its widespread plugins: nobody has to look twice.
_SETTLED = frozenset(
    {
        "parametrize",
        "usefixtures",
        "filterwarnings",
        "skip",
        "asyncio",
        "anyio",
        "timeout",
        "slow",
        "xdist_group",
    }
)

_CONDITIONAL = ("skipif", "xfail")
#: What may be the mark of a row that somebody added.
_ADDED_MARK = rb"\brequires_[a-z][a-z0-9_]*|(?<=\bmark\.)[a-z][a-z0-9_]*_only\b"


def met(config: pytest.Config, what: str) -> None:
    """Call, the first time, what the part that waits for ``what`` left to be called."""
    waiting = config.stash[ON_FIRST].pop(what, None)
    if waiting is not None:
        waiting()


class Gates:
    """Meet the marks of each file as it is collected.

    ``plugin`` calls it: pytest would look at every attribute of an object that is registered.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        """Register our marks for the run of ``config``."""
        self._config = config
        self._settings = settings
        self._settled = set(_SETTLED)  # names that nobody has to look at again, in any file
        self._plain: set[str] = set()  # names of ours that are right in every file where they have no arguments
        self._lines = registered_lines()
        self._opted_in = bool(settings.explicit) or not _PLUGIN_NAMES.isdisjoint(config.option.plugins or ())
        self._gatekeeper: Gatekeeper | None = None
        self._device_context = False
        self._from_entry_points: bool | None = None
        self._ownership: Ownership | None = None
        self._reading: Reading | None = None
        taken = self._registered()
        for name, line in self._lines.items():
            if name not in taken or self._opted_in:
                config.addinivalue_line("markers", line)

    def expect(self, collector: pytest.Collector) -> None:
        """Register the marks of added rows before a file that may use them is imported."""
        if isinstance(collector, pytest.File):
            self._register_added_marks(collector)

    def meet(self, collector: pytest.Collector, report: pytest.CollectReport) -> None:
        """Meet the marks on what was collected; refuse a file whose marks mean nothing."""
        if report.passed:
            differing = _differing((collector, *report.result))
            problems = self._problems(differing)
            problems = problems or self._warn(self._advice(collector, differing))
            if problems:
                from pytest_sglhw.gates.collecting import refuse

                refuse(report, problems)
        elif report.failed:
            self._hint_at_slip(report, collector)

    def meet_late(self, items: Sequence[pytest.Item]) -> None:
        """Meet the marks that others added after their file was collected."""
        self._problems(_differing(items))

    def asked(self, item: pytest.Item) -> Asked | None:
        """Give what the marks of ``item`` ask, or ``None`` where it has none of ours."""
        return self._read().asked(item)

    def _whose(self) -> Ownership:
        if self._ownership is None:
            from pytest_sglhw.gates.ownership import Ownership

            self._ownership = Ownership(self._config, self._lines.values(), self._opted_in)
        return self._ownership

    def _read(self) -> Reading:
        if self._reading is None:
            from pytest_sglhw.environment.detection import detection_of
            from pytest_sglhw.gates.reading import Reading

            self._reading = Reading(self._whose(), detection_of(self._config).registry)
        return self._reading

    def _problems(self, nodes: Iterable[Node]) -> list[tuple[str, str]]:
        """Meet each mark on the nodes themselves; give those that mean nothing, as node id and text."""
        settled, plain = self._settled, self._plain
        found = []
        for node in nodes:
            for mark in node.own_markers:
                name = mark.name
                if name in settled or (name in plain and not mark.args and not mark.kwargs):
                    continue
                if problem := self._problem(mark, node):
                    found.append((node.nodeid, problem))
        return found

    def _problem(self, mark: pytest.Mark, node: Node) -> str | None:
        if mark.name in _CONDITIONAL:
            if mark.args and isinstance(mark.args[0], str):
                from pytest_sglhw.gates.lints import version_condition

                return version_condition(mark)
            return None
        if self._whose().owner(mark.name, node) == "foreign":
            if self._whose().never_ours(mark.name):
                self._settled.add(mark.name)
            return None
        self._run()
        met(self._config, mark.name)
        problem = self._read().problem(mark, node)
        if self._read().judged and self._gatekeeper is not None:
            self._gatekeeper.let_judges_watch()
        if problem is None and not mark.args and not mark.kwargs and not self._whose().is_contested(mark.name):
            self._plain.add(mark.name)
        return problem

    def _run(self) -> None:
        if self._gatekeeper is None:
            from pytest_sglhw.gates.runtime import Door, Gatekeeper

            self._gatekeeper = Gatekeeper(self._config, self._settings, self._read())
            self._config.pluginmanager.register(Door(self._gatekeeper), "sglhw-gates-door")

    def _register_added_marks(self, collector: pytest.File) -> None:
        # Rows that entry points and hooks add are loaded only for a file that may use them: looking for entry points
        # costs more than everything else in an idle run, and strict markers want every name before the import.
        if collector.path.suffix != ".py":
            return
        try:
            text = collector.path.read_bytes()
        except OSError:
            return
        if b"requires_" not in text and b"_only" not in text:
            return
        self._make_marks_once()
        if not self.may_have_more_rows():
            return
        import re

        unknown = {name.decode() for name in re.findall(_ADDED_MARK, text)} - self._lines.keys()
        if unknown and unknown - self._registered():
            self._add_marks()

    def _make_marks_once(self) -> None:
        """Have ``pytest.mark.cpu_only`` give one mark to all tests: making one for each is a third of what it costs."""
        made = vars(pytest.mark)
        for name in self._lines.keys() - made.keys():
            setattr(pytest.mark, name, getattr(pytest.mark, name))
            self._config.add_cleanup(partial(made.pop, name, None))

    def may_have_more_rows(self) -> bool:
        """Say whether somebody may add rows to the built-in ones, without loading anything."""
        if self._config.hook.pytest_sglhw_register.get_hookimpls():
            return True
        if self._from_entry_points is None:
            from pytest_sglhw.registry.installed import ENTRY_POINT_GROUP, may_have_entry_points

            self._from_entry_points = may_have_entry_points(ENTRY_POINT_GROUP)
        return self._from_entry_points

    def _registered(self) -> set[str]:
        return {marker_name(line) for line in self._config.getini("markers")}

    def _add_marks(self) -> None:
        from pytest_sglhw.environment.detection import detection_of

        registry = detection_of(self._config).registry
        lines = [*map(platform_line, registry.platforms), *map(capability_line, registry.capabilities)]
        for name, line in lines:
            if name not in self._lines:
                self._lines[name] = line
                self._config.addinivalue_line("markers", line)
                self._whose().add(line)

    def _advice(self, collector: pytest.Collector, collected: Sequence[Node]) -> Iterator[tuple[Node, str]]:
        if "torch" in sys.modules and not self._device_context:
            from pytest_sglhw.gates.lints import context_created

            for found in context_created(collector):
                self._device_context = True
                yield found
        if self._gatekeeper is not None:
            reading = self._read()
            for node in collected:
                if isinstance(node, pytest.Item) and (why := reading.contradiction(node)):
                    yield node, why

    def _warn(self, advice: Iterable[tuple[Node, str]]) -> list[tuple[str, str]]:
        """Warn, and return as problems the warnings that this run turns into errors."""
        problems = []
        for node, text in advice:
            from pytest_sglhw.warning import PytestSglhwWarning

            try:
                node.warn(PytestSglhwWarning(text))
            except PytestSglhwWarning:
                problems.append((node.nodeid, text))
        return problems

    def _hint_at_slip(self, report: pytest.CollectReport, collector: pytest.Collector) -> None:
        from pytest_sglhw.gates.collecting import refused_name
        from pytest_sglhw.gates.reports import add_hint

        name = refused_name(report)
        if name and self._whose().owner(name, collector) == "slip":
            add_hint(report, "pytest-sglhw", self._read().slip(name))


def _differing(nodes: Iterable[Node]) -> list[Node]:
    """Leave out each node with the same one mark, or without any, that the node before it stands beside."""
    found: list[Node] = []
    before: object = found  # no mark
    parent: object = found
    for node in nodes:
        own = node.own_markers
        mark = own[0] if own else None
        if mark is before and node.parent is parent and len(own) < 2:
            continue
        before, parent = mark if len(own) < 2 else found, node.parent
        found.append(node)
    return found


GATES: pytest.StashKey[Gates] = pytest.StashKey()
