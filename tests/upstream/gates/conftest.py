"""The fixture of the gate suites: SGLang over a throw-away model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sglang_on_cpu import Sglang


@pytest.fixture
def sgl(tmp_path: Path) -> Iterator[Sglang]:
    """SGLang's pipeline over a model directory of this test; whatever it pretends ends with the test."""
    with ExitStack() as stack:
        yield Sglang(tmp_path, stack)
