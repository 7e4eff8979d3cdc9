"""Inputs that are known to end the process of a released kernel.

The cells of such a kernel leave these inputs out; each row has a test item of its own, which runs the input in a child
process and must see it die. If the child survives, the item fails: remove the row.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class KnownCrash(NamedTuple):
    """One kernel that crashes on one index pattern."""

    provider: str
    kernel: str
    pattern: str
    signal: str
    reason: str


_EMPTY = "no indices at all: the launcher divides by the number of items per warp, which is 0 then"

CRASHES = tuple(
    KnownCrash("sgl_kernel", f"transfer_kv_{name}", "empty", "SIGFPE", _EMPTY)
    for name in (
        "per_layer",
        "per_layer_pf_lf",
        "per_layer_ph_lf",
        "all_layer",
        "all_layer_lf_pf",
        "all_layer_lf_ph",
        "per_layer_mla",
        "per_layer_mla_pf_lf",
        "all_layer_mla",
        "all_layer_mla_lf_pf",
    )
)


def find(provider: str, kernel: str, case: Any) -> KnownCrash | None:
    """The row that says that this case crashes."""
    key = (provider, kernel, getattr(case, "pattern", None))
    return next((row for row in CRASHES if row[:3] == key), None)
