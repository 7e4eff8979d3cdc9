"""Names, order and defaults of the arguments are those of ``sgl_kernel.kvcacheio`` 0.4.10."""

from __future__ import annotations

import inspect

import pytest
import torch

from pytest_sglhw import kvcacheio

WARPS = 16 if torch.version.hip else 32
GRID = f"block_quota=2, num_warps_per_block={WARPS}"
MLA_GRID = f"block_quota=None, num_warps_per_block={WARPS}"
KV = "src_k, dst_k, src_v, dst_v, src_indices, dst_indices"
TABLES_TO_POOL = "src_k_layers, dst_k, src_v_layers, dst_v, src_indices, dst_indices"
PAGE_HEAD = "page_size, head_num"
INDICES = "src_indices, dst_indices"

SIGNATURES = {
    "transfer_kv_per_layer": f"{KV}, item_size, {GRID}",
    "transfer_kv_per_layer_pf_lf": f"{KV}, layer_id, item_size, src_layout_dim, {GRID}",
    "transfer_kv_per_layer_ph_lf": f"{KV}, layer_id, item_size, src_layout_dim, {PAGE_HEAD}, {GRID}",
    "transfer_kv_all_layer": "src_k_layers, dst_k_layers, src_v_layers, dst_v_layers, "
    f"{INDICES}, item_size, num_layers, {GRID}",
    "transfer_kv_all_layer_lf_pf": f"{TABLES_TO_POOL}, item_size, dst_layout_dim, num_layers, {GRID}",
    "transfer_kv_all_layer_lf_ph": f"{TABLES_TO_POOL}, item_size, dst_layout_dim, num_layers, {PAGE_HEAD}, {GRID}",
    "transfer_kv_direct": f"src_layers, dst_layers, {INDICES}, page_size",
    "transfer_kv_per_layer_direct_pf_lf": f"src_ptrs, dst_ptrs, {INDICES}, layer_id, page_size",
    "transfer_kv_all_layer_direct_lf_pf": f"src_ptrs, dst_ptrs, {INDICES}, page_size",
    "transfer_kv_per_layer_mla": f"src, dst, {INDICES}, item_size, {MLA_GRID}",
    "transfer_kv_per_layer_mla_pf_lf": f"src, dst, {INDICES}, layer_id, item_size, src_layout_dim, {MLA_GRID}",
    "transfer_kv_all_layer_mla": f"src_layers, dst_layers, {INDICES}, item_size, num_layers, {GRID}",
    "transfer_kv_all_layer_mla_lf_pf": f"src_layers, dst, {INDICES}, item_size, dst_layout_dim, num_layers, {GRID}",
    "copy_all_layer_kv_cache_cpu": "data_ptrs, strides, tgt_loc, src_loc",
    "transfer_embedding_ranges_direct": "src, dst, src_starts, dst_starts, lengths",
    "get_device_accessible_ptr": "tensor, device_index",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    """A call written for upstream, positional or by keyword, means the same here."""
    parameters = inspect.signature(getattr(kvcacheio, name)).parameters.values()
    assert ", ".join(str(p.replace(annotation=p.empty)) for p in parameters) == SIGNATURES[name]
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)


def test_public_names():
    """The package offers these names and no others."""
    assert sorted(kvcacheio.__all__) == sorted(SIGNATURES)


def test_documented():
    """Each function says what its arguments are."""
    for name, signature in SIGNATURES.items():
        doc = inspect.getdoc(getattr(kvcacheio, name))
        assert all(f"{argument.split('=')[0]}: " in doc for argument in signature.split(", ")), name
