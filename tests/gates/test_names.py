"""The literal names of marks agree with the registry, and each is importable and registered."""

from __future__ import annotations

import pytest

import pytest_sglhw
from pytest_sglhw.gates import CAPABILITIES, PLATFORMS, registered_lines
from pytest_sglhw.registry.loading import built_in


def test_literal_capabilities_are_the_registry():
    """The list that an idle run reads names exactly the built-in capabilities, in their order."""
    assert list(CAPABILITIES) == list(built_in().capabilities)


def test_literal_platforms_are_the_registry():
    """Every built-in platform has its mark."""
    assert sorted(PLATFORMS) == sorted(built_in().platforms)


@pytest.mark.parametrize("name", registered_lines())
def test_every_mark_is_a_public_name(name):
    """``from pytest_sglhw import NAME`` gives the mark of that name."""
    assert getattr(pytest_sglhw, name).name == name


def test_a_name_that_is_no_mark_is_no_attribute():
    """The package does not invent names."""
    with pytest.raises(AttributeError, match="no attribute 'tpu_only'"):
        _ = pytest_sglhw.tpu_only


def test_marks_are_listed(run):
    """``pytest --markers`` shows every mark with its signature."""
    result = run("", "--markers")
    for line in registered_lines().values():
        assert f"@pytest.mark.{line}" in result.outlines


def test_an_idle_run_loads_no_part_that_acts(pytester):
    """A suite without marks of ours ends without the modules that read and decide, or any that they need."""
    pytester.makepyfile("def test_it(): pass")
    pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure():
            heavy = {"torch", "hypothesis", "difflib", "sglang"} & (sys.modules.keys() - BEFORE)
            ours = [n for n in sys.modules if n.startswith("pytest_sglhw.gates.")]
            print("\\nloaded:", sorted(heavy), sorted(n.rpartition(".")[2] for n in ours))

        BEFORE = set(sys.modules)
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:asyncio", "-p", "no:hypothesispytest")
    result.assert_outcomes(passed=1)
    assert "loaded: [] ['hooks']" in result.outlines
