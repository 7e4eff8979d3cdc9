"""The built-in capabilities: rows of plain data for ``capability_from_row``, each a fact about SGLang and its kernels.

``platforms`` maps a platform to the first SGLang release in which it counts ("" = every release that matters here,
0.5.7 and newer). Releases, classes and texts were read in the released wheels from 0.5.7 to 0.5.23; one pattern covers
them all. ``archs`` narrows a platform, e.g. to Hopper; a platform that is not in it takes every arch. Where SGLang
gates a feature by the platform alone, the row does so too, even if kernels exist elsewhere: it says what SGLang does.
"""

from __future__ import annotations

from typing import Any

from pytest_sglhw.registry.rows_compute import COMPUTE_ROWS
from pytest_sglhw.registry.rows_kv import KV_ROWS

BUILTIN_CAPABILITIES: tuple[dict[str, Any], ...] = (*KV_ROWS, *COMPUTE_ROWS)
