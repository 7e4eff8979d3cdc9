"""Run small suites under the gates, on whatever machine is asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


@pytest.fixture(autouse=True)
def _as_installed(every_plugin: None) -> None:
    """Whose a name is depends on how the plugin was loaded: here by its entry point, and not by ``-p``."""


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Run pytest on a suite: ``run(source, *arguments, fake="cuda:sm90", **other_files)``."""

    def run(source: str, *arguments: str, fake: str | None = None, **files: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=source, **files)
        machine = ["--sglhw-fake", fake] if fake else []
        quiet = ("-p", "no:asyncio", "-p", "no:cacheprovider", "-W", "default")
        return pytester.runpytest(*quiet, *machine, *arguments)

    return run


@pytest.fixture
def outcomes() -> Callable[[pytest.RunResult], dict[str, str]]:
    """Give the word of each test of a run with ``-v``, by its node id without the file."""

    def outcomes(result: pytest.RunResult) -> dict[str, str]:
        words = {}
        for line in result.outlines:
            nodeid, _, rest = line.partition(" ")
            if "::" in nodeid and rest.strip() and rest.split()[0].isupper():
                words[nodeid.partition("::")[2]] = rest.split()[0]
        return words

    return outcomes
