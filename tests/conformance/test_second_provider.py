"""An implementation that shares nothing with ours goes through the matrix as a user's provider."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("hypothesis")


def test_a_second_implementation_passes_as_a_provider_by_module_path(tmp_path):
    """Every kernel that it has passes in every dtype: nothing in the matrix depends on ours."""
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest_sglhw", "conformance", "--kernels", "second_kernels"]
    command += ["--profile", "quick", "--page-size", "3", "-p", "no:cacheprovider"]

    result = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert result.returncode == 0, result.stdout + result.stderr
    found = re.search(r"(\d+) cells \((\d+) passed\), (\d+) examples", result.stdout)
    assert found, result.stdout
    cells, passed, examples = map(int, found.groups())
    assert cells == passed == 13 * 8 + 9 * 2  # kernels and dtypes, layouts of host pools and dtypes
    assert examples > 4 * cells  # two rows and three draws each, less what a law had nothing to say about
