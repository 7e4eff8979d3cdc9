"""Hooks of the gates part. An idle run has two of them; the rest is registered when the first mark of ours is met."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.gates.names import capability_line, platform_line, registered_lines
from pytest_sglhw.gates.policy import met

if TYPE_CHECKING:
    from pytest_sglhw.gates.ownership import Ownership
    from pytest_sglhw.gates.reading import Asked, Node, Reading
    from pytest_sglhw.gates.runtime import Gatekeeper
    from pytest_sglhw.settings import Settings

#: Names by which ``-p`` may ask for this plugin.
_PLUGIN_NAMES = frozenset({"sglhw", "pytest_sglhw.plugin"})

#: Marks of pytest itself and of its widespread plugins: nobody has to look twice.
_SETTLED = (
    "parametrize",
    "usefixtures",
    "filterwarnings",
    "skip",
    "asyncio",
    "anyio",
    "timeout",
    "slow",
    "xdist_group",
)

_CONDITIONAL = ("skipif", "xfail")
#: What may be the mark of a row that somebody added.
_ADDED_MARK = rb"\brequires_[a-z][a-z0-9_]*|(?<=\bmark\.)[a-z][a-z0-9_]*_only\b"


def register(config: pytest.Config, settings: Settings) -> None:
    """Register this part."""
    from pytest_sglhw.gates import fixtures

    gates = config.stash[GATES] = Gates(config, settings)
    config.pluginmanager.register(gates, "sglhw-gates")
    config.pluginmanager.register(fixtures, "sglhw-gates-fixtures")


class Gates:
    """Meet the marks of each file as it is collected."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._settled = set(_SETTLED)
        self._plain: set[str] = set()  # names of ours that are right without arguments, in every file
        self._lines = registered_lines()
        self._opted_in = bool(settings.explicit) or not _PLUGIN_NAMES.isdisjoint(config.option.plugins or ())
        self._gatekeeper: Gatekeeper | None = None
        self._device_context = False
        self._seen: set[Asked] = set()
        self._ownership: Ownership | None = None
        self._reading: Reading | None = None
        taken = self._registered()
        for name, line in self._lines.items():
            if name not in taken or self._opted_in:
                config.addinivalue_line("markers", line)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Refuse a file whose marks mean nothing."""
        if isinstance(collector, pytest.File):
            self._register_added_marks(collector)
        report = yield
        if report.passed:
            problems = [(node.nodeid, text) for node in (collector, *report.result) for text in self._problems(node)]
            problems = problems or self._warn(self._advice(collector, report.result))
            if problems:
                from pytest_sglhw.gates.collecting import refuse

                refuse(report, problems)
        elif report.failed:
            self._hint_at_slip(report, collector)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, object, object]:
        """Meet the marks that others added after their file was collected, be it at the very end of this hook."""
        result = yield
        for item in items:
            list(self._problems(item))
        return result

    @pytest.hookimpl
    def pytest_sessionstart(self) -> None:
        """Watch the reports of workers: this process collects nothing itself."""
        if self._config.pluginmanager.hasplugin("dsession"):
            from pytest_sglhw.gates.summary import show_words

            self._sum_up()
            show_words(self._config.pluginmanager)

    def asked(self, item: pytest.Item) -> Asked | None:
        """Give what the marks of ``item`` ask, or ``None`` where it has none of ours."""
        return self._read().asked(item)

    # Not properties: pytest looks at every attribute of a plugin object when it searches for fixtures.
    def _whose(self) -> Ownership:
        if self._ownership is None:
            from pytest_sglhw.gates.ownership import Ownership

            self._ownership = Ownership(self._config, self._lines.values(), self._opted_in)
        return self._ownership

    def _read(self) -> Reading:
        if self._reading is None:
            from pytest_sglhw.environment.detection import DETECTION
            from pytest_sglhw.gates.reading import Reading

            self._reading = Reading(self._whose(), self._config.stash[DETECTION].registry)
        return self._reading

    def _problems(self, node: Node) -> Iterator[str]:
        for mark in node.own_markers:
            if mark.name not in self._settled:
                problem = self._problem(mark, node)
                if problem:
                    yield problem

    def _problem(self, mark: pytest.Mark, node: Node) -> str | None:
        if mark.name in self._plain and not mark.args and not mark.kwargs:
            return None
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
            self._sum_up()

    def _sum_up(self) -> None:
        manager = self._config.pluginmanager
        if manager.hasplugin("terminalreporter") and not manager.hasplugin("sglhw-gates-summary"):
            from pytest_sglhw.gates.summary import Summary

            manager.register(Summary(), "sglhw-gates-summary")

    def _register_added_marks(self, collector: pytest.File) -> None:
        # Rows that entry points and hooks add are loaded only for a file that may use them: looking for entry points
        # costs more than everything else in an idle run, and strict markers want every name before the import.
        if collector.path.suffix != ".py":
            return
        try:
            text = collector.path.read_bytes()
        except OSError:
            return
        if b"requires_" not in text and b"_only" not in text:  # spares most runs the compilation of the pattern
            return
        unknown = {name.decode() for name in re.findall(_ADDED_MARK, text)} - self._lines.keys()
        if unknown and unknown - self._registered():
            self._add_marks()

    def _registered(self) -> set[str]:
        return {_name(line) for line in self._config.getini("markers")}

    def _add_marks(self) -> None:
        from pytest_sglhw.environment.detection import DETECTION

        registry = self._config.stash[DETECTION].registry
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
            from pytest_sglhw.gates.lints import contradictions

            yield from contradictions(
                (node for node in collected if isinstance(node, pytest.Item)), self._read(), self._seen
            )

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


def _name(line: str) -> str:
    """Name the mark that a line of ini ``markers`` registers."""
    return line.partition("(")[0].partition(":")[0].strip()


GATES = pytest.StashKey[Gates]()
