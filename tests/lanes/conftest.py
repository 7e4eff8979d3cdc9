"""What the tests of the lanes share: projects with lanes."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.Pytester]:
    """Make a project with lanes and test files; pytest in it is an outermost one."""
    monkeypatch.delenv("SGLHW_OUTER_PYTEST", raising=False)

    def project(lanes: str, **files: str) -> pytest.Pytester:
        pytester.makefile(".toml", sglhw=lanes)
        pytester.makeini("[pytest]\naddopts = -p sglhw -p no:cacheprovider")
        pytester.makepyfile(**files)
        return pytester

    return project
