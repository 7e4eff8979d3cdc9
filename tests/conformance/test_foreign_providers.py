"""A provider is foreign code: whatever it raises or says of itself is one failed item of its own, and a clear word."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw.conformance.devices import device_problem  # noqa: E402
from pytest_sglhw.conformance.providers import FoundProvider, find_all  # noqa: E402

SMALL = ("--profile", "quick", "--page-size", "3", "--dtype", "bfloat16", "-p", "no:cacheprovider")


@pytest.fixture
def find(tmp_path, monkeypatch):
    """Find a provider that is a module of this text."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        return find_all([name])[0]

    return make


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("leaves", "import sys\nsys.exit(5)", "is broken: SystemExit: 5"),
        ("skips", "import pytest\npytest.skip('no', allow_module_level=True)", "is broken: Skipped: no"),
        ("stops", "import pytest\npytest.exit('no', returncode=0)", "is broken: Exit: no"),
        ("gpu", "sglhw_device = 'gpu'", "is broken: sglhw_device = 'gpu': torch knows no such device. Valid on this "),
        ("number", "sglhw_device = 7", "is broken: sglhw_device = '7': a int is not a torch device string. Valid on "),
        ("meta", "sglhw_device = 'meta'", "is broken: sglhw_device = 'meta': torch sees no meta device here. Valid "),
        ("one", "sglhw_kernels = 'copy'", "is broken: sglhw_kernels is a str. Valid: a tuple of names of kernels."),
        (
            "ints",
            "sglhw_kernels = (1,)",
            "is broken: sglhw_kernels is a tuple of other things. Valid: a ",
        ),
        ("reasons", "sglhw_missing = ['copy']", "is broken: sglhw_missing is a list. Valid: a dict, kernel -> reason."),
    ],
)
def test_what_makes_a_provider_broken(find, name, text, words):
    """It has nothing then, and says why in words that name what is valid."""
    found = find(f"broken_{name}", text)

    assert found.complaint(promised=False).startswith(words)
    assert not found.has("copy")
    assert found.missing(["copy"]) == {"copy": found.problem}


def test_an_interrupt_is_the_users(find):
    """Ctrl-C while a provider is imported ends the run."""
    with pytest.raises(KeyboardInterrupt):
        find("interrupted", "raise KeyboardInterrupt")


class Raising:
    """Has one kernel and raises the wrong error for all else."""

    error = KeyError

    def copy(self):
        """Stand in for a kernel."""

    def __getattr__(self, name):
        raise self.error(name)


@pytest.mark.parametrize("error", [KeyError, RuntimeError, SystemExit])
def test_a_provider_that_raises_another_error_than_attribute_error(error):
    """What it has can be run; the rest is missing with the error as the reason, and it is a complaint."""
    kernels = Raising()
    kernels.error = error
    found = FoundProvider("mine", "m", kernels)

    assert found.has("copy")
    words = f"{error.__name__}: {error('gone')}"
    assert found.missing(["copy", "gone"]) == {"gone": f"reading it raised {words}"}
    assert found.complaint(promised=False) == (
        f"raises {words} for gone (and for 1 other attribute). An attribute that it lacks has to raise AttributeError."
    )
    assert not found.isolates()
    assert found.place().device.type


def test_a_device_that_this_machine_has():
    """The CPU is everywhere, by string or by torch's own class; a number beyond those there are is refused."""
    assert device_problem("cpu") is device_problem(torch.device("cpu")) is None
    assert device_problem("cpu:9").startswith("torch sees 1 cpu device here. Valid on this machine: cpu")


DIRECT = "from pytest_sglhw.kvcacheio import transfer_kv_direct\n"
MODULES = {
    "leaves": "import sys\nsys.exit(5)\n",
    "raises": f"{DIRECT}def __getattr__(name):\n    raise KeyError(name)\n",
    "wrong": f"{DIRECT}sglhw_device = 'gpu'\n",
}


def test_faulty_providers_are_one_failed_item_each_and_the_others_run(conformance_here):
    """Exit status 1, one failed item for each faulty provider, no traceback, cells of what there is."""
    names = [option for name in MODULES for option in ("--kernels", name)]
    result = conformance_here(*names, "--kernel", "transfer_kv_direct", *SMALL, "-v", **MODULES)

    assert result.returncode == 1, result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    assert "INTERNALERROR" not in result.stdout + result.stderr
    for name in MODULES:
        assert f"test_provider[{name}] FAILED" in result.stdout
    assert "test_transfer[transfer_kv_direct-layer_first-bfloat16-p3] PASSED" in result.stdout
    assert "provider 'wrong' is broken: sglhw_device = 'gpu': torch knows no such device. " in result.stdout
