"""Gates of attention backends and of the kernels below them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from refusal import refuses
from sglang_on_cpu import Sglang, required_parameters

DECODE = "TRTLLM MHA backend for decode is only supported on Hopper (SM90), Blackwell (SM100) and (SM120) GPUs."


@refuses(ValueError, DECODE, "cuda")
def test_trtllm_mha_decode(sgl: Sglang) -> None:
    sgl.resolve(prefill_attention_backend="triton", decode_attention_backend="trtllm_mha")


@refuses(ValueError, "TRTLLM MHA backend for prefill requires Hopper (SM90), Blackwell (SM100), or SM120", "cuda")
def test_trtllm_mha_prefill(sgl: Sglang) -> None:
    sgl.resolve(prefill_attention_backend="trtllm_mha", decode_attention_backend="triton")


def _view(**fields: Any) -> SimpleNamespace:
    backends = dict.fromkeys(("attention_backend", "prefill_attention_backend", "decode_attention_backend"))
    return SimpleNamespace(**{**backends, "kv_cache_dtype": "auto", **fields})


@refuses(ValueError, "TRTLLM MLA backend is only supported on Blackwell GPUs (SM100/SM12x).", "cuda")
def test_trtllm_mla() -> None:
    from sglang.srt.arg_groups.overrides import _mla_kv_cache_dtype_checks

    _mla_kv_cache_dtype_checks(_view(attention_backend="trtllm_mla"))


@refuses(ValueError, "CuteDSL MLA backend is only supported on Blackwell GPUs (SM100).", "cuda")
def test_cutedsl_mla() -> None:
    from sglang.srt.arg_groups.overrides import _cutedsl_prefill_backend_fill

    _cutedsl_prefill_backend_fill(_view(decode_attention_backend="cutedsl_mla"))


@refuses(ValueError, "The triton DSA backend is only supported on ROCm/HIP.", "rocm")
def test_dsa_triton_backend() -> None:
    from sglang.srt.arg_groups.overrides import _check_dsa_backend_constraints

    _check_dsa_backend_constraints("bfloat16", "triton", "triton", hip=False)


@refuses(ValueError, "dsa_paged_mqa_logits_backend='aiter' requires ROCm.", "rocm")
def test_dsa_aiter_logits() -> None:
    from sglang.srt.layers.attention.dsa.paged_mqa_logits_backend import DSAPagedMQALogitsBackend

    DSAPagedMQALogitsBackend.resolve("aiter")


@refuses(ValueError, "dsa_paged_mqa_logits_backend='cutedsl' requires SM100 (Blackwell).", "cuda")
def test_dsa_cutedsl_logits() -> None:
    from sglang.srt.layers.attention.dsa.paged_mqa_logits_backend import DSAPagedMQALogitsBackend

    DSAPagedMQALogitsBackend.resolve("cutedsl")


@refuses(AssertionError, "topk_transform_packed_v2 is compiled under USE_ROCM only", "rocm")
def test_dsv4_packed_topk() -> None:
    import torch
    from sglang.kernels.ops.attention.dsv4.topk import topk_transform_packed_v2 as kernel

    kernel(**dict.fromkeys(required_parameters(kernel), torch.zeros(1, 1)))


def build_vision(name: str) -> None:
    from sglang.srt.layers.attention import vision

    getattr(vision, name)()


@refuses(Exception, "VisionFlash3Attention is only available for cuda or musa", "cuda", "musa")
def test_vision_fa3() -> None:
    build_vision("VisionFlash3Attention")


@refuses(Exception, "VisionFlash4Attention is only available for cuda", "cuda")
def test_vision_fa4() -> None:
    build_vision("VisionFlash4Attention")


@refuses(Exception, "VisionFlashInferAttention is only available for cuda", "cuda")
def test_vision_flashinfer() -> None:
    build_vision("VisionFlashInferAttention")


@refuses(Exception, "aiter_attn is only available for AMD", "rocm")
def test_vision_aiter() -> None:
    build_vision("VisionAiterAttention")


@refuses(Exception, "VisionAscendAttention is only available for ascend npu", "npu")
def test_vision_ascend() -> None:
    build_vision("VisionAscendAttention")


@refuses(Exception, "VisionIntelXPUAttention is only available for Intel XPU", "xpu")
def test_vision_xpu() -> None:
    build_vision("VisionIntelXPUAttention")


def _linear(kind: str, *backends: str) -> None:
    from sglang.srt.layers.attention.linear.utils import LinearAttnKernelBackend

    if kind == "gdn":
        from sglang.srt.layers.attention.linear.gdn_backend import GDNKernelDispatcher as Dispatcher
    else:
        from sglang.srt.layers.attention.linear.kda_backend import KDAKernelDispatcher as Dispatcher
    Dispatcher(*map(LinearAttnKernelBackend, backends))


@refuses(ValueError, "--linear-attn-backend intel_xpu requires Intel XPU", "xpu")
def test_gdn_xpu() -> None:
    _linear("gdn", "intel_xpu", "triton")


@pytest.mark.parametrize("backends", [("cutedsl", "triton"), ("triton", "cutedsl")], ids="-".join)
@refuses(ValueError, "GDN CuTe DSL backend requires CUDA", "cuda")
def test_gdn_cutedsl(backends: tuple[str, str]) -> None:
    _linear("gdn", *backends)


@pytest.mark.parametrize("backends", [("flashinfer", "triton"), ("triton", "flashinfer")], ids="-".join)
@refuses(ValueError, "FlashInfer GDN backend requires CUDA", "cuda")
def test_gdn_flashinfer(backends: tuple[str, str]) -> None:
    _linear("gdn", *backends)


@refuses(ValueError, "KDA Helion backend requires CUDA", "cuda")
def test_kda_helion() -> None:
    _linear("kda", "helion", "triton", "triton")


@pytest.mark.parametrize("backends", [("cutedsl", "triton", "triton"), ("triton", "cutedsl", "triton")], ids="-".join)
@refuses(ValueError, "KDA CuTe DSL backend requires CUDA", "cuda")
def test_kda_cutedsl(backends: tuple[str, str, str]) -> None:
    _linear("kda", *backends)


@refuses(ValueError, "KDA FlashInfer backend requires CUDA", "cuda")
def test_kda_flashinfer() -> None:
    _linear("kda", "flashinfer", "triton", "triton")


@refuses(ValueError, "KDA FlashInfer prefill backend requires CUDA", "cuda")
def test_kda_flashinfer_prefill() -> None:
    _linear("kda", "triton", "flashinfer", "triton")


@refuses(ValueError, "PTX KDA prefill backend requires CUDA", "cuda")
def test_kda_ptx_prefill() -> None:
    _linear("kda", "triton", "ptx_kda", "triton")


@refuses(NotImplementedError, "flash_attn at sgl-kernel is only supported on sm90 and above", "cuda", "musa")
def test_fa3_kernel() -> None:
    import torch
    from sglang.kernels.ops.attention.flash_attention_v3 import flash_attn_with_kvcache

    some = torch.zeros(1, 1, 1, 64)
    flash_attn_with_kvcache(some, some, some)


@refuses(NotImplementedError, "match_cutedsl_decode reproduces an NVIDIA-only kernel and is not available", "cuda")
def test_cutedsl_decode_on_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from sglang.kernels.ops.attention.linear import fused_sigmoid_gating_recurrent as module

    monkeypatch.setattr(module, "_is_hip", True)
    kernel = module.fused_sigmoid_gating_delta_rule_update
    required = dict.fromkeys(required_parameters(kernel), torch.zeros(1, 1, 1, 1))
    kernel(**required, match_cutedsl_decode=True, is_kda=True)


@refuses(ModuleNotFoundError, "No module named 'sgl_kernel'", "xpu")
def test_intel_xpu_backend() -> None:
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS

    ATTENTION_BACKENDS["intel_xpu"](SimpleNamespace(use_mla_backend=False))


@refuses(ModuleNotFoundError, "No module named 'torch_npu'", "npu")
def test_ascend_backend() -> None:
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS

    ATTENTION_BACKENDS["ascend"](SimpleNamespace(use_mla_backend=False))


@refuses(RuntimeError, "0 active drivers ([]). There should only be one.", "cuda", "rocm", "xpu")
def test_triton_kernel() -> None:
    import torch
    from sglang.kernels.ops.kvcache.hisparse_slot_mapping import translate_padded_hisparse_locations

    some = torch.zeros(4, dtype=torch.int64)
    translate_padded_hisparse_locations(some, some)
