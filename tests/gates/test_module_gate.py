"""``import_or_skip``: a module at the top of a test file, or a skip with the true reason."""

from __future__ import annotations

import json
import re

import pytest

import pytest_sglhw
from pytest_sglhw import settings

SOURCE = """
import pytest_sglhw
kernels = pytest_sglhw.import_or_skip("my_kernels", "kvcacheio")
def test_a(): assert kernels.answer == 42
"""
WHERE = "import_or_skip('my_kernels', 'kvcacheio')"


def lane(promises, allowed=()):
    return f"""
        from pytest_sglhw.gates.policy import LANE_POLICY, LanePolicy
        def pytest_configure(config):
            config.stash[LANE_POLICY] = LanePolicy("x", frozenset({allowed!r}), "off", lambda name: {promises})
    """


def test_the_module_is_returned_where_the_capability_is_available(run):
    """The import is the whole effect."""
    run(SOURCE, fake="cuda", my_kernels="answer = 42").assert_outcomes(passed=1)


def test_the_file_is_skipped_where_it_is_not(run):
    """One skip for the file, at its own line and with the reason; nothing is imported."""
    result = run(SOURCE, "-rs", fake="cuda,-kvcacheio", my_kernels="raise RuntimeError('imported')")
    result.assert_outcomes(skipped=1)
    assert any(
        re.match(rf"SKIPPED \[1\] test_\w+\.py:\d+: {re.escape(WHERE)}: kvcacheio is unavailable: ", line)
        for line in result.outlines
    )


def test_a_lane_that_promises_the_capability_fails(run):
    """A promise is kept or broken, never skipped."""
    result = run(SOURCE, fake="cuda,-kvcacheio", conftest=lane(True))
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert any(
        line.startswith(f"{WHERE}: kvcacheio is unavailable: ") and line.endswith("(lane x promises it)")
        for line in result.outlines
    )
    run(SOURCE, fake="cuda,-kvcacheio", conftest=lane(False)).assert_outcomes(skipped=1)


@pytest.mark.parametrize("error", ["RuntimeError('no driver')", "ImportError('libcuda.so.1: cannot open')"])
def test_a_module_that_fails_to_import_is_broken(run, error):
    """Whatever the import raises: outside a lane a skip that says so, inside a failure, unless it may skip."""
    kernels = f"raise {error}"
    text = error.partition("('")[2].removesuffix("')")
    kind = error.partition("(")[0]
    result = run(SOURCE, "-rs", fake="cuda", my_kernels=kernels)
    result.assert_outcomes(skipped=1)
    reason = f"{WHERE}: kvcacheio is broken: my_kernels does not import here: {kind}: {text}"
    assert any(line.endswith(reason) for line in result.outlines)
    failed = run(SOURCE, fake="cuda", my_kernels=kernels, conftest=lane(False))
    assert f"{reason} (lane x does not allow broken:kvcacheio)" in failed.outlines
    for allowed in ("broken:kvcacheio", "requires_kvcacheio"):
        run(SOURCE, fake="cuda", my_kernels=kernels, conftest=lane(False, (allowed,))).assert_outcomes(skipped=1)


def test_an_unknown_capability_is_an_error_with_the_valid_ones(run):
    """A typo does not skip the file."""
    result = run(SOURCE.replace("kvcacheio", "kvcachio"), fake="cuda")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        ["E   ValueError: 'kvcachio' is not a known capability. Valid: kvcacheio, *. Did you mean 'kvcacheio'?"]
    )


def test_outside_pytest_it_imports(monkeypatch):
    """A script that uses the same helper gets its module, or the error of the import."""
    monkeypatch.setattr(settings, "_RUNS", [])
    assert pytest_sglhw.import_or_skip("json", "kvcacheio") is json
    with pytest.raises(ModuleNotFoundError):
        pytest_sglhw.import_or_skip("nothing_of_this_name", "kvcacheio")


def test_a_run_inside_a_run_has_its_own_machine(run, pytestconfig):
    """The run that asks is the innermost one, and the outer one is back afterwards."""
    run(SOURCE, fake="cuda,-kvcacheio").assert_outcomes(skipped=1)
    assert settings.current_run() is pytestconfig
