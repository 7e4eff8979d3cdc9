"""Hooks of the environment part: what a run on a fake machine says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_sglhw.environment.detection import detection_of

if TYPE_CHECKING:
    import pytest

    from pytest_sglhw.environment.records import Environment
    from pytest_sglhw.settings import Settings


def register(config: pytest.Config, settings: Settings) -> None:
    """Register this part, where the machine is a fake: what it means is found out now."""
    machine = detection_of(config).environment()
    config.pluginmanager.register(Fake(machine, str(settings.fake)), "sglhw-fake")


class Fake:
    """Says first and last that the machine is a fake."""

    def __init__(self, machine: Environment, text: str) -> None:
        self._machine = machine
        self._text = text

    def pytest_report_header(self) -> str:
        """Say so in the first words of the line."""
        count = len(self._machine.devices)
        devices = f", {count} device{'s' if count > 1 else ''}" if count else ""
        return f"sglhw: FAKE {self._text}: {self._machine.platform}{devices}"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say which."""
        terminalreporter.write_line(f"sglhw: the machine of this run was a fake: {self._text}", yellow=True)
