"""The providers whose kernels are SGLang's own: Triton, JIT, and the wheels ``sgl_kernel`` and ``sgl_kernel_npu``.

The Triton kernels run on a CPU too, under Triton's interpreter; ``set_kv_buffer`` and ``set_mla_kv_buffer`` are
SGLang's dispatchers, which take its torch code there. The others need their device: what they lack here is in
``sglhw_missing`` with the reason. The signatures are upstream's, except for the few adapters below.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_sglhw.conformance.sources import Provider, Source, accelerator, repair_torchvision, require

if TYPE_CHECKING:
    import torch


def prepare_sglang() -> str | None:
    """Make SGLang importable: its Triton kernels interpreted where there is no GPU, torchvision beside a CPU torch."""
    if reason := require("sglang"):
        return f"{reason} (the matrix is tested with sglang==0.5.23)"
    if accelerator() == "cpu":
        # Set before triton is imported, and left: SGLang decorates some kernels only when they are called.
        os.environ["TRITON_INTERPRET"] = "1"
    repair_torchvision()
    return None


def prepare_triton() -> str | None:
    """Like :func:`prepare_sglang`, and see that Triton's kernels can run here."""
    if reason := require("triton") or prepare_sglang():
        return reason
    if accelerator() == "cpu" and not _interpreted():
        return "triton was imported before TRITON_INTERPRET=1 was set. Set it in the environment of the run."
    return None


def _interpreted() -> bool:
    import triton
    from triton.runtime.interpreter import InterpretedFunction

    return isinstance(triton.language.standard.cdiv, InterpretedFunction)


def _without_gpu() -> str | None:
    return None if accelerator() == "cuda" else "compiled on first use for an NVIDIA or AMD GPU; torch sees none here"


def _without_npu() -> str | None:
    return None if accelerator() == "npu" else "needs an Ascend NPU; torch sees none here"


def _copy_all_layer(launch: Callable[..., Any]) -> Callable[..., Any]:
    def copy_all_layer_kv_cache_tiled(
        data_ptrs: torch.Tensor, strides: torch.Tensor, tgt_loc: torch.Tensor, src_loc: torch.Tensor
    ) -> None:
        """Launch one grid over all buffers, with tiles enough for the widest row."""
        count, tile = tgt_loc.numel(), 128
        tiles = -(-int(strides.max()) // tile)
        config = {"bytes_per_tile": tile, "byte_tiles": tiles, "num_warps": 4}
        launch(data_ptrs, strides, tgt_loc, src_loc, count, 1 << max(count - 1, 0).bit_length(), config)

    return copy_all_layer_kv_cache_tiled


def _move_kv_cache(pool_class: type) -> Callable[..., Any]:
    def move_kv_cache(
        k_buffers: list[torch.Tensor],
        v_buffers: list[torch.Tensor],
        tgt_loc: torch.Tensor,
        src_loc: torch.Tensor,
        k_scales: list[torch.Tensor] | None = None,
        v_scales: list[torch.Tensor] | None = None,
    ) -> None:
        """Run the pool's own ``move_kv_cache`` over buffers that the caller made (its constructor would allocate)."""
        pool: Any = object.__new__(pool_class)
        vars(pool).update(
            k_buffer=k_buffers,
            v_buffer=v_buffers,
            k_scale_buffer=k_scales,
            v_scale_buffer=v_scales,
            native_k_scale_buffer=None,
            layer_num=len(k_buffers),
            device=str(k_buffers[0].device),
            size=k_buffers[0].shape[0],
            page_size=0,
            use_hnd=False,
            use_native_move_kv_cache=False,
        )
        pool._init_data_ptrs_and_strides()
        pool._init_kv_copy_and_warmup()
        pool.move_kv_cache(tgt_loc, src_loc)

    return move_kv_cache


def _set_kv_buffer(store: Callable[..., Any]) -> Callable[..., Any]:
    def set_kv_buffer(
        k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, indices: torch.Tensor
    ) -> None:
        """Store rows in the way that SGLang's pool picks for this machine."""
        import torch

        store(
            k,
            v,
            k_cache,
            v_cache,
            indices,
            row_dim=k.shape[1:].numel(),
            store_dtype=k_cache.dtype,
            device_module=torch.get_device_module(k.device),
            size_limit=k_cache.shape[0],
            v_row_dim=v.shape[1:].numel(),
        )

    return set_kv_buffer


def _set_kv_buffer_scaled(pool_class: type) -> Callable[..., Any]:
    def set_kv_buffer_scaled(
        k: torch.Tensor,
        v: torch.Tensor,
        indices: torch.Tensor,
        k_scale: float | None,
        v_scale: float | None,
        slots: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run ``set_kv_buffer`` of a float8_e4m3fn pool of one layer; return its caches."""
        import torch

        pool: Any = object.__new__(pool_class)
        caches = [torch.zeros((slots, *rows.shape[1:]), dtype=torch.uint8, device=rows.device) for rows in (k, v)]
        unquantized = importlib.import_module("sglang.srt.layers.quantization.fp4_kv_cache_quant_method")
        vars(pool).update(
            k_buffer=caches[:1],
            v_buffer=caches[1:],
            dtype=torch.float8_e4m3fn,
            store_dtype=torch.uint8,
            quant_method=unquantized.UnquantizedKVCacheMethod(),
            requires_physical_write_loc=False,
            start_layer=0,
            size=slots,
            page_size=0,
            use_hnd=False,
            kv_cache_layout="nhd",
            row_dim=k.shape[1:].numel(),
            v_row_dim=v.shape[1:].numel(),
            device_module=torch.get_device_module(k.device),
            alt_stream=None,
        )
        pool.set_kv_buffer(None, indices, k, v, k_scale, v_scale, layer_id_override=0)
        return caches[0], caches[1]

    return set_kv_buffer_scaled


def _uncompiled(name: str) -> Callable[[Any], Callable[..., Any]]:
    """Take a static method without its ``torch.compile``: what is checked is the arithmetic as written."""

    def adapt(utility: Any) -> Callable[..., Any]:
        method = getattr(utility, name)
        return getattr(method, "_torchdynamo_orig_callable", method)  # type: ignore[no-any-return]

    return adapt


def _dim_exchange(transfer: Callable[..., Any]) -> Callable[..., Any]:
    def transfer_kv_dim_exchange(*args: Any, page_size: int, direction: str) -> None:
        """Take the direction by its name (``H2D``, ``D2H``)."""
        direction_type = importlib.import_module("sgl_kernel_npu.kvcacheio").TransferDirection

        transfer(*args, page_size=page_size, direction=direction_type[direction])

    return transfer_kv_dim_exchange


_OPS = "sglang.kernels.ops.kvcache"
_POOL = "sglang.srt.mem_cache.memory_pool"
_NVFP4 = "sglang.srt.layers.quantization.nvfp4_kv_cache"
_KV4 = ("sglang.srt.layers.quantization.kvfp4_tensor", "FP4MXBlock16KVQuantizeUtil")

triton = Provider(
    {
        "copy_all_layer_kv_cache_tiled": Source(f"{_OPS}.cache_move", "copy_all_layer_kv_cache_func", _copy_all_layer),
        "move_kv_cache": Source(_POOL, "MHATokenToKVPool", _move_kv_cache),
        "translate_padded_hisparse_locations": Source(
            f"{_OPS}.hisparse_slot_mapping", "translate_padded_hisparse_locations"
        ),
        "store_nvfp4_kv_cache": Source(_NVFP4, "store_nvfp4_kv_cache"),
        "move_nvfp4_native_scales": Source(_NVFP4, "move_nvfp4_native_scales"),
        "set_kv_buffer": Source(_POOL, "_set_kv_buffer_impl", _set_kv_buffer),
        "set_kv_buffer_scaled": Source(_POOL, "MHATokenToKVPool", _set_kv_buffer_scaled),
        "set_mla_kv_buffer": Source(f"{_OPS}.mla_buffer", "set_mla_kv_buffer_triton"),
        "reshape_and_cache_flash": Source(f"{_OPS}.cache_ops", "launch_reshape_and_cache_flash"),
        "copy_mla_rows_into_pack": Source(f"{_OPS}.pd_dcp_gather", "copy_mla_rows_into_pack"),
        "fp4_mx_block16_quantize": Source(*_KV4, _uncompiled("batched_quantize")),
        "fp4_mx_block16_dequantize": Source(*_KV4, _uncompiled("batched_dequantize")),
    },
    prepare_triton,
    accelerator,
)
"""Provider ``sglang_triton``."""

_JIT = {
    f"{_OPS}.hicache": (
        "transfer_hicache_one_layer",
        "transfer_hicache_one_layer_mla",
        "transfer_hicache_all_layer",
        "transfer_hicache_all_layer_mla",
        "transfer_hicache_all_layer_staged_lf_pf",
        "transfer_hicache_all_layer_mla_staged_lf_pf",
        "transfer_hicache_one_layer_page_unified_lf",
        "transfer_hicache_one_layer_mla_page_unified_lf",
        "transfer_hicache_all_layer_staged_lf_page_unified",
        "transfer_hicache_all_layer_mla_staged_lf_page_unified",
    ),
    f"{_OPS}.kvcache": ("store_cache",),
    f"{_OPS}.nvfp4_hicache": ("transfer_page_rows",),
    f"{_OPS}.hisparse": (
        "load_cache_to_device_buffer_mla",
        "load_cache_to_device_buffer_dsv4_mla",
        "load_blocks_to_device_buffer_mha",
        "copy_cache_planned_mla",
        "transfer_cache_dsv4_mla",
    ),
    "sglang.kernels.ops.mamba.transfer_mamba": ("transfer_kv_mamba_pf_lf", "transfer_kv_mamba_lf_pf"),
}

jit = Provider(
    {
        "can_use_hicache_jit_kernel": Source(f"{_OPS}.hicache", "can_use_hicache_jit_kernel"),
        **{name: Source(module, name, unfit=_without_gpu) for module, names in _JIT.items() for name in names},
    },
    prepare_sglang,
    accelerator,
)
"""Provider ``sglang_jit``."""

_TRANSFERS = (
    "transfer_kv_per_layer",
    "transfer_kv_per_layer_pf_lf",
    "transfer_kv_per_layer_ph_lf",
    "transfer_kv_per_layer_mla",
    "transfer_kv_per_layer_mla_pf_lf",
    "transfer_kv_per_layer_direct_pf_lf",
    "transfer_kv_all_layer",
    "transfer_kv_all_layer_lf_pf",
    "transfer_kv_all_layer_lf_ph",
    "transfer_kv_all_layer_mla",
    "transfer_kv_all_layer_mla_lf_pf",
    "transfer_kv_all_layer_direct_lf_pf",
    "transfer_kv_direct",
)


def _without_accelerator() -> str | None:
    return None if accelerator() != "cpu" else "needs an accelerator; torch sees none here"


def _without_cpu() -> str | None:
    return None if accelerator() == "cpu" else "is in the CPU build only"


sgl_kernel = Provider(
    {
        **{
            name: Source("sgl_kernel.kvcacheio", name, unfit=_without_accelerator)
            for name in (*_TRANSFERS, "get_device_accessible_ptr")
        },
        "copy_all_layer_kv_cache_cpu": Source("sgl_kernel", "copy_all_layer_kv_cache_cpu", unfit=_without_cpu),
    },
    lambda: require("sgl_kernel"),
    accelerator,
)
"""Provider ``sgl_kernel``: the kernels compiled ahead of time."""

sgl_kernel_npu = Provider(
    {
        "transfer_kv_dim_exchange": Source(
            "sgl_kernel_npu.kvcacheio", "transfer_kv_dim_exchange", _dim_exchange, unfit=_without_npu
        )
    },
    lambda: require("sgl_kernel_npu"),
    accelerator,
)
"""Provider ``sgl_kernel_npu``."""
