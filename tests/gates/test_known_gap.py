"""``known_gap``: runs, must fail, names its issue, and does not outlive its date."""

from __future__ import annotations

import datetime as dt

import pytest

from pytest_sglhw.gates.known_gap import Gap, expired

ISSUE = "issue='https://github.com/sgl-project/sglang/issues/1'"
HEAD = "import unittest\nimport pytest\nfrom pytest_sglhw import cuda_only, known_gap\n"


def gap(arguments, body="assert 0"):
    return f"{HEAD}@known_gap({arguments})\ndef test_a(): {body}"


def test_a_known_gap_that_fails_is_expected(run):
    """It runs, fails, and is told apart from a failure; the issue is the reason."""
    result = run(gap(ISSUE + ", reason='mamba'"), "-rx")
    assert result.parseoutcomes() == {"xfailed": 1}
    line = "XFAIL test_it.py::test_a - known gap https://github.com/sgl-project/sglang/issues/1: mamba"
    assert line in result.outlines


def test_a_gap_that_passes_is_closed(run):
    """An unexpected pass fails: somebody has to remove the mark."""
    result = run(gap(ISSUE, "pass"))
    assert result.parseoutcomes() == {"failed": 1}
    assert f"known_gap({ISSUE}): passed, so the gap is closed. Remove the mark and close the issue." in result.outlines


@pytest.mark.parametrize("arguments", ["", "issue='TBD'", "issue='later'"])
def test_a_gap_without_an_issue_fails(run, arguments):
    """A blanket "TBD" is no issue: the test fails, with its own error in view."""
    result = run(gap(arguments))
    assert result.parseoutcomes() == {"failed": 1}
    mark = f"known_gap({arguments})" if arguments else "known_gap"
    assert f"{mark}: a known gap needs issue=, the URL where it will be closed." in result.outlines
    result.stdout.fnmatch_lines(["E   assert 0"])


def test_another_failure_is_a_failure(run):
    """With ``raises`` only that error is the gap."""
    result = run(gap(ISSUE + ", raises=KeyError"))
    assert result.parseoutcomes() == {"failed": 1}
    assert f"known_gap({ISSUE}, raises=KeyError) expects KeyError, so this is another failure." in result.outlines


def test_an_overdue_gap_is_stale(run):
    """Outside a lane it is still expected, and listed as overdue."""
    result = run(gap(ISSUE + ", until='2020-01-31'"))
    assert result.parseoutcomes() == {"xfailed": 1}
    assert f"test_it.py::test_a: known_gap({ISSUE}, until='2020-01-31'): 2020-01-31 is past" in result.outlines


def test_an_overdue_gap_fails_in_a_lane(run):
    """Inside a lane its time is up."""
    conftest = """
        from pytest_sglhw.gates.policy import LANE_POLICY, LanePolicy
        def pytest_configure(config): config.stash[LANE_POLICY] = LanePolicy("cpu")
    """
    result = run(gap(ISSUE + ", until='2020-01-31'"), conftest=conftest)
    assert result.parseoutcomes() == {"failed": 1}
    text = "still fails, but 2020-01-31 is past. Close the gap or set a new date."
    assert f"known_gap({ISSUE}, until='2020-01-31'): {text}" in result.outlines


def test_a_gap_in_setup_counts(run):
    """A fixture that fails is the gap as well."""
    source = f"{HEAD}@pytest.fixture\ndef broken(): 1 / 0\n@known_gap({ISSUE})\ndef test_a(broken): pass"
    assert run(source).parseoutcomes() == {"xfailed": 1}


def test_a_gated_test_skips_first(run):
    """Where the hardware is missing the gap has nothing to say."""
    source = f"{HEAD}@cuda_only\n@known_gap({ISSUE})\ndef test_a(): assert 0"
    assert run(source, fake="cpu").parseoutcomes() == {"skipped": 1}
    assert run(source, fake="cuda").parseoutcomes() == {"xfailed": 1}


def test_a_gap_in_a_test_case_and_its_subtests(run):
    """A failing subtest is the gap of its test."""
    source = f"""{HEAD}
@known_gap({ISSUE})
class TestA(unittest.TestCase):
    def test_a(self): self.fail()
    def test_b(self):
        with self.subTest(i=1): self.fail()
"""
    result = run(source)
    assert "failed" not in result.parseoutcomes()
    assert result.ret == pytest.ExitCode.OK


TODAY = dt.date(2027, 1, 31)


@pytest.mark.parametrize(
    ("until", "sglang", "text"),
    [
        (None, "0.5.23", None),
        (dt.date(2027, 1, 31), None, None),
        (dt.date(2027, 1, 30), None, "2027-01-30 is past"),
        ("0.5.30", "0.5.23", None),
        ("0.5.30", None, None),
        ("0.5.30", "0.5.30", "SGLang 0.5.30 is here, and the gap was to be closed in 0.5.30"),
        ("0.5.9", "0.5.23", "SGLang 0.5.23 is here, and the gap was to be closed in 0.5.9"),
    ],
)
def test_when_a_gap_is_overdue(until, sglang, text):
    """A date is the last day; a version is compared as a version, not as text."""
    assert expired(Gap("known_gap", until=until), TODAY, sglang) == text
