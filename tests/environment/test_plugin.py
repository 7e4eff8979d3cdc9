"""What a run shows and offers of its machine: header, fixtures, predicates, one probe for all workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hostile import TENSORS, namespace, plant, torch_package

PREDICATES = """
import pytest, pytest_sglhw
from pytest_sglhw import is_cpu, is_cuda, is_gpu, is_rocm

BRANCH = "rocm" if is_rocm else "other"

@pytest.mark.skipif("is_rocm", reason="string")
def test_name(): raise AssertionError

@pytest.mark.skipif("sglhw.is_rocm()", reason="string")
def test_call(): raise AssertionError

def test_values():
    assert is_rocm and is_rocm() and is_gpu and not is_cuda and not is_cuda() and not is_cpu
    assert BRANCH == "rocm"

def test_operators():
    assert is_rocm == True and is_rocm == is_rocm() and not is_rocm == False
    assert is_rocm != is_cuda and is_cuda in (False,)
    assert (is_cuda | is_rocm) is True and (is_gpu & is_cuda) is False
    assert (True & is_rocm) is True and (False | is_cpu) is False
    assert is_rocm != 1.5 and is_rocm != "rocm" and len({is_rocm: 1, is_gpu: 2}) == 2

def test_fixtures(sglhw_environment, sglhw_device):
    assert (sglhw_environment.platform, sglhw_device) == ("rocm", "cuda:0")
"""

#: A child that notes each probe in a file: one line a process.
COUNTED = """
import os
with open(os.environ["PROBES"], "a") as file: file.write("probe\\n")
"""


def test_predicates_answer_alike_with_and_without_a_call(pytester):
    """In conditions, at module level and in skipif strings."""
    pytester.makepyfile(PREDICATES)
    result = pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-fake", "rocm:gfx942*2")

    result.assert_outcomes(passed=3, skipped=2)


#: How the first device is missing -> what the fixture says of it.
MISSING = {
    "broken": (
        namespace("cuda") + "def zeros(*a, **k): raise RuntimeError('dead')\n",
        "no usable device on platform cuda: allocation on cuda:0: RuntimeError: dead",
    ),
    "unknown": (
        "raise ImportError('x')",
        "no usable device on platform unknown: import of torch raised ImportError: x",
    ),
}


@pytest.mark.parametrize("how", MISSING)
def test_a_device_that_should_work_is_not_skipped_in_silence(pytester, monkeypatch, how):
    """As with a mark: a skip that is loud."""
    code, text = MISSING[how]
    plant(pytester.path / "site", torch_package(code, cuda="13.0"))
    monkeypatch.setenv("PYTHONPATH", str(pytester.path / "site"), prepend=os.pathsep)
    pytester.makepyfile("def test(sglhw_device): raise AssertionError")
    result = pytester.runpytest_subprocess("-p", "sglhw", "-rs")

    result.assert_outcomes(skipped=1, warnings=1)
    result.stdout.fnmatch_lines([f"*PytestSglhwWarning: {text}", f"SKIPPED * {text}"])


#: Asks before the run is configured: while the conftest is imported, and in a ``pytest_configure`` before ours.
EARLY = """
from pytest_sglhw import is_rocm
collect_ignore = [] if is_rocm else ["test_rocm.py"]
def pytest_configure(config): print("configure", bool(is_rocm))
def pytest_sessionstart(session): print("session", bool(is_rocm))
"""


@pytest.mark.parametrize(
    ("arguments", "answer"), [(["--sglhw-fake", "rocm:gfx942"], True), (["--sglhw-fake=cuda"], False)]
)
@pytest.mark.parametrize("workers", [[], ["-n1"]])
def test_predicates_of_a_conftest_see_the_machine_of_the_run(pytester, arguments, answer, workers):
    """While it is imported and when it is configured, in workers too."""
    if workers:
        pytest.importorskip("xdist")
        workers = ["-p", "xdist", *workers]
    pytester.makeconftest(EARLY)
    pytester.makepyfile(test_rocm="def test_it(): pass")
    result = pytester.runpytest_subprocess("-s", "-p", "sglhw", *workers, *arguments)

    result.assert_outcomes(passed=int(answer))
    result.stdout.fnmatch_lines([f"configure {answer}", f"session {answer}"])


def test_predicates_of_a_conftest_see_the_options_of_the_ini_file(pytester):
    """``addopts`` and ini values are options like the others."""
    pytester.makeini("[pytest]\naddopts = -p sglhw --sglhw-fake rocm\nsglhw_probe_timeout = 0")
    pytester.makeconftest("import pytest_sglhw; bool(pytest_sglhw.is_rocm)")
    result = pytester.runpytest_subprocess()

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*'0' is not a valid probe-timeout*"])


def test_what_a_conftest_had_probed_is_not_probed_again(pytester, monkeypatch):
    """The run goes on with the record that the import of the conftest began."""
    monkeypatch.setenv("PROBES", str(pytester.path / "probes"))
    plant_torch(pytester, monkeypatch, COUNTED)
    pytester.makeconftest("from pytest_sglhw import is_gpu; bool(is_gpu)")
    pytester.makepyfile("import pytest\n@pytest.mark.cuda_only\ndef test_it(): raise AssertionError")
    result = pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-probe-timeout", "30")

    result.assert_outcomes(skipped=1)
    assert (pytester.path / "probes").read_text().splitlines() == ["probe"]


def test_a_run_that_ends_while_conftests_are_imported_leaves_no_trace(pytester):
    """A run in the same process after it answers for itself."""
    pytester.makeconftest("import pytest_sglhw; assert pytest_sglhw.is_rocm; raise RuntimeError('conftest')")
    assert pytester.runpytest_inprocess("-p", "sglhw", "--sglhw-fake", "rocm").ret == pytest.ExitCode.USAGE_ERROR
    pytester.makeconftest("import pytest_sglhw; assert pytest_sglhw.is_cuda")
    pytester.makepyfile("def test_it(): pass")

    pytester.runpytest_inprocess("-p", "sglhw", "--sglhw-fake", "cuda").assert_outcomes(passed=1)


def test_a_fake_that_a_conftest_adds_is_not_known_while_it_is_imported(pytester):
    """An error that says so, and no wrong answer."""
    pytester.makeconftest(
        "import pytest_sglhw\n"
        "def pytest_sglhw_register(registry): registry.add_platform({'name': 'mlu', 'device_type': 'mlu', 'api': 'mlu',"
        " 'summary': ''})\n"
        "bool(pytest_sglhw.is_gpu)"
    )
    result = pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-fake", "mlu")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*'mlu' is not a machine: no platform 'mlu'*add the row by an entry point.*"])


def test_the_mark_sglhw_answers_the_predicates_too(pytester):
    """A module that imports the mark shadows the name that conditions in strings use; both meanings stay."""
    pytester.makepyfile(
        """
        import pytest
        from pytest_sglhw import sglhw

        @sglhw(platforms="rocm")
        @pytest.mark.skipif("not sglhw.is_rocm", reason="name")
        @pytest.mark.skipif("not sglhw.is_rocm()", reason="call")
        def test_it(): assert sglhw.is_rocm and not sglhw.is_cuda
        """
    )
    result = pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-fake", "rocm")

    result.assert_outcomes(passed=1)


def test_a_fake_is_shown_at_the_top_and_at_the_end(pytester):
    """Nobody can take a faked run for a real one."""
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-fake", "rocm:gfx942*2")

    result.stdout.fnmatch_lines(
        ["sglhw: FAKE rocm:gfx942[*]2: rocm, 2 devices", "sglhw: the machine of this run was a fake: rocm:gfx942[*]2"]
    )


def test_the_header_needs_no_probe(pytester, monkeypatch):
    """Static facts alone: a torch that would hang is not imported for it."""
    plant_torch(pytester, monkeypatch, "import time; time.sleep(600)")
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess("-p", "sglhw", timeout=60)

    result.stdout.fnmatch_lines(["sglhw: *torch 2.11.0 (built for cuda 13.0)*"])


MINE = """
def register(registry):
    registry.add_platform({"name": "mine", "device_type": "mine", "nodes": ("/dev/null", "/dev/zero")})

def pytest_sglhw_register(registry):
    register(registry)
"""


def test_the_header_shows_what_a_platform_of_a_conftest_looks_for(pytester):
    """It is a platform like any other."""
    pytester.makeconftest(MINE)
    result = pytester.runpytest_subprocess("-p", "sglhw")

    result.stdout.fnmatch_lines(["sglhw: *2 mine nodes*"])


def install_rows(pytester, code):
    """Install a distribution whose entry point is ``register`` of a module with ``code``."""
    info = pytester.mkdir("my_rows-1.0.dist-info")
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: my-rows\nVersion: 1.0\n")
    info.joinpath("entry_points.txt").write_text("[sglhw]\nmine = my_rows:register\n")
    pytester.makepyfile(my_rows=code)


def test_the_header_shows_what_a_platform_of_an_entry_point_looks_for(pytester):
    """It is a platform like any other."""
    install_rows(pytester, MINE)
    result = pytester.runpytest_subprocess("-p", "sglhw")

    result.stdout.fnmatch_lines(["sglhw: *2 mine nodes*"])


@pytest.mark.usefixtures("every_plugin")
def test_the_header_needs_no_more_than_static_facts(pytester):
    """What a run of every project loads: of the registry and the environment no more than what the line shows."""
    pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure():
            print("\\nloaded:", *sorted(n for n in sys.modules if n.startswith("pytest_sglhw.")))
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:asyncio")
    loaded = ("environment", "environment.static", "gates", "gates.hooks", "hookspecs", "plugin", "record", "registry",
              "registry.installed", "registry.platforms", "settings")  # fmt: skip

    assert f"loaded: {' '.join(f'pytest_sglhw.{name}' for name in loaded)}" in result.outlines


def test_eight_workers_start_one_probe(pytester, monkeypatch):
    """The first that needs the machine asks it under a lock, the others read."""
    pytest.importorskip("xdist")
    monkeypatch.setenv("PROBES", str(pytester.path / "probes"))
    plant_torch(pytester, monkeypatch, COUNTED)
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.cuda_only
        @pytest.mark.parametrize("number", range(16))
        def test_it(number): raise AssertionError
        """
    )
    result = pytester.runpytest_subprocess("-p", "sglhw", "-p", "xdist", "-n", "8", timeout=120)

    result.assert_outcomes(skipped=16)
    assert (pytester.path / "probes").read_text().splitlines() == ["probe"]


@pytest.mark.parametrize("options", [(), ("-q",)], ids=["with the header", "without"])
def test_eight_workers_call_an_entry_point_once(pytester, monkeypatch, options):
    """The first that needs the rows asks under a lock, the others and the children of single tests read."""
    pytest.importorskip("xdist")
    monkeypatch.setenv("CALLS", str(pytester.path / "calls"))
    install_rows(pytester, "import os\nopen(os.environ['CALLS'], 'a').write('x')\n" + MINE)
    pytester.makepyfile(
        """
        import pytest
        from pytest_sglhw import isolated_device

        @pytest.mark.mine_only
        @pytest.mark.parametrize("number", range(16))
        def test_it(number): raise AssertionError

        @isolated_device
        @pytest.mark.cpu_only
        def test_in_a_child(): pass
        """
    )
    result = pytester.runpytest_subprocess("-p", "sglhw", "-p", "xdist", "-n", "8", *options, timeout=120)

    result.assert_outcomes(skipped=16, passed=1)
    assert (pytester.path / "calls").read_text() == "x"


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="variables are UTF-8 there")
def test_what_is_no_text_reaches_the_report_of_workers(pytester, monkeypatch):
    """A mask that no encoding knows is written with escapes, everywhere alike."""
    pytest.importorskip("xdist")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,\udcff")
    plant_torch(pytester, monkeypatch, namespace("cuda", name="NVIDIA H100") + TENSORS)
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.cuda_only
        def test_it(sglhw_environment): assert sglhw_environment.masks["CUDA_VISIBLE_DEVICES"] == "0,\\\\udcff"
        @pytest.mark.rocm_only
        def test_other(): pass
        """
    )
    options = ["--junitxml=junit.xml", "--sglhw-report=report.jsonl", "--sglhw-probe-timeout=30"]
    result = pytester.runpytest_subprocess("-p", "sglhw", "-p", "xdist", "-n2", *options)

    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.no_fnmatch_line("*DumpError*")
    result.stderr.no_fnmatch_line("*DumpError*")
    written = pytester.path.joinpath("report.jsonl").read_text(encoding="utf-8")
    assert '"CUDA_VISIBLE_DEVICES":"0,\\\\udcff"' in written


def test_a_record_of_what_is_no_text_is_read_with_escapes(pytester):
    """As if it had been probed here."""
    data = {"schema": "1.0", "platform": "cuda", "device_type": "cuda", "capabilities": {}}
    data["devices"] = [{"index": 0, "name": "H\udcff"}]
    pytester.path.joinpath("machine.json").write_text(json.dumps(data))
    pytester.makepyfile(
        r"""
        def test_it(sglhw_environment): assert sglhw_environment.devices[0].name == "H\\udcff"
        """
    )
    result = pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-fake", "machine.json")

    result.assert_outcomes(passed=1)


def plant_torch(pytester, monkeypatch, code):
    """Put a CUDA build of torch that runs ``code`` before the real one."""
    folder = pytester.mkdir("planted")
    folder.joinpath("torch").mkdir()
    folder.joinpath("torch/version.py").write_text("__version__ = '2.11.0'\ncuda = '13.0'\nhip = None\n")
    folder.joinpath("torch/__init__.py").write_text(f"from . import version\n__version__ = '2.11.0'\n{code}")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")


def test_the_package_imports_neither_torch_nor_pytest():
    """A launcher that asks for its guard pays for nothing else."""
    code = (
        "import sys, pytest_sglhw; print([n for n in ('torch', 'pytest', 'numpy', 'hypothesis') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("text", ["0", "soon", "-1", "nan", "1e9"])
def test_a_timeout_that_is_no_time_is_wrong_usage(text):
    """Exit status 2, with what is valid."""
    command = [sys.executable, "-m", "pytest_sglhw", "doctor", f"--probe-timeout={text}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert f"{text!r} is not a valid timeout. Valid: a number of seconds from 0.001 to 86400 (a day)." in done.stderr


LOADED_BY = {"-p": ["-p", "early"], "-p before ours": ["-p", "early", "-p", "sglhw"]}


@pytest.mark.parametrize("how", [*LOADED_BY, "variable"])
def test_a_plugin_that_asks_before_a_fake_is_read_is_refused(pytester, monkeypatch, how):
    """It would be told of the live machine. Without a fake that is the machine of the run."""
    pytester.makepyfile(early="import pytest_sglhw; bool(pytest_sglhw.is_rocm)", test_it="def test_it(): pass")
    monkeypatch.syspath_prepend(pytester.path)
    monkeypatch.setenv("PYTHONPATH", str(pytester.path), prepend=":")
    if how == "variable":
        monkeypatch.setenv("PYTEST_PLUGINS", "early")
    arguments = LOADED_BY.get(how, ["-p", "sglhw"])

    refused = pytester.runpytest_subprocess(*arguments, "--sglhw-fake", "rocm:gfx942")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    words = (
        "ERROR: a plugin that pytest imports before it has read --sglhw-fake asks for the machine. Let it ask later:"
        " in a hook such as pytest_configure, in a conftest.py or in a test module."
    )
    assert words in refused.stderr.str().splitlines()
    pytester.runpytest_subprocess(*arguments).assert_outcomes(passed=1)
