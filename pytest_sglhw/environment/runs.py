"""The pytest runs of this process, for code that pytest does not hand its config to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest  # whoever asks outside pytest does not pay for it

#: The innermost last: a test of pytest runs pytest inside.
_RUNS: list[pytest.Config] = []


def enter(config: pytest.Config) -> None:
    """Make the run of ``config`` the current one until it ends; again changes nothing."""
    if config not in _RUNS:
        _RUNS.append(config)
        config.add_cleanup(lambda: _RUNS.remove(config))


def current() -> pytest.Config | None:
    """Give the config of the innermost run; ``None`` outside pytest."""
    return _RUNS[-1] if _RUNS else None
