"""Fixtures of the gates part."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def kvcacheio_on_cpu() -> Iterator[Callable[..., None]]:
    """Bind this project's CPU kernels into the named modules for one test: ``kvcacheio_on_cpu("pkg.module", ...)``.

    SGLang binds the kernels at import, behind platform flags that are frozen by then, so the names are replaced where
    they are used. Everything is as it was when the test ends.
    """
    from pytest_sglhw.gates.cpu_kernels import Binding

    with Binding() as binding:
        yield binding.bind
