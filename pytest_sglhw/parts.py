"""Which parts a run needs: one plugin object each, registered only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_sglhw.settings import Settings


def register(config: pytest.Config, settings: Settings) -> None:
    """Register the parts of this run, in the order in which their hooks are to be called."""
    from pytest_sglhw.environment import hooks as environment
    from pytest_sglhw.gates import hooks as gates
    from pytest_sglhw.report import hooks as report
    from pytest_sglhw.workers import hooks as workers

    environment.register(config, settings)
    gates.register(config, settings)
    report.register(config, settings)
    if settings.lane or settings.plan:
        from pytest_sglhw.lanes import hooks as lanes

        lanes.register(config, settings)
    workers.register(config, settings)
    if settings.shard is not None:  # also without a lane: whoever sets it means one
        from pytest_sglhw.lanes.shard import read_shard

        read_shard(settings.shard)
    if any(
        "pytest_sglhw.conformance" in argument or "pytest_sglhw/conformance" in argument for argument in config.args
    ):
        from pytest_sglhw.conformance import hooks as conformance

        conformance.register(config)
