"""Real gates of SGLang end as ``raised`` with the right text and as ``failed`` with a wrong one."""

from __future__ import annotations

import pytest
from suite import GATES, SuiteRun, run_suite

SUITES = ("gates_kv_cache.py", "gates_attention.py", "gates_quantization.py", "gates_runtime.py")


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> SuiteRun:
    return run_suite(tmp_path_factory.mktemp("right"), *SUITES)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> SuiteRun:
    return run_suite(tmp_path_factory.mktemp("wrong"), *SUITES, SGLHW_WRONG_TEXT="1")


@pytest.mark.cpu_only
def test_the_right_text_is_raised(right: SuiteRun) -> None:
    """Each gate that SGLang closes on this machine ends as ``raised``, and there are many."""
    outcomes = right.outcomes()
    assert outcomes == dict.fromkeys(outcomes, "raised"), right.text
    assert len(outcomes) >= 70


@pytest.mark.cpu_only
def test_a_wrong_text_fails(right: SuiteRun, wrong: SuiteRun) -> None:
    """The same gates fail where the mark asks for a text that SGLang never says, each with its own traceback."""
    assert wrong.outcomes() == dict.fromkeys(right.tests, "failed"), wrong.text
    assert "DID NOT RAISE UserWarning" in wrong.text, "the one gate that only warns"
    assert wrong.text.count("This is not the documented error.") == len(wrong.tests) - 1


@pytest.mark.cpu_only
def test_a_gate_that_crashes_is_not_the_gate(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Gates that ask torch for a device before they speak fail, and the report says that they crashed."""
    crashed = run_suite(tmp_path_factory.mktemp("crashed"), "gates_that_crash.py")
    assert crashed.outcomes() == dict.fromkeys(crashed.tests, "failed")
    assert len(crashed.tests) == 4
    said = crashed.text.count("The gate crashed before its own message: it reached for a device that is not there.")
    assert said == len(crashed.tests), crashed.text


def test_every_suite_is_run() -> None:
    """No file of gates is forgotten."""
    others = {"gates_capabilities.py", "gates_seeds.py", "gates_that_crash.py"}
    assert {path.name for path in GATES.glob("gates_*.py")} == {*SUITES, *others}
