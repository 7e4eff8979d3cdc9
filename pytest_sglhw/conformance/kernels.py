"""The table of kernels: every family's rows, by name."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_sglhw.conformance.family import Kernel

#: Modules with a table ``KERNELS``, in the order in which tables show them.
FAMILIES: tuple[str, ...] = (
    "kvcacheio",
    "slot_moves",
    "store",
    "store_scaled",
    "nvfp4",
    "kv4",
    "slot_mapping",
    "swap_in",
    "transfers",
    "pages",
    "selection",
    "host_pools",
)


@lru_cache(maxsize=1)
def all_kernels() -> dict[str, Kernel]:
    """Every kernel that the matrix knows, by name."""
    modules = (importlib.import_module(f"pytest_sglhw.conformance.families.{name}") for name in FAMILIES)
    return {kernel.name: kernel for module in modules for kernel in module.KERNELS}
