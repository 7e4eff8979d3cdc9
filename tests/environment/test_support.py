"""The first rung of a capability: whether platform and release of SGLang should have it."""

from __future__ import annotations

import pytest

from pytest_sglhw.environment.support import supported
from pytest_sglhw.registry.loading import built_in

HISPARSE = built_in().capabilities["hisparse"]

#: Installed version of SGLang -> whether it is too old for HiSparse on CUDA, which came with 0.5.10.
VERSIONS = {
    "0.5.9": True,
    "0.5.9.post2+cu13": True,
    "0.5": True,
    "0.5.10": False,
    "0.5.10rc1": False,
    "0.5.10.dev3+g1a2b3c4": False,
    "0.5.23": False,
    "0.10": False,
    "1.0": False,
    "0.0.0.dev0": False,
    "0.0.0.dev1+g1a2b3c4": False,
    "main": False,
    "": False,
}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_release_that_is_too_old_lacks_it(version):
    """A checkout without tags says no release: what it has is for the next rungs to find."""
    found = supported(HISPARSE, "cuda", (), {"sglang": version})

    reason = f"hisparse counts on cuda since SGLang 0.5.10; SGLang {version} is installed"
    assert (found.state, found.reason) == (
        ("unavailable", reason) if VERSIONS[version] else ("available", "cuda supports hisparse")
    )
    assert found.remedy == ("install sglang>=0.5.10" if VERSIONS[version] else "")


def test_without_sglang_nothing_is_too_old():
    """Kernels are used by others too."""
    assert supported(HISPARSE, "cuda", (), {}).state == "available"
