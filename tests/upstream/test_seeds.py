"""The two seed refusals of the installed SGLang; the only tests here that older releases run too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from suite import run_suite

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.cpu_only
def test_both_seeds(tmp_path: Path) -> None:
    """Both refusals are raised under ``requires_hisparse`` and ``requires_kv4``; each fails with the other's text."""
    run = run_suite(tmp_path, "gates_seeds.py")
    assert run.outcomes() == {
        "gates_seeds.py::test_hisparse": "raised",
        "gates_seeds.py::test_kv4": "raised",
        "gates_seeds.py::test_hisparse_text_of_this_release": "raised",
        "gates_seeds.py::test_kv4_text_of_this_release": "raised",
        "gates_seeds.py::test_hisparse_is_not_kv4": "failed",
        "gates_seeds.py::test_kv4_is_not_hisparse": "failed",
    }, run.text
    codes = {name.rpartition("::test_")[2]: record["reason_code"] for name, record in run.tests.items()}
    assert codes["hisparse"] == "capability:hisparse"
    assert codes["kv4"] == "capability:kv4"
