"""KV transfer kernels for CPU memory, with the API of ``sgl_kernel.kvcacheio`` 0.4.10 (provider ``torch``).

Same names, arguments, defaults, error classes and texts. Everything is checked before the first byte is written. Where
upstream does damage or leaves the result open, these kernels differ on purpose:

====================================================  ==================================================================
no indices                                            nothing happens (upstream's process dies)
indices not on the CPU, tables or pools neither       ``RuntimeError`` (upstream wants indices on CUDA)
index tensors with gaps                               read element by element (upstream: as if packed)
slot negative, or past the end of a tensor            ``IndexError``; behind a table of addresses only the sign is known
layers beyond ``layout_dim``                          ``IndexError`` (upstream: bytes of another token)
table too short or with a null pointer                ``RuntimeError``
sizes, quotas and head counts of 0 or less            ``RuntimeError`` (upstream divides by them)
page_head, a head's bytes not a multiple of 8         all are copied (upstream drops the rest)
page_head, ``head_num`` does not divide ``item_size`` ``RuntimeError``
a layer with strides (kernel ops)                     ``RuntimeError``; the direct ops follow strides
a destination slot named twice                        the last one stays
source and destination overlap (kernel ops)           within a buffer all rows are read before any is written
direct ops past the end                               ``IndexError`` (upstream clamps, wraps or broadcasts)
====================================================  ==================================================================

docs/kernels.md has the whole contract.
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
