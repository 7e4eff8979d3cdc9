"""The Triton kernel of the smoke check runs under Triton's interpreter and adds what the check expects."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
from pytest_sglhw.environment import smoke
smoke._device = lambda: "cpu"
print(smoke.triton())
"""


def test_triton_kernel() -> None:
    """Triton decides when a kernel is defined whether to interpret it, so this takes a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr
