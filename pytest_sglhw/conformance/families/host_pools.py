"""A device pool and its host pool, as SGLang's hierarchical cache uses them: each row one way to move between the two.

Not one kernel but the kernels of one pool together, in sequences of backups, loads, moves and evictions. What a kernel
keeps between calls that it should not (a page that it thinks is still there) shows nowhere else.
"""

from __future__ import annotations

from pytest_sglhw.conformance.family import Kernel
from pytest_sglhw.conformance.stateful.routes import Hicache, Kvcacheio, MovesOnly, Route
from pytest_sglhw.conformance.stateful.workload import SequenceWorkload
from pytest_sglhw.conformance.transfer_cases import PARTS

_KV, _LATENT = PARTS
_T = "transfer_kv"
_H = "transfer_hicache"

_ROUTES: dict[str, tuple[Route, ...]] = {
    "host_pool_mha_kernel": (
        Kvcacheio(f"{_T}_all_layer", f"{_T}_per_layer", "layer_first", _KV),
        Kvcacheio(f"{_T}_all_layer_lf_pf", f"{_T}_per_layer_pf_lf", "page_first", _KV),
        Kvcacheio(f"{_T}_all_layer_lf_ph", f"{_T}_per_layer_ph_lf", "page_head", _KV),
    ),
    "host_pool_mla_kernel": (
        Kvcacheio(f"{_T}_all_layer_mla", f"{_T}_per_layer_mla", "layer_first", _LATENT),
        Kvcacheio(f"{_T}_all_layer_mla_lf_pf", f"{_T}_per_layer_mla_pf_lf", "page_first", _LATENT),
    ),
    **{
        f"host_pool_{name}_direct": (
            Kvcacheio(f"{_T}_direct", f"{_T}_direct", "layer_first", parts),
            Kvcacheio(f"{_T}_all_layer_direct_lf_pf", f"{_T}_per_layer_direct_pf_lf", "page_first_direct", parts),
        )
        for name, parts in (("mha", _KV), ("mla", _LATENT))
    },
    **{
        f"host_pool_{name}_jit": tuple(
            Hicache(f"{_H}_all_layer{suffix}", f"{_H}_one_layer{suffix}", layout, parts)
            for layout in ("layer_first", "page_first")
        )
        for name, suffix, parts in (("mha", "", _KV), ("mla", "_mla", _LATENT))
    },
}

#: Only moves are made by a kernel, so pages make no difference.
_MOVES: dict[str, tuple[Route, ...]] = {
    "device_pool_mha": (MovesOnly("move_kv_cache", "move_kv_cache", "layer_first", _KV),),
    "device_pool_mla": (
        MovesOnly("copy_all_layer_kv_cache_tiled", "copy_all_layer_kv_cache_tiled", "layer_first", _LATENT),
    ),
}


def _row(name: str, routes: tuple[Route, ...], page_sizes: tuple[int, ...]) -> Kernel:
    layouts = tuple(route.host_layout for route in routes)
    return Kernel(name, "host_pools", layouts, SequenceWorkload(routes), (), ("bfloat16", "float8_e4m3fn"), page_sizes)


KERNELS: tuple[Kernel, ...] = (
    *(_row(name, routes, (1, 3, 16)) for name, routes in _ROUTES.items()),
    *(_row(name, routes, (3,)) for name, routes in _MOVES.items()),
)
