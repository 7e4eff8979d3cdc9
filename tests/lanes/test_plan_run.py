"""``pytest --sglhw-plan``: collects in one process, runs nothing, shows what each lane would do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

LANES = """
[lanes.cpu]
platform = "cpu"

[lanes.cuda]
platform = "cuda"
capabilities = ["kvcacheio"]
"""

SUITE = """
import pytest

@pytest.mark.cuda_only
def test_cuda(): raise SystemExit("this ran")

@pytest.mark.requires_kv4(otherwise="raise")
class TestKv4:
    @pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.cpu_only)])
    def test_refused(self, x): raise SystemExit("this ran")

@pytest.mark.requires_kvcacheio
def test_kernels(): raise SystemExit("this ran")

def test_plain(): raise SystemExit("this ran")
"""

KV4 = "requires_kv4(otherwise='raise')"

LOST = """
import pytest

@pytest.mark.cuda_only
@pytest.mark.rocm_only
def test_both(): pass

@pytest.mark.sglhw(min_devices=4)
def test_many(): pass

@pytest.mark.skip(reason="later")
def test_later(): pass
"""


@pytest.fixture
def suite(project: Callable[..., pytest.Pytester]) -> pytest.Pytester:
    return project(LANES, test_suite=SUITE)


def plan(suite: pytest.Pytester, *args: str) -> pytest.RunResult:
    return suite.runpytest_subprocess("--sglhw-plan", *args, timeout=120)


def test_a_plan_shows_a_word_per_test_and_lane(suite: pytest.Pytester) -> None:
    """Every test would be executed somewhere: status 0, nothing ran."""
    result = plan(suite)

    assert result.ret == 0
    assert "this ran" not in result.stdout.str()
    shown = result.stdout.str().partition("nothing was run")[2].splitlines()[1:9]
    assert shown == [
        "cpu           cuda          test",
        "skip          run           test_suite.py::test_cuda  (cuda_only)",
        f"raise         not promised  test_suite.py::TestKv4::test_refused[1]  ({KV4})",
        f"raise         skip          test_suite.py::TestKv4::test_refused[2]  (cpu_only, {KV4})",
        "skip          run           test_suite.py::test_kernels  (requires_kvcacheio)",
        "run           run           test_suite.py::test_plain",
        "",
        "cpu: 1 run, 2 raise, 2 skip, 0 not promised",
    ]


def test_what_would_run_nowhere_fails_the_plan(suite: pytest.Pytester) -> None:
    """Tests, contradictions and files that can't be collected are listed, and the rest is planned."""
    suite.makepyfile(
        test_lost=LOST,
        test_broken="import no_such_module_anywhere",
        test_absent="import pytest\npytest.importorskip('no_such_module_anywhere')",
    )

    result = plan(suite)

    assert result.ret == 1
    text = result.stdout.str()
    assert (
        "\nexecuted in no lane: 3\n"
        "  test_lost.py::test_both: rocm_only, cuda_only\n"
        "  test_lost.py::test_many: sglhw(min_devices=4)\n"
        "  test_lost.py::test_later: skip\n"
        "\ncontradictory requirements: 1\n"
        "  test_lost.py::test_both: rocm_only holds on rocm and cuda_only holds on cuda\n"
        "\nfiles that can't be collected: 1\n"
        "  test_broken.py: ModuleNotFoundError: No module named 'no_such_module_anywhere'\n"
        "\nfiles that are skipped whole on this machine, so that their tests are not planned: 1\n"
        "  test_absent.py: could not import 'no_such_module_anywhere'"
    ) in text
    assert "run           run           test_suite.py::test_plain\n" in text


def test_the_plan_for_given_lanes_and_machines(suite: pytest.Pytester) -> None:
    """``--sglhw-plan-for`` names the columns, and asks for a plan by itself."""
    result = suite.runpytest_subprocess(
        "--sglhw-plan-for", "cuda", "--sglhw-plan-for", "rocm:gfx942*8", "-k", "cuda", timeout=120
    )

    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["cuda          rocm:gfx942[*]8  test", "run           skip           test_suite.py::test_cuda  (cuda_only)"]
    )


def test_the_json_plan_is_standard_output(suite: pytest.Pytester) -> None:
    """One document and nothing else, with workers asked for in vain."""
    suite.makepyfile(test_lost=LOST)

    result = plan(suite, "--sglhw-plan-format", "json", "-p", "xdist", "-n", "2")

    document = json.loads(result.stdout.str())
    assert result.ret == 1
    assert document["schema"] == "1.0"
    assert document["lanes"]["cpu"] == {"run": 1, "raise": 2, "skip": 5, "not promised": 0}
    assert document["tests"][0] == {
        "nodeid": "test_lost.py::test_both",
        "requirement": "rocm_only, cuda_only",
        "lanes": {"cpu": "skip", "cuda": "skip"},
    }
    assert document["nowhere"] == [f"test_lost.py::{name}" for name in ("test_both", "test_many", "test_later")]
    assert document["contradictory"] == {
        "test_lost.py::test_both": "rocm_only holds on rocm and cuda_only holds on cuda"
    }
    assert (document["failed_files"], document["skipped_files"]) == ({}, {})


def test_the_markdown_plan_is_safe(suite: pytest.Pytester) -> None:
    """Ids with any characters stay in their cell."""
    suite.makepyfile(test_ids="import pytest\n@pytest.mark.parametrize('x', ['a|b', '<b>'])\ndef test_x(x): pass")

    result = plan(suite, "--sglhw-plan-format", "markdown", "-k", "test_x")

    rows = [line for line in result.stdout.lines if line.startswith("|")][2:]
    assert result.ret == 0
    assert [row.replace("\\|", "").count("|") for row in rows] == [5, 5]
    assert not any("<b>" in re.sub("`[^`]*`", "", row) for row in rows)
    assert result.stdout.lines[0] == "# Plan"


def test_a_plan_starts_no_workers(suite: pytest.Pytester) -> None:
    """One process, whatever addopts asks for."""
    suite.makeconftest(
        """
        import os, pathlib
        with pathlib.Path("pids").open("a") as file:
            print(os.getpid(), file=file)
        """
    )

    assert plan(suite, "-p", "xdist", "-n", "2").ret == 0
    assert len((suite.path / "pids").read_text().split()) == 1


def test_a_plan_imports_no_accelerator_library(suite: pytest.Pytester) -> None:
    """Nor does it ask the machine: it says the same everywhere."""
    suite.makeconftest(
        """
        import subprocess, sys
        subprocess.Popen = None

        def pytest_unconfigure():
            print("imported:", sorted({"torch", "hypothesis", "triton", "sglang"} & set(sys.modules)))
        """
    )

    result = plan(suite)

    assert result.ret == 0
    assert "imported: []" in result.stdout.str()


def test_a_plan_without_lanes_is_a_usage_error(suite: pytest.Pytester) -> None:
    """There is nothing to plan for."""
    (suite.path / "sglhw.toml").unlink()

    result = plan(suite)

    assert result.ret == 4
    assert "ERROR: --sglhw-plan needs lanes, and none is configured." in result.stderr.str()


def test_a_wrong_format_is_a_usage_error(suite: pytest.Pytester) -> None:
    """With the valid ones."""
    result = plan(suite, "--sglhw-plan-format", "html")

    assert result.ret == 4
    message = "'html' is not a valid plan-format (--sglhw-plan-format). Valid: table, markdown, json."
    assert message in result.stderr.str()
