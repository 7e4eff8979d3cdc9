"""Whose a mark name is."""

from __future__ import annotations

import pytest

from pytest_sglhw.gates import registered_lines
from pytest_sglhw.gates.ownership import near_miss

OURS = frozenset(registered_lines())

REGISTERED = "[pytest]\nmarkers =\n    cpu_only: runs on plain machines\n    requires_kvcachio: ours, really\n"
PROJECT = """
import pytest
{extra}
@pytest.mark.cpu_only("any", argument=1)
def test_a(): pass
@pytest.mark.requires_kvcachio
def test_b(): pass
"""


def test_a_registered_name_is_the_projects(run, pytester):
    """A project's own ``cpu_only``, or a near miss that it registered, means nothing to us."""
    pytester.makeini(REGISTERED)
    run(PROJECT.format(extra="")).assert_outcomes(passed=2)


def test_a_near_miss_that_the_project_registered_is_told_both_ways_out(run, pytester):
    """Where the run asks for our marks as well, registering it once more is no advice."""
    pytester.makeini(REGISTERED)
    result = run("import pytest\n@pytest.mark.requires_kvcachio\ndef test_b(): pass", "--sglhw-vacuous", "off")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    text = (
        "requires_kvcachio is not a mark of pytest-sglhw. Did you mean 'requires_kvcacheio'? The project registers "
        "'requires_kvcachio' in 'markers', but this run asks for our marks (by -p sglhw, a setting or an import of "
        "pytest_sglhw): spell it as ours, or give a mark of your own another name."
    )
    assert f"test_it.py::test_b: {text}" in result.outlines


ADDED_LATE = """
import pytest
hpu = pytest.mark.hpu_only

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(hpu)
"""


def test_a_name_that_is_added_late_is_ours_in_the_module_that_imports_us(run, pytester):
    """Though the module before it, where the same mark is the project's, has just been looked at."""
    pytester.makeini("[pytest]\nmarkers =\n    hpu_only: heavy processing\n")
    files = {"test_a": "def test_it(): pass", "test_b": "import pytest_sglhw\ndef test_it(): pass"}
    run("def test_it(): pass", conftest=ADDED_LATE, **files).assert_outcomes(passed=2, skipped=1)


@pytest.mark.parametrize("where", ["command line", "addopts", "setting", "ini", "conftest", "module"])
def test_the_project_can_opt_in(run, pytester, where):
    """``-p sglhw``, any setting of ours or an import of the package makes the names ours."""
    ini = {"addopts": "addopts = -p sglhw\n", "ini": "sglhw_probe = auto\n"}.get(where, "")
    pytester.makeini(REGISTERED + ini)
    arguments = {"command line": ["-p", "sglhw"], "setting": ["--sglhw-probe", "auto"]}.get(where, [])
    files = {"conftest": "import pytest_sglhw"} if where == "conftest" else {}
    result = run(
        PROJECT.format(extra="from pytest_sglhw import sglhw" if where == "module" else ""), *arguments, **files
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
    text = "'argument' is not a keyword of cpu_only. Valid: otherwise, raises, match, reason."
    assert f"test_it.py::test_a: cpu_only('any', argument=1): {text}" in result.outlines


def test_an_import_in_a_module_opts_that_module_in(run, pytester):
    """Another module keeps the project's name."""
    pytester.makeini(REGISTERED)
    other = "import pytest\nfrom pytest_sglhw import gpu_only\n@pytest.mark.cpu_only\ndef test_c(): pass"
    run(PROJECT.format(extra=""), fake=None, test_other=other).assert_outcomes(passed=3)


def test_a_conftest_opts_in_what_lies_below_it(run, pytester):
    """A conftest of one folder does not speak for the rest of the project."""
    pytester.makeini(REGISTERED)
    below = pytester.mkdir("below")
    (below / "conftest.py").write_text("import pytest_sglhw\n")
    (below / "test_below.py").write_text("import pytest\n@pytest.mark.cpu_only(nonsense=1)\ndef test_c(): pass\n")
    result = run(PROJECT.format(extra=""), "--continue-on-collection-errors")
    result.assert_outcomes(passed=2, errors=1)


def test_a_name_that_a_plugin_registers_later_is_respected(run):
    """``addinivalue_line`` of a conftest counts as the ini value does."""
    conftest = "def pytest_configure(config): config.addinivalue_line('markers', 'cpu_only: ours')"
    source = "import pytest\n@pytest.mark.cpu_only(x=1)\ndef test_a(): pass"
    run(source, conftest=conftest).assert_outcomes(passed=1)


def test_unregistered_names_of_other_shapes_are_left_alone(run):
    """A mark that merely looks like ours is pytest's to warn about."""
    source = "import pytest\n@pytest.mark.requires_docker\n@pytest.mark.tpu_only\ndef test_a(): pass"
    run(source).assert_outcomes(passed=1, warnings=2)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("requires_kvcachio", "requires_kvcacheio"),
        ("requires_kvcache", "requires_kvcacheio"),
        ("require_kvcacheio", "requires_kvcacheio"),
        ("requires_kv", "requires_kv4"),
        ("requires_dpc", "requires_dcp"),
        ("requires_cuda_graphs", "requires_cuda_graph"),
        ("Requires_KV4", "requires_kv4"),
        ("cdua_only", "cuda_only"),
        ("cuda_onyl", "cuda_only"),
        ("cudaonly", "cuda_only"),
        ("sgl_hw", "sglhw"),
        ("known_gaps", "known_gap"),
    ],
)
def test_near_misses(name, nearest):
    """Slips of the pen in any part of a name."""
    assert near_miss(name, OURS) == nearest


@pytest.mark.parametrize(
    "name",
    [
        "requires_gpu",
        "requires_cuda",
        "requires_docker",
        "requires_fp16",
        "requires_network",
        "requires_nccl",
        "requires_torch",
        "tpu_only",
        "read_only",
        "linux_only",
        "numa_only",
        "gpu",
        "cuda",
        "slow",
        "sglang",
        "known_bug",
        "gpu_test",
    ],
)
def test_names_that_are_no_near_misses(name):
    """Names that a project may well have of its own."""
    assert near_miss(name, OURS) is None


def test_a_capability_that_a_hook_adds_has_its_mark(run):
    """One row gives a downstream capability its mark, also under strict markers, and its verdict."""
    conftest = """
        def pytest_sglhw_register(registry):
            registry.add_capability({"name": "flux", "summary": "flux", "platforms": {"rocm": ""}})
    """
    source = "from pytest_sglhw import requires_flux\n@requires_flux\ndef test_a(): pass"
    run(source, "--strict-markers", fake="rocm", conftest=conftest).assert_outcomes(passed=1)
    run(source, "--strict-markers", fake="cuda", conftest=conftest).assert_outcomes(skipped=1)
