"""Hooks of the report part: track results where somebody wants them, record them where a report is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_sglhw.settings import FACTS_WANTED

if TYPE_CHECKING:
    import pytest

    from pytest_sglhw.settings import Settings


def register(config: pytest.Config, settings: Settings) -> None:
    """Register what this run needs of the tracker and the recorder, where somebody reads what became of each test."""
    from pytest_sglhw.report import results

    config.stash[FACTS_WANTED] = True
    manager = config.pluginmanager
    if hasattr(config, "workerinput"):
        from pytest_sglhw.report.courier import Courier

        manager.register(Courier(config), "sglhw-courier")
        return
    from pytest_sglhw.report.courier import Receiver

    tracker = results.ResultTracker(config, settings)
    manager.register(tracker, "sglhw-results")
    manager.register(Receiver(config, tracker), "sglhw-courier")
    if settings.report:
        from pytest_sglhw.report.recorder import Recorder

        manager.register(Recorder(config, settings, settings.report), "sglhw-report")
