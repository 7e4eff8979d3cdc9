"""What the repository says of itself is so: the README, the tox environments, the workflows, the lanes."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pytest_sglhw.lanes.config import load_lanes
from pytest_sglhw.registry.loading import built_in
from pytest_sglhw.settings import OPTIONS, Option

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
LANES = Path(__file__).parent / "data" / "lanes"

MAIN_JOB = "$ python -m pip install tox && python -m tox run -e matrix"
TESTS = "$ python -m pip install tox && python -m tox run -e cpu"


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", read(name), re.MULTILINE | re.DOTALL)


def tox_environments() -> set[str]:
    """Name the environments of ``tox.ini``, with their factors spelled out."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(read("tox.ini"))
    names = [name.removeprefix("testenv:") for name in parser.sections() if name.startswith("testenv:")]
    return {spelled for name in names for spelled in spelled_out(name)}


def spelled_out(name: str) -> list[str]:
    match = re.search(r"\{([^}]*)\}", name)
    if match is None:
        return [name]
    return [s for word in match[1].split(",") for s in spelled_out(name.replace(match[0], word, 1))]


def test_the_readme_has_the_two_lines() -> None:
    """The main job and the tests, each by one line."""
    lines = {line for block in blocks("README.md", "console") for line in block.splitlines()}

    assert {MAIN_JOB, TESTS} <= lines


def test_tox_has_an_environment_for_everything() -> None:
    """One per backend, the main job, the checks, and every Python with the oldest and the newest pytest."""
    versions = {f"py3{minor}-pytest{pytest}" for minor in range(10, 15) for pytest in ("82", "9")}

    assert tox_environments() == versions | {
        "cpu", "cuda", "rocm", "xpu", "matrix", "upstream", "upstream-0515", "lint", "typing", "pkg", "bench",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", ".ci/run", *(str(path) for path in WORKFLOWS)])
def test_environments_that_are_named_exist(name: str) -> None:
    """Whoever says ``tox run -e X`` can."""
    named = {env for envs in re.findall(r"tox run -e ([\w,-]+)", read(name)) for env in envs.split(",")}

    assert named - tox_environments() == set()


def test_ci_runs_what_it_has_to() -> None:
    """The README's test command, lint, typing, upstream, and the main job in the quick profile."""
    run = read(".ci/run")
    named = {env for envs in re.findall(r"tox run -e ([\w,-]+)", run) for env in envs.split(",")}

    assert {"cpu", "lint", "typing", "upstream", "matrix"} <= named
    assert "-e matrix -- --profile quick" in run
    assert "set -euo pipefail" in run


def option_row(option: Option) -> str:
    spelled = f"--sglhw-{option.stem}{f' {option.metavar}' if option.metavar else ''}"
    values = f" ({', '.join(option.choices)})" if option.choices else ""
    cells = (spelled, option.env, option.dest if option.ini else None, option.help + values, option.default)
    code = [f"`{cell}`" if cell and at != 3 else cell or "" for at, cell in enumerate(cells)]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in code)} |"


def test_the_readme_lists_the_options() -> None:
    """The table is what the plugin registers."""
    table = read("README.md").partition("<!-- options: begin -->\n")[2].partition("<!-- options: end -->")[0]
    head = ["| option | environment | ini | what | default |", "|---|---|---|---|---|"]

    assert table.splitlines() == [*head, *map(option_row, OPTIONS)]


@pytest.mark.usefixtures("every_plugin")
def test_the_tests_of_the_readme_do_what_it_says(pytester: pytest.Pytester) -> None:
    """On a machine without an accelerator three skip and one is raised."""
    pytester.makepyfile(test_readme=blocks("README.md", "python")[0])

    result = pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-fake", "cpu", "-rs", timeout=60)

    assert result.ret == 0
    assert re.search(r"\b3 skipped, 1 raised\b", result.stdout.lines[-1])


@pytest.mark.parametrize("name", ["README.md", "docs/lanes.md"])
def test_lanes_in_the_documentation_are_valid(tmp_path: Path, name: str) -> None:
    """A lane that is copied from a page is accepted."""
    (block,) = blocks(name, "toml")
    (tmp_path / "pyproject.toml").write_text(block, encoding="utf-8")

    assert list(load_lanes(tmp_path, built_in())) == ["cuda"]


def test_links_of_the_documentation_lead_somewhere() -> None:
    """Every relative link is a file of the repository."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    links = [
        (page.name, link)
        for page in pages
        for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]

    assert links == []


def test_every_backend_has_a_lane_of_its_own() -> None:
    """``tox run -e cuda`` keeps the promise of lane ``cuda``, which is about that platform."""
    lanes = load_lanes(ROOT, built_in())

    assert {name: lane.platform for name, lane in lanes.items()} == {n: n for n in ("cpu", "cuda", "rocm", "xpu")}
    assert all(lane.min_executed > 0 for lane in lanes.values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_pinned_and_modest(path: Path) -> None:
    """Every action by its commit with the version beside it, and no permission that a job did not ask for."""
    text = path.read_text(encoding="utf-8")
    uses = re.findall(r"uses: (.+)", text)

    assert uses
    assert [use for use in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use)] == []
    assert "\npermissions: {}\n" in text
    assert text.count("\n    permissions:") == text.count("\n    runs-on:")


def merge_script(text: str) -> str:
    step = re.search(r"^( +)- name: Merge the lanes\n +run: \|\n((?:\1    .*\n)+)", text, re.MULTILINE)
    assert step is not None
    return textwrap.dedent(step[2])


SUMMARY = merge_script(read(".github/workflows/hardware.yml"))


def summary_job(folder: Path, lanes: str, script: str = SUMMARY) -> subprocess.CompletedProcess[str]:
    """Run the command of the summary job as a runner does, with the Python of these tests as its ``python``."""
    (folder / "bin").mkdir()
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    environ = {
        **os.environ,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "LANES": lanes,
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=120)


def test_the_summary_job_merges_three_lanes(tmp_path: Path) -> None:
    """Green: a page, a job summary, the table in the log."""
    shutil.copytree(LANES, tmp_path / "reports")

    done = summary_job(tmp_path, "cpu,cuda,rocm")

    assert done.returncode == 0, done.stderr
    assert "test_kernels.py::test_kv4" in done.stdout
    assert "test_kernels.py::test_kv4" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "<html" in (tmp_path / "matrix.html").read_text(encoding="utf-8")


def test_the_summary_job_is_red_for_a_runner_that_never_came(tmp_path: Path) -> None:
    """The lane is missing by name; page and summary are there all the same."""
    shutil.copytree(LANES, tmp_path / "reports")

    done = summary_job(tmp_path, "cpu,cuda,rocm,xpu")

    assert done.returncode == 1
    assert "xpu: expected, and sent nothing" in done.stdout
    assert "xpu" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert (tmp_path / "matrix.html").exists()


def test_the_summary_job_is_red_for_what_was_lost(tmp_path: Path) -> None:
    """With the reports of the last run beside it, a test that nobody executes any more is named."""
    shutil.copytree(LANES, tmp_path / "baseline")
    shutil.copytree(LANES / "lane-cpu", tmp_path / "reports" / "lane-cpu")

    done = summary_job(tmp_path, "cpu")

    assert done.returncode == 1
    assert "test_kernels.py::test_on_rocm" in done.stdout.partition("Lost")[2]


def test_the_summary_job_is_red_without_any_report(tmp_path: Path) -> None:
    """No runner came at all."""
    assert summary_job(tmp_path, "cpu").returncode != 0


def test_the_snippet_for_other_projects_merges_in_the_same_way() -> None:
    """What people copy is what is tested here."""
    (snippet,) = blocks("docs/ci.md", "yaml")

    assert merge_script(snippet) == SUMMARY
    pins = set(re.findall(r"uses: (.+)", read(".github/workflows/hardware.yml")))
    assert set(re.findall(r"uses: (.+)", snippet)) <= pins
