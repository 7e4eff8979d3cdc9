"""Gates of the KV cache: formats, HiSparse, HiCache, decode context parallelism."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from refusal import refuses

if TYPE_CHECKING:
    from sglang_on_cpu import Sglang

KV4 = "KV4 is not tested on non-CUDA platforms."
HISPARSE = (
    "HiSparse device KV transfer requires sgl_kernel.kvcacheio (CUDA/ROCm/XPU). It is not available on this backend."
)


def check_kv4(args: Any) -> None:
    from sglang.srt.arg_groups.kv_cache_hook import handle_kv4_compatibility

    handle_kv4_compatibility(args)


@refuses(RuntimeError, HISPARSE, "cuda", "rocm", "xpu")
def test_hisparse_transfer() -> None:
    from sglang.srt.mem_cache.hisparse_memory_pool import transfer_kv_all_layer_mla

    transfer_kv_all_layer_mla()


@refuses(RuntimeError, KV4, "cuda")
def test_kv4_through_the_pipeline(sgl: Sglang) -> None:
    sgl.resolve(kv_cache_dtype="fp4_mx_block16")


@refuses(RuntimeError, KV4, "cuda")
@pytest.mark.parametrize("dtype", ["nvfp4", "fp4_mx_block16"])
def test_kv4_check(sgl: Sglang, dtype: str) -> None:
    check_kv4(sgl.args(kv_cache_dtype=dtype))


@refuses(RuntimeError, KV4, "cuda")
@pytest.mark.parametrize("fact", ["is_hip", "is_xpu", "is_npu", "is_musa", "is_mps"])
def test_kv4_on_other_accelerators(sgl: Sglang, fact: str) -> None:
    sgl.pretend(**{fact: True})
    check_kv4(sgl.args(kv_cache_dtype="nvfp4"))


@refuses(RuntimeError, "--kv-cache-dtype=nvfp4 requires Blackwell SM100 or SM120.", "cuda")
def test_nvfp4_on_hopper(sgl: Sglang) -> None:
    sgl.pretend(is_cuda=True, is_sm90=True)
    check_kv4(sgl.args(kv_cache_dtype="nvfp4"))


@refuses(AssertionError, "KV4 MHA expects attention_backend to be one of ['triton', 'torch_native'", "cuda")
def test_kv4_attention_backend(sgl: Sglang) -> None:
    sgl.pretend(is_cuda=True, is_sm100=True)
    check_kv4(sgl.args(kv_cache_dtype="nvfp4", attention_backend="fa3"))


@refuses(ValueError, "NVFP4 prefill supports an FP8 E4M3 workspace or native NVFP4, but backend 'intel_amx'", "cuda")
def test_nvfp4_prefill_workspace(sgl: Sglang) -> None:
    sgl.resolve(kv_cache_dtype="nvfp4")


@refuses(ValueError, "Native NVFP4 prefill currently requires SM100", "cuda")
def test_native_nvfp4_prefill(sgl: Sglang) -> None:
    from sglang.srt.arg_groups.kv_cache_hook import handle_nvfp4_prefill_kv_dequant_dtype

    handle_nvfp4_prefill_kv_dequant_dtype(sgl.args(kv_cache_dtype="nvfp4", prefill_kv_cache_dequant_dtype="nvfp4"))


@refuses(AssertionError, "NVFP4 KV cache quantize requires SM100/SM120 or SM90 fallback GPU", "cuda")
def test_nvfp4_quantize_kernel() -> None:
    import torch
    from sglang.srt.layers.quantization.kvfp4_tensor import NVFP4KVQuantizeUtil

    NVFP4KVQuantizeUtil.quantize(torch.zeros(1, 1, 16), torch.ones(1))


@refuses(ValueError, "--kv-cache-dtype mxfp8 requires an SM100+ (Blackwell) GPU", "cuda")
def test_mxfp8_kv(sgl: Sglang) -> None:
    from sglang.srt.arg_groups.kv_cache_hook import handle_mxfp8_kv_cache_compatibility

    handle_mxfp8_kv_cache_compatibility(sgl.args(kv_cache_dtype="mxfp8"))


@refuses(AssertionError, "--enable-page-major-kv-layout: the resolved attention backends ['torch_native']", "cuda")
def test_unified_memory(sgl: Sglang) -> None:
    sgl.resolve(enable_unified_memory=True)


@refuses(ValueError, "HiSparse requires one of ('bfloat16', 'fp8_e4m3') KV cache dtypes", "cuda", "rocm", "xpu")
def test_hisparse_kv_dtype(sgl: Sglang) -> None:
    from sglang.srt.arg_groups.hisparse_hook import validate_hisparse_kv_cache_dtype

    validate_hisparse_kv_cache_dtype(sgl.args(kv_cache_dtype="fp8_e5m2"))


@pytest.mark.parametrize(
    ("facts", "backend"),
    [
        pytest.param({}, "tilelang", id="not-rocm"),
        pytest.param({"is_hip": True}, "flashmla_sparse", id="rocm"),
    ],
)
@refuses(ValueError, "HiSparse supports DSA decode backend(s) [", "cuda", "rocm")
def test_hisparse_dsa_backend(sgl: Sglang, facts: dict[str, bool], backend: str) -> None:
    from sglang.srt.arg_groups.hisparse_hook import validate_hisparse_dsa_backend

    sgl.pretend(**facts)
    args = sgl.args(kv_cache_dtype="bfloat16", dsa_decode_backend=backend)
    validate_hisparse_dsa_backend(args, "dsa_decode_backend", "decode")


@refuses(ValueError, "--enable-hisparse does not support --enable-mixed-chunk yet.", "cuda", "rocm", "xpu")
def test_hisparse_mixed_chunk(sgl: Sglang) -> None:
    from sglang.srt.arg_groups.hisparse_hook import validate_hisparse_feature_combos

    validate_hisparse_feature_combos(sgl.args(enable_hisparse=True, enable_mixed_chunk=True))


def _xpu_kvcacheio(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Execute the XPU binding module anew, as a process on Intel XPU would."""
    import sglang.srt.utils

    monkeypatch.setattr(sglang.srt.utils, "is_xpu", lambda: True)
    path = Path(sglang.srt.utils.__file__).parents[1] / "mem_cache/pool_host/_kvcacheio.py"
    spec = importlib.util.spec_from_file_location("kvcacheio_as_on_xpu", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@refuses(RuntimeError, "which is not available here: sgl_kernel.kvcacheio failed to import", "xpu")
def test_hicache_without_the_xpu_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    _xpu_kvcacheio(monkeypatch).transfer_kv_all_layer_mla()


@refuses(RuntimeError, "this sgl-kernel-xpu build has no sgl_kernel.kvcacheio.transfer_kv_all_layer_mla", "xpu")
def test_hicache_with_an_old_xpu_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    package, module = ModuleType("sgl_kernel"), ModuleType("sgl_kernel.kvcacheio")
    package.kvcacheio = module  # type: ignore[attr-defined]
    module.transfer_kv_per_layer = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sgl_kernel", package)
    monkeypatch.setitem(sys.modules, "sgl_kernel.kvcacheio", module)
    _xpu_kvcacheio(monkeypatch).transfer_kv_all_layer_mla()


@refuses(ValueError, "HiCache cannot build the MLA host pool for --hicache-io-backend kernel", "xpu")
def test_hicache_host_pool_on_xpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import sglang.srt.runtime_context

    memory = SimpleNamespace(hicache_io_backend="kernel")
    monkeypatch.setattr(sglang.srt.runtime_context, "get_memory", lambda: memory)
    binding = _xpu_kvcacheio(monkeypatch)
    binding.require_kvcacheio_ops(pool="MLA", layout="layer_first", ops=binding.MLA_KVCACHEIO_OPS)


@refuses(RuntimeError, "Unified page-envelope transfers require a CUDA or ROCm device.", "cuda", "rocm")
def test_hicache_unified_pool() -> None:
    import torch
    from sglang.srt.mem_cache.pool_host.unified import UnifiedPageEnvelopeHostPool

    pool = UnifiedPageEnvelopeHostPool.__new__(UnifiedPageEnvelopeHostPool)
    pool._device_page_buffer = SimpleNamespace(device=torch.device("meta"))
    pool._transfer_pages(None, None, None, None, "kernel")


@refuses(ImportError, "sgl_kernel.kvcacheio.get_device_accessible_ptr is missing", "rocm")
def test_device_pointers_on_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.mem_cache.pool_host import common

    monkeypatch.setattr(common, "_is_hip", True)
    common._resolve_device_accessible_ptr_fn.__wrapped__()


@refuses(
    RuntimeError,
    "is currently only supported on the AMD HIP, CUDA, NPU, or Intel XPU platform, but got "
    "decode_context_parallel_size (2) on an unsupported platform.",
    "cuda", "rocm", "npu", "xpu",
)  # fmt: skip
def test_decode_context_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.distributed import parallel_state
    from sglang.srt.runtime_context import get_parallel

    monkeypatch.setattr(parallel_state.torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(parallel_state.torch.distributed, "get_world_size", lambda *_: 1)
    monkeypatch.setattr(parallel_state.torch.distributed, "get_backend", lambda *_: "gloo")
    ones = ("tp_size", "pp_size", "attn_cp_size", "attn_dp_size", "moe_ep_size", "moe_dp_size", "attn_tp_size")
    sizes = {**dict.fromkeys(ones, 1), "dcp_size": 2, "attn_dcp_size": 2, "shared_experts_tp_size": None}
    world = SimpleNamespace(device_group=None)
    with get_parallel().override(**sizes, world_group=world):
        parallel_state.initialize_model_parallel()


@refuses(ValueError, "--dcp-comm-backend fi_a2a delegates the exchange to FlashInfer's MNNVL All-to-All", "cuda")
def test_dcp_over_mnnvl(sgl: Sglang) -> None:
    sgl.resolve(dcp_size=2, tp_size=2, dcp_comm_backend="fi_a2a")


@refuses(ValueError, "--dcp-size > 1 on Intel XPU needs --attention-backend intel_xpu.", "xpu")
def test_dcp_on_xpu(sgl: Sglang) -> None:
    from sglang.srt.arg_groups.attention_hook import _check_xpu_dcp

    _check_xpu_dcp(sgl.args(dcp_size=2, tp_size=2, attention_backend="triton"), None)
