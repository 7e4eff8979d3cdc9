"""Hooks of the environment part: header, fixtures, names for ``skipif`` strings, the hand-over to workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_sglhw.environment import runs
from pytest_sglhw.environment.detection import DETECTION, HANDED_OVER, Detection
from pytest_sglhw.environment.pinned import is_local

if TYPE_CHECKING:
    from pytest_sglhw.settings import Settings


def register(config: pytest.Config, settings: Settings) -> None:
    """Register this part."""
    from pytest_sglhw.environment import fixtures

    config.stash[DETECTION] = Detection(config, settings)
    runs.enter(config)
    config.pluginmanager.register(EnvironmentPart(config, settings), "sglhw-environment")
    config.pluginmanager.register(fixtures, "sglhw-environment-fixtures")


class EnvironmentPart:
    """What the run shows and offers of its machine."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings

    def pytest_report_header(self) -> str:
        """Show what is known without a probe."""
        from pytest_sglhw.environment.header import header

        return header(self._config.stash[DETECTION], self._settings)

    def pytest_markeval_namespace(self) -> dict[str, Any]:
        """Let ``skipif("is_rocm")`` and ``skipif("not sglhw.is_cuda")`` be written as strings."""
        import pytest_sglhw
        from pytest_sglhw.environment.predicates import PREDICATES

        return {**PREDICATES, "sglhw": pytest_sglhw}

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Let the workers that run this interpreter on this machine share one probe."""
        spec = node.gateway.spec
        if is_local(spec) and not spec.python:
            node.workerinput[HANDED_OVER] = self._config.stash[DETECTION].hand_over()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say at the end once more that the machine was a fake."""
        if self._settings.fake:
            terminalreporter.write_line(
                f"sglhw: the machine of this run was a fake: {self._settings.fake}", yellow=True
            )
