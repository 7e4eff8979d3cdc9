"""Rows of others: whatever their code does is an error that names them, and torch stays out of this process."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from pytest_sglhw.errors import RegistryError
from pytest_sglhw.registry.capabilities import Capability, Ladder, Signal
from pytest_sglhw.registry.loading import built_in, load
from pytest_sglhw.registry.no_torch import TorchRefusedError, without_torch
from pytest_sglhw.registry.platforms import ArchRule, Platform
from pytest_sglhw.registry.shapes import _SHAPES, misfits
from pytest_sglhw.sharing import SharedFolder

_NUMBERS = itertools.count()
WHO = "entry point 'mine' of my-rows"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution whose entry point is ``register`` of a module with ``code``; give the module's name."""

    def install(code):
        module = f"my_rows_{next(_NUMBERS)}"
        info = tmp_path / "my_rows-1.0.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: my-rows\nVersion: 1.0\n")
        info.joinpath("entry_points.txt").write_text(f"[sglhw]\nmine = {module}:register\n")
        tmp_path.joinpath(f"{module}.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)
        return module

    return install


@pytest.fixture
def torch(tmp_path, monkeypatch):
    """A torch that this process has not loaded, first on the path."""
    tmp_path.joinpath("torch.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    yield
    sys.modules.pop("torch", None)


#: What the module of an entry point does -> what the error says of it.
BAD = {
    "exits": ("import sys; sys.exit(0)", "failed: SystemExit: 0"),
    "exits in the call": ("def register(registry): raise SystemExit", "failed: SystemExit: "),
    "skips": ("import pytest; pytest.skip('no', allow_module_level=True)", "failed: Skipped: no"),
    "raises": ("raise RuntimeError('x')", "failed: RuntimeError: x"),
    "interrupts": ("raise KeyboardInterrupt", "failed: KeyboardInterrupt"),
    "raises what can't be told": (
        "class E(Exception):\n    def __str__(self): raise SystemExit\nraise E",
        "failed: E (its message raised SystemExit)",
    ),
    "has no such function": ("", "failed: AttributeError: module '{module}' has no attribute 'register'"),
    "is a coroutine function": (
        "async def register(registry): pass",
        "failed: TypeError: it is a coroutine function, which nobody awaits. Valid: a plain function.",
    ),
    "is no function": ("register = 5", "failed: TypeError: 'int' object is not callable"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_entry_point_that_fails_is_named(install, case):
    """Also where it would end the process without a word."""
    code, words = BAD[case]
    module = install(code)
    with pytest.raises(RegistryError) as error:
        load()

    assert str(error.value) == f"{WHO} ({module}:register) {words.format(module=module)}"


#: What ends or holds the process that an entry point is called in -> what the error says of it.
ENDS = {
    "hangs": ("import time; time.sleep(600)", "hung: did not end within 2 s (at File "),
    "hangs in C": ("import ctypes; ctypes.PyDLL(None).sleep(600)", "hung: did not end within 2 s (at File "),
    "hangs in the call": ("def register(registry): open('/dev/zero').read()", "hung: did not end within 2 s"),
    "aborts": ("import os; os.abort()", "crashed: was killed by SIGABRT (at File "),
    "exits at once": ("import os; os._exit(0)", "crashed: exited with status 0. "),
}


@pytest.mark.parametrize("case", ENDS)
def test_an_entry_point_that_does_not_come_back_costs_its_deadline(install, case):
    """Neither the run nor the program that asks hangs or ends."""
    code, words = ENDS[case]
    module = install(code)
    with pytest.raises(RegistryError) as error:
        load(timeout=2 if words.startswith("hung") else 20)

    assert str(error.value).startswith(f"{WHO} ({module}:register) {words}"), str(error.value)
    assert str(error.value).endswith(
        ". Every pytest run registers rows: move the function to a module that imports no kernels, e.g."
        " my_kernels_sglhw:register; a row names modules and checks as text."
    )


ROWS = """
import sys
print("a word", flush=True)
def register(registry):
    registry.add_platform({"name": "mine", "device_type": "mine", "device_control_env_vars": (("A", "B"), ["C"]),
                           "archs": ({"source": "name", "pattern": "x", "arch": "x"},)})
    registry.add_capability({"name": "own", "summary": "s", "platforms": {"mine": ""}, "archs": {"mine": ["x"]},
                             "probe": {"module": "own", "names": ["a"]},
                             "signals": [{"exception": "ValueError", "match": "no"}]})
    registry.add_provider("theirs", "own:kernels")
"""


def test_what_an_entry_point_adds_is_there_and_its_module_is_not(install, capfd):
    """It is imported in another process: nothing of it happens here, not even its output."""
    module = install(ROWS)
    registry = load()

    platform, capability = registry.platforms["mine"], registry.capabilities["own"]
    assert platform.device_control_env_vars == (("A", "B"), ("C",))
    assert (platform.archs[0].arch, platform.origin, capability.origin) == ("x", WHO, WHO)
    assert capability.archs == {"mine": ("x",)}
    assert (capability.probe.names, capability.probe.ops, capability.signals[0].match) == (("a",), (), "no")
    assert registry.providers["theirs"] == ("own:kernels", WHO)
    assert module not in sys.modules
    assert capfd.readouterr() == ("", "")


def test_what_is_no_plain_data_is_refused(install):
    """It could not come from the other process as it is."""
    row = "{'name': 'own', 'summary': 's', 'platforms': types.MappingProxyType({'cuda': ''})}"
    module = install(f"import types\ndef register(registry): registry.add_capability({row})")
    with pytest.raises(RegistryError) as error:
        load()

    assert str(error.value) == (
        f"{WHO} ({module}:register) adds what is no plain data: TypeError: Object of type mappingproxy is not JSON"
        " serializable"
    )


def test_an_entry_point_is_called_once_in_a_process(install, tmp_path):
    """However often the registry is asked for: a conftest may ask before the run does."""
    install(f"open({str(tmp_path / 'calls')!r}, 'a').write('x')\ndef register(registry): pass")
    load()
    load()

    assert (tmp_path / "calls").read_text() == "x"


COUNTS = "import os\nopen(os.environ['CALLS'], 'a').write('x')\n"

#: What becomes of the shared rows -> how often the entry point is called by two processes.
SHARED = {
    "left as they are": (lambda file: None, "x"),
    "gone": (lambda file: file.unlink(), "xx"),
    "cut off": (lambda file: file.write_bytes(file.read_bytes()[:-9]), "xx"),
    "of another kind": (lambda file: file.write_text("[]"), "xx"),
    "of another entry point": (lambda file: file.write_text(file.read_text().replace("my-rows", "rows")), "xx"),
}


@pytest.mark.parametrize("case", SHARED)
def test_processes_that_share_a_folder_call_an_entry_point_once(install, tmp_path, monkeypatch, case):
    """The second reads what the first was told; whatever it can't believe it asks for."""
    damage, calls = SHARED[case]
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    install(COUNTS + ROWS)
    shared = SharedFolder(str(tmp_path))
    first = load(shared=shared)
    damage(shared.file("rows"))
    monkeypatch.setattr("pytest_sglhw.registry.foreign._KNOWN", {})
    second = load(shared=shared)

    assert (second.platforms, second.capabilities, second.providers) == (
        first.platforms,
        first.capabilities,
        first.providers,
    )
    assert (tmp_path / "calls").read_text() == calls


def test_without_an_entry_point_nothing_is_imported_for_it(tmp_path):
    """Installations without one pay nothing."""
    code = (
        "import sys; from pytest_sglhw.registry.loading import load; load()\n"
        "sys.exit(any('asking' in name or name == 'subprocess' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


IMPORTS = {
    "at import": "import torch\ndef register(registry): pass",
    "a submodule": "import torch.cuda\ndef register(registry): pass",
    "in the call": "def register(registry): import torch",
    "by name": "import importlib\ndef register(registry): importlib.import_module('torch')",
    "passing over every error": "try: import torch\nexcept Exception: pass\ndef register(registry): pass",
    "passing over everything": "try: import torch\nexcept: pass\ndef register(registry): pass",
    "raising something else": "try: import torch\nexcept BaseException: raise ValueError\ndef register(registry): pass",
    "before it exits": "try: import torch\nfinally: raise SystemExit(0)",
}


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("case", IMPORTS)
def test_an_entry_point_may_not_import_torch(install, tmp_path, case):
    """It is refused before it is loaded, with the place and what to do."""
    module = install(IMPORTS[case])
    line = 2 if "\ndef register(registry): importlib" in IMPORTS[case] else 1
    with pytest.raises(RegistryError) as error:
        load()

    assert "torch" not in sys.modules
    assert str(error.value) == (
        f"{WHO} ({module}:register) imports torch ({tmp_path / module}.py, line {line}). Every pytest run registers"
        " rows, and torch takes seconds: neither this module nor a package it is in may import torch. Move the"
        " function to a module that imports no kernels, e.g. my_kernels_sglhw:register; a row names modules and checks"
        " as text, and the probe imports them in a child process."
    )


LOOKS = "import importlib.util\nassert importlib.util.find_spec('torch').origin.endswith('torch.py')"
THREAD = """
import sys, threading
thread = threading.Thread(target=__import__, args=['torch'])
thread.start()
thread.join()
assert 'torch' in sys.modules
"""


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("code", [LOOKS, THREAD], ids=["looks for it", "another thread"])
def test_what_does_not_import_torch_itself_is_left_alone(install, code):
    """To ask where torch is loads nothing."""
    install(f"{code}\ndef register(registry): pass")

    assert load().platforms


def test_where_there_is_no_torch_its_import_fails_as_ever(install, monkeypatch):
    """``except ImportError`` has its way."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "path", [])
    with without_torch(), pytest.raises(ModuleNotFoundError):
        __import__("torch")


@pytest.mark.usefixtures("torch")
def test_torch_may_be_imported_again_afterwards():
    """The refusal ends with the registration."""
    with pytest.raises(TorchRefusedError), without_torch():
        __import__("torch")
    __import__("torch")

    assert "torch" in sys.modules


def test_the_commands_say_it_as_wrong_usage(install, tmp_path):
    """Exit status 2 and one line, where ``sys.exit(0)`` would have been taken for a healthy machine."""
    module = install("import sys; sys.exit(0)")
    code = "import sys; sys.path.insert(0, sys.argv[1]); from pytest_sglhw.cli import main; sys.exit(main(['doctor']))"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"sglhw doctor: {WHO} ({module}:register) failed: SystemExit: 0\n"


#: What a conftest's hook does -> what the error says of it.
HOOKS = {
    "raises": ("raise RuntimeError('x')", "failed: RuntimeError: x"),
    "exits": ("raise SystemExit(0)", "failed: SystemExit: 0"),
    "no row": (
        "registry.add_capability(5)",
        "invalid row 5 from {who}. Valid: a mapping of column to value.",
    ),
    "no platform": (
        "registry.add_platform(None)",
        "invalid row None from {who}. Valid: a mapping of column to value.",
    ),
    "no name": ("registry.add_provider(5, 'a')", "provider 5 from {who} is not a valid name. Valid: [[]a-z]*"),
    "no target": (
        "registry.add_provider('mine', 5)",
        "provider 'mine' from {who} has the target 5. Valid: a module path or module:attribute, as text.",
    ),
}


@pytest.mark.parametrize("case", HOOKS)
def test_a_hook_that_fails_is_wrong_usage(pytester, case):
    """Not an internal error of pytest."""
    code, words = HOOKS[case]
    conftest = pytester.makeconftest(f"def pytest_sglhw_register(registry): {code}")
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess("-p", "sglhw")

    who = f"hook pytest_sglhw_register of {conftest}"
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *{words.format(who=who)}"])


#: A row whose columns hold something else -> what the error says of it.
SHAPES = {
    "no platforms": ({"platforms": None}, "platforms is None. Valid: a mapping of text to text."),
    "a set of archs": (
        {"archs": {"cuda": {"sm90"}}},
        "archs is {'cuda': {'sm90'}}. Valid: a mapping of text to sequences of texts.",
    ),
    "a text for texts": (
        {"probe": {"distributions": "mine"}},
        "probe: distributions is 'mine'. Valid: a sequence of texts.",
    ),
    "a module that is none": ({"probe": {"module": 5}}, "probe: module is 5. Valid: a text or None."),
    "a pattern that is none": (
        {"signals": [{"exception": "E", "match": None}]},
        "signals: match is None. Valid: a text.",
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_a_row_that_holds_something_else_is_refused(case):
    """Where it is added and not where it is first used, which may be in the middle of a run."""
    columns, words = SHAPES[case]
    registry = built_in()
    registry.origin = "somebody"
    with pytest.raises(RegistryError) as error:
        registry.add_capability({"name": "own", "summary": "s", "platforms": {"cuda": ""}} | columns)

    assert str(error.value) == f"invalid row 'own' from somebody: {words}"


def test_a_platform_that_holds_something_else_is_refused():
    """Rows of archs are looked at as well."""
    registry = built_in()
    registry.origin = "somebody"
    with pytest.raises(RegistryError, match=r"drivers is \(\('/sys/x',\),\). Valid: a sequence of pairs of texts\."):
        registry.add_platform({"name": "own", "device_type": "own", "drivers": (("/sys/x",),)})
    rule = {"source": "name", "pattern": None, "arch": "x"}
    with pytest.raises(RegistryError, match=r"archs: pattern is None\. Valid: a text\."):
        registry.add_platform({"name": "own", "device_type": "own", "archs": (rule,)})


def test_the_shape_of_every_column_is_known():
    """The built-in rows fit, and no annotation is passed over."""
    registry = built_in()
    rows = [*registry.platforms.values(), *registry.capabilities.values()]

    assert [misfit for row in rows for misfit in misfits(row)] == []
    kinds = {
        kind for record in (Platform, Capability, Ladder, Signal, ArchRule) for kind in record.__annotations__.values()
    }
    assert kinds - set(_SHAPES) == {"Ladder | None", "tuple[Signal, ...]", "tuple[ArchRule, ...]"}


def test_rubbish_among_the_entry_points_of_others_is_named(tmp_path, monkeypatch):
    """``importlib.metadata`` raises whatever its parser does."""
    for name, text in (("good", "[sglhw]\n"), ("bad", "[sglhw]\nno pair\n")):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        info.joinpath("entry_points.txt").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RegistryError) as error:
        load()

    assert str(error.value).startswith(f"the entry points of bad in {tmp_path} can't be read: ")


@pytest.mark.parametrize("value", [":::", "a b:c"])
def test_an_entry_point_that_names_no_function_is_refused(tmp_path, monkeypatch, value):
    """With its value; the distribution may have no name."""
    info = tmp_path / "my_rows-1.0.dist-info"
    info.mkdir()
    info.joinpath("entry_points.txt").write_text(f"[sglhw]\nmine = {value}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RegistryError) as error:
        load()

    assert str(error.value) == (
        f"entry point 'mine' of an unknown distribution ({value}) names no function. Valid: module:function."
    )
