"""The calls that the matrix makes, against the signatures of the real packages: each argument is what it is named.

What only a GPU compiles cannot run here, but its Python side can be asked which argument would arrive where.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from pathlib import Path

import pytest
import torch

from pytest_sglhw.conformance.devices import Place
from pytest_sglhw.conformance.kernels import all_kernels
from pytest_sglhw.conformance.providers_sglang import jit, sgl_kernel
from pytest_sglhw.conformance.strategies import PinnedDraw

HOST, KEYS = "page_size element_dim", "page_size element_size kv_cache_src_stride_bytes kv_cache_dst_stride_bytes"
STATE = (
    "device_buffer_tokens host_cache_locs device_buffer_locs {caches} top_k_device_locs req_pool_indices seq_lens "
    "lru_slots item_size_bytes {sizes} num_real_reqs"
)
MLA = STATE.format(caches="host_cache device_buffer", sizes="num_top_k hot_buffer_size")
MHA = STATE.format(
    caches="host_cache_k host_cache_v device_buffer_k device_buffer_v", sizes="hot_buffer_size sparse_block_size"
)
PLAN = "miss_src miss_dst miss_count num_real_reqs host_cache device_buffer item_size_bytes"
KV_DST, KV_SRC = "k_cache_dst v_cache_dst indices_dst", "k_cache_src v_cache_src indices_src"
SOURCES = "k_ptr_src v_ptr_src"
KV_TABLES = "k_ptr_dst v_ptr_dst indices_dst k_ptr_src v_ptr_src indices_src"
LATENT_KEYS = KEYS.replace("kv_cache", "cache")
AOT_KV, AOT_TABLES = "src_k dst_k src_v dst_v", "src_k_layers dst_k_layers src_v_layers dst_v_layers"
AOT_OUT = "src_k_layers dst_k src_v_layers dst_v"
INDICES, GRID = "src_indices dst_indices", "block_quota num_warps_per_block"

#: The parameters that a call fills, in order (those by keyword in any).
CALLS = {
    "transfer_hicache_one_layer": f"{KV_DST} {KV_SRC} {HOST}",
    "transfer_hicache_one_layer_mla": f"cache_dst indices_dst cache_src indices_src {HOST}",
    "transfer_hicache_all_layer": f"{KV_TABLES} {KEYS}",
    "transfer_hicache_all_layer_mla": f"ptr_dst indices_dst ptr_src indices_src {LATENT_KEYS}",
    "transfer_hicache_all_layer_staged_lf_pf": f"{SOURCES} {INDICES} staging_k staging_v dst_k dst_v page_size",
    "transfer_hicache_all_layer_mla_staged_lf_pf": f"ptr_src {INDICES} staging dst page_size",
    "transfer_hicache_one_layer_page_unified_lf": f"k_cache_dst v_cache_dst src {INDICES} layer_id",
    "transfer_hicache_one_layer_mla_page_unified_lf": f"cache_dst src {INDICES} layer_id",
    "transfer_hicache_all_layer_staged_lf_page_unified": f"{SOURCES} src_pages dst_pages staging dst",
    "transfer_hicache_all_layer_mla_staged_lf_page_unified": "ptr_src src_pages dst_pages staging dst",
    "transfer_page_rows": "host_ptrs device_ptrs host_pages device_pages host_stride device_stride row_bytes load",
    "transfer_cache_dsv4_mla": f"src_ptrs dst_ptrs {INDICES}",
    "transfer_kv_mamba_pf_lf": f"src dst {INDICES} layer_id item_size src_layout_dim",
    "transfer_kv_mamba_lf_pf": f"src_ptrs dst {INDICES} item_size dst_layout_dim num_layers",
    "store_cache": "k v k_cache v_cache indices",
    "load_cache_to_device_buffer_mla": f"top_k_tokens {MLA}",
    "load_cache_to_device_buffer_dsv4_mla": f"top_k_tokens {MLA}",
    "load_blocks_to_device_buffer_mha": f"top_k_blocks {MHA}",
    "copy_cache_planned_mla": PLAN,
    "can_use_hicache_jit_kernel": "element_size page_size",
    "transfer_kv_per_layer": f"{AOT_KV} {INDICES} item_size {GRID}",
    "transfer_kv_per_layer_pf_lf": f"{AOT_KV} {INDICES} layer_id item_size src_layout_dim {GRID}",
    "transfer_kv_per_layer_ph_lf": f"{AOT_KV} {INDICES} layer_id item_size src_layout_dim page_size head_num {GRID}",
    "transfer_kv_all_layer": f"{AOT_TABLES} {INDICES} item_size num_layers {GRID}",
    "transfer_kv_all_layer_lf_pf": f"{AOT_OUT} {INDICES} item_size dst_layout_dim num_layers {GRID}",
    "transfer_kv_all_layer_lf_ph": f"{AOT_OUT} {INDICES} item_size dst_layout_dim num_layers page_size head_num {GRID}",
    "transfer_kv_per_layer_mla": f"src dst {INDICES} item_size {GRID}",
    "transfer_kv_per_layer_mla_pf_lf": f"src dst {INDICES} layer_id item_size src_layout_dim {GRID}",
    "transfer_kv_all_layer_mla": f"src_layers dst_layers {INDICES} item_size num_layers {GRID}",
    "transfer_kv_all_layer_mla_lf_pf": f"src_layers dst {INDICES} item_size dst_layout_dim num_layers {GRID}",
    "transfer_kv_direct": f"src_layers dst_layers {INDICES} page_size",
    "transfer_kv_per_layer_direct_pf_lf": f"src_ptrs dst_ptrs {INDICES} layer_id page_size",
    "transfer_kv_all_layer_direct_lf_pf": f"src_ptrs dst_ptrs {INDICES} page_size",
    "copy_all_layer_kv_cache_cpu": "data_ptrs strides tgt_loc src_loc",
}

TABLES = (
    "src_layers dst_layers src_ptrs dst_ptrs ptr_src ptr_dst k_ptr_src v_ptr_src k_ptr_dst v_ptr_dst src_k_layers "
    "dst_k_layers src_v_layers dst_v_layers host_ptrs device_ptrs data_ptrs"
)
EITHER = "indices_src indices_dst host_pages device_pages src_pages"
SLOTS = "top_k_tokens top_k_blocks device_buffer_tokens device_buffer_locs top_k_device_locs miss_dst"

#: dtypes that the compiled side asks for, and parameters; rows have the cell's dtype.
DTYPES = {
    name: dtypes
    for dtypes, names in (
        ({torch.uint64}, TABLES),
        ({torch.int32, torch.int64}, f"{EITHER} req_pool_indices seq_lens"),
        ({torch.int64}, "dst_pages host_cache_locs miss_src"),
        ({torch.int32}, f"{SLOTS} miss_count num_real_reqs"),
        ({torch.int16}, "lru_slots"),
    )
    for name in names.split()
}


class CaughtError(Exception):
    """Carries the arguments of a call."""


def catch(*args, **keywords):
    raise CaughtError(args, keywords)


def calls(kernel, cell):
    """The arguments of drawn calls, those for empty input among them."""
    for seed in range(12):
        trial = kernel.workload.build(cell, kernel.workload.draw(cell, PinnedDraw(seed, {})), Place("cpu"))
        with pytest.raises(CaughtError) as caught:
            trial.call(catch, trial.arguments())
        yield caught.value.args


def jit_function(name):
    """The plain function behind decorators that hide its parameters."""
    source = jit._sources[name]
    return inspect.unwrap(getattr(importlib.import_module(source.module), source.attribute))


def aot_function(name):
    """A wrapper of the installed package, which itself can only be imported where its libraries load."""
    package = importlib.util.find_spec("sgl_kernel")
    if package is None:
        pytest.skip("sglang-kernel is not installed")
    path = Path(package.submodule_search_locations[0]) / "kvcacheio.py"
    spec = importlib.util.spec_from_file_location("kvcacheio_wrappers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        pytest.skip(f"this release of sglang-kernel has no {name}")
    return getattr(module, name)


def check(name, function):
    signature = inspect.signature(function)
    kernel = all_kernels()[name]
    for cell in (kernel.cells()[0], kernel.cells()[-1]):
        for args, keywords in calls(kernel, cell):
            bound = signature.bind(*args, **keywords).arguments
            assert sorted(bound) == sorted(CALLS[name].split())
            assert list(bound)[: len(args)] == CALLS[name].split()[: len(args)]
            tensors = {key: value.dtype for key, value in bound.items() if isinstance(value, torch.Tensor)}
            assert {key: dtype for key, dtype in tensors.items() if dtype not in DTYPES.get(key, {dtype})} == {}


@pytest.mark.parametrize("name", jit.sglhw_kernels)
def test_a_call_of_the_jit_family(name):
    """Names, order and dtypes."""
    check(name, jit_function(name))


@pytest.mark.parametrize("name", [name for name in sgl_kernel.sglhw_kernels if name in all_kernels()])
def test_a_call_of_the_kernels_compiled_ahead(name):
    """Names, order and dtypes, where a wheel of them is installed."""
    check(name, aot_function(name))


def test_every_kernel_is_covered():
    """A kernel that a provider names and the matrix runs stands in the table."""
    names = {*jit.sglhw_kernels, *sgl_kernel.sglhw_kernels} & set(all_kernels())

    assert set(CALLS) == names
