"""Configuration of this project's own tests."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session", autouse=True)
def _plugins_by_name():
    """Let a pytest in a test load what its arguments name: what else is installed costs each process half a second.

    Tests that are about a run as users have it ask for ``every_plugin``.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        yield


@pytest.fixture
def every_plugin(monkeypatch):
    """Let a pytest in this test load every plugin that is installed, as it does for users."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
