"""KV transfer kernels for CPU memory, with the API of ``sgl_kernel.kvcacheio`` 0.4.10 (provider ``torch``).

Same names, arguments, defaults, errors. docs/kernels.md has the contract and where these kernels, on purpose, differ
from upstream's.
"""

from __future__ import annotations

from pytest_sglhw.kvcacheio.direct import (
    transfer_kv_all_layer_direct_lf_pf,
    transfer_kv_direct,
    transfer_kv_per_layer_direct_pf_lf,
)
from pytest_sglhw.kvcacheio.host import (
    copy_all_layer_kv_cache_cpu,
    get_device_accessible_ptr,
    transfer_embedding_ranges_direct,
)
from pytest_sglhw.kvcacheio.kernels import (
    transfer_kv_all_layer,
    transfer_kv_all_layer_lf_pf,
    transfer_kv_all_layer_lf_ph,
    transfer_kv_all_layer_mla,
    transfer_kv_all_layer_mla_lf_pf,
    transfer_kv_per_layer,
    transfer_kv_per_layer_mla,
    transfer_kv_per_layer_mla_pf_lf,
    transfer_kv_per_layer_pf_lf,
    transfer_kv_per_layer_ph_lf,
)

__all__ = [
    "copy_all_layer_kv_cache_cpu",
    "get_device_accessible_ptr",
    "transfer_embedding_ranges_direct",
    "transfer_kv_all_layer",
    "transfer_kv_all_layer_direct_lf_pf",
    "transfer_kv_all_layer_lf_pf",
    "transfer_kv_all_layer_lf_ph",
    "transfer_kv_all_layer_mla",
    "transfer_kv_all_layer_mla_lf_pf",
    "transfer_kv_direct",
    "transfer_kv_per_layer",
    "transfer_kv_per_layer_direct_pf_lf",
    "transfer_kv_per_layer_mla",
    "transfer_kv_per_layer_mla_pf_lf",
    "transfer_kv_per_layer_pf_lf",
    "transfer_kv_per_layer_ph_lf",
]
