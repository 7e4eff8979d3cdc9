"""Tests against the real SGLang: collected only where ``SGLHW_UPSTREAM=1``, and then SGLang has to be there."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

UPSTREAM = os.environ.get("SGLHW_UPSTREAM") == "1"
HERE = Path(__file__).parent

collect_ignore_glob = [] if UPSTREAM else ["*"]

sys.path[:0] = [str(HERE), str(HERE / "gates")]

if UPSTREAM:
    if importlib.util.find_spec("sglang") is None:
        raise pytest.UsageError("SGLHW_UPSTREAM=1 asks for tests against the real SGLang, which is not installed here.")
    from sglang_on_cpu import make_torchvision_importable

    make_torchvision_importable()
