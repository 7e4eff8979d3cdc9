"""Providers that load from installed packages: what is missing is said, with the reason, and never an import error."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from pytest_sglhw.conformance import providers_sglang
from pytest_sglhw.conformance.sources import Provider, Source, quiet
from pytest_sglhw.registry.loading import built_in


def _provider(sources, reason=None):
    return Provider(sources, lambda: reason, lambda: "cpu")


@pytest.fixture
def package(monkeypatch):
    """An importable module with one kernel, and the name of one that fails to import."""
    module = types.ModuleType("a_kernel_package")
    module.copy = lambda: "copied"
    monkeypatch.setitem(sys.modules, "a_kernel_package", module)
    return "a_kernel_package"


def test_kernel_is_loaded_by_name(package):
    """An attribute of the provider is the package's function, or what the adapter makes of it."""
    provider = _provider({"copy": Source(package, "copy"), "twice": Source(package, "copy", lambda f: lambda: 2 * f())})
    assert provider.copy() == "copied"
    assert provider.twice() == "copiedcopied"
    assert provider.sglhw_missing == {}
    assert provider.sglhw_device == "cpu"
    assert provider.sglhw_kernels == ("copy", "twice")


def test_missing_kernel_says_why(package):
    """A module or a name that is not there is this kernel's reason; the others stay."""
    provider = _provider(
        {"copy": Source(package, "copy"), "gone": Source(package, "gone"), "far": Source("no_such_package", "far")}
    )
    assert provider.copy() == "copied"
    assert provider.sglhw_missing == {
        "gone": "importing gone from a_kernel_package failed: "
        "AttributeError: module 'a_kernel_package' has no attribute 'gone'",
        "far": "importing far from no_such_package failed: ModuleNotFoundError: No module named 'no_such_package'",
    }
    with pytest.raises(AttributeError, match=r"^far is not available here: importing far from no_such_package failed"):
        _ = provider.far


def test_unfit_machine_is_a_reason_too(package):
    """A kernel that this machine cannot run is not imported at all."""
    provider = _provider({"copy": Source("no_such_package", "copy", unfit=lambda: "needs another machine")})
    assert provider.sglhw_missing == {"copy": "needs another machine"}


def test_package_that_cannot_be_prepared_lacks_everything(package):
    """One reason for all kernels."""
    provider = _provider({"copy": Source(package, "copy")}, reason="it is broken")
    assert provider.sglhw_missing == {"copy": "it is broken"}


def test_unknown_kernel_lists_the_known_ones(package):
    """A name that the provider never had."""
    with pytest.raises(AttributeError) as caught:
        _ = _provider({"copy": Source(package, "copy")}).paste
    assert str(caught.value) == "'paste' is no kernel of this provider. It has: copy."


def test_warnings_of_a_foreign_import_are_held_back():
    """Warnings are errors here, and those of an import are not ours."""
    import logging
    import warnings

    with quiet():
        warnings.warn("only CUDA has this", UserWarning, stacklevel=1)
    assert not logging.root.manager.disable


def test_nothing_is_imported_before_a_kernel_is_asked_for():
    """Importing the providers costs neither torch nor SGLang."""
    code = (
        "import sys, pytest_sglhw.conformance.providers_sglang; print({'torch', 'triton', 'sglang'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "set()\n"


def test_built_in_names_lead_to_providers():
    """Each registered name is ``module:attribute`` of a provider that names its kernels."""
    targets = {name: target for name, (target, _) in built_in().providers.items() if name != "torch"}
    assert set(targets) == {"sgl_kernel", "sglang_jit", "sglang_triton", "sgl_kernel_npu"}
    for target in targets.values():
        module, _, attribute = target.partition(":")
        assert module == "pytest_sglhw.conformance.providers_sglang"
        assert getattr(providers_sglang, attribute).sglhw_kernels
