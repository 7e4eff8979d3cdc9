"""Gates of quantization methods and of mixture-of-experts kernels."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from refusal import refuses
from sglang_on_cpu import Sglang, required_parameters


@refuses(NotImplementedError, "The quark_int4fp8_moe online quantization scheme is only supported on AMD GPUs.", "rocm")
def test_quark_int4fp8_moe() -> None:
    from sglang.srt.layers.quantization.quark_int4fp8_moe import QuarkInt4Fp8MoEMethod

    QuarkInt4Fp8MoEMethod(SimpleNamespace(online_quant_progress_bar=None))


@refuses(NotImplementedError, "Online MXFP4 quantization requires an AMD ROCm device with FP4 hardware support", "rocm")
def test_quark_mxfp4() -> None:
    from sglang.srt.layers.quantization.quark.schemes.quark_w4a4_mxfp4 import QuarkW4A4MXFP4

    QuarkW4A4MXFP4({}, {}, is_checkpoint_mxfp4_serialized=False)


@refuses(ValueError, "--bf16-gemm-backend cutedsl requires SM100/SM103 (Blackwell)", "cuda")
def test_bf16_gemm_cutedsl(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.layers.quantization import unquant

    published = SimpleNamespace(
        kernel=SimpleNamespace(bf16_gemm_backend="cutedsl"),
        deterministic=SimpleNamespace(enable_deterministic_inference=False),
    )
    monkeypatch.setattr(unquant, "get_exec", lambda: published)
    unquant.initialize_bf16_gemm_config()


def _fp8_gemm(backend: str) -> None:
    from sglang.srt.layers.quantization import fp8_utils

    fp8_utils._dispatch_explicit_backend(fp8_utils.Fp8GemmRunnerBackend(backend))


@refuses(RuntimeError, "FlashInfer TRTLLM FP8 GEMM requires SM100/SM103 GPUs and FlashInfer.", "cuda")
def test_fp8_gemm_flashinfer_trtllm() -> None:
    _fp8_gemm("flashinfer_trtllm")


@refuses(RuntimeError, "FlashInfer CUTLASS FP8 GEMM requires Blackwell GPUs and FlashInfer.", "cuda")
def test_fp8_gemm_flashinfer_cutlass() -> None:
    _fp8_gemm("flashinfer_cutlass")


@refuses(RuntimeError, "This backend requires Hopper (SM90) GPUs and FlashInfer to be installed.", "cuda")
def test_fp8_gemm_flashinfer_deepgemm() -> None:
    _fp8_gemm("flashinfer_deepgemm")


@refuses(RuntimeError, "--fp8-gemm-backend=cutlass is deprecated on this hardware.", "cuda")
def test_fp8_gemm_cutlass() -> None:
    _fp8_gemm("cutlass")


@refuses(RuntimeError, "AITER backend requested via --fp8-gemm-backend=aiter, but AITER is not available.", "rocm")
def test_fp8_gemm_aiter() -> None:
    _fp8_gemm("aiter")


def _mxfp8_gemm(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    from sglang.srt.layers.quantization import fp8_utils

    chosen = fp8_utils.Fp8GemmRunnerBackend(backend)
    monkeypatch.setattr(fp8_utils, "get_fp8_gemm_runner_backend", lambda: chosen)
    fp8_utils.resolve_mxfp8_dense_gemm_backend()


@refuses(RuntimeError, "but that kernel requires SM100/SM103 GPUs and FlashInfer.", "cuda")
def test_mxfp8_gemm_flashinfer_trtllm(monkeypatch: pytest.MonkeyPatch) -> None:
    _mxfp8_gemm(monkeypatch, "flashinfer_trtllm")


@refuses(RuntimeError, "but that kernel requires an SM100/SM103 GPU and FlashInfer.", "cuda")
def test_mxfp8_gemm_flashinfer_cutedsl(monkeypatch: pytest.MonkeyPatch) -> None:
    _mxfp8_gemm(monkeypatch, "flashinfer_cutedsl")


@refuses(RuntimeError, "but that kernel requires Blackwell GPUs and FlashInfer.", "cuda")
def test_mxfp8_gemm_flashinfer_cutlass(monkeypatch: pytest.MonkeyPatch) -> None:
    _mxfp8_gemm(monkeypatch, "flashinfer_cutlass")


@refuses(RuntimeError, "No MXFP8 dense GEMM kernel is available on this device.", "cuda", "rocm")
def test_mxfp8_linear() -> None:
    from sglang.srt.layers.quantization import fp8_utils

    fp8_utils._unsupported_mxfp8_linear()


@refuses(NameError, "name 'ggml_mul_mat_vec_a8' is not defined", "cuda", "musa")
def test_gguf_kernel_was_never_bound() -> None:
    import gguf
    import torch
    from sglang.srt.layers.quantization.gguf import fused_mul_mat_gguf

    quantized = torch.zeros(4, 4, dtype=torch.uint8)
    fused_mul_mat_gguf(torch.zeros(4, 4), quantized, gguf.GGMLQuantizationType.Q8_0)


@refuses(UserWarning, "Only CUDA and MUSA support GGUF quantization currently.", "cuda", "musa")
def test_gguf_on_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.layers.quantization import gguf

    monkeypatch.setattr(gguf, "_is_hip", True)
    gguf.GGUFConfig()


@refuses(ValueError, "Marlin does not support weight_bits = ", "cuda")
def test_awq_marlin_on_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.layers.quantization.awq import awq

    monkeypatch.setattr(awq, "_is_hip", True)
    awq.AWQMarlinConfig(4, 128, True, False, [], {})


@refuses(
    NotImplementedError, "mxfp_w4a8 (MXFP4 weights + MXFP8 activations, W4A8) is currently only implemented", "npu"
)
def test_mxfp4_w4a8() -> None:
    from sglang.srt.layers.linear import LinearBase
    from sglang.srt.layers.quantization.npu_mxfp4 import Mxfp4W4A8Config

    Mxfp4W4A8Config().get_quant_method(LinearBase.__new__(LinearBase), "layer")


@refuses(RuntimeError, "The non-Marlin GPTQ CUDA kernel has been removed.", "npu")
def test_gptq_kernel() -> None:
    from sglang.srt.layers.quantization.gptq.schemes.gptq_linear import GPTQLinearScheme

    GPTQLinearScheme.__new__(GPTQLinearScheme)._init_kernel(None)


@pytest.mark.parametrize("method", ["modelopt_fp4", "modelopt_fp8", "gguf"])
@refuses(ValueError, "quantization is currently not supported in ROCm.", "cuda")
def test_quantization_on_rocm(sgl: Sglang, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    from sglang.srt.configs import model_config

    monkeypatch.setattr(model_config, "is_hip", lambda: True)
    model_config.ModelConfig(sgl.model(), quantization=method)


@refuses(ValueError, "topk_ids must be a CUDA tensor", "cuda")
def test_moe_permute() -> None:
    import torch
    from sglang.kernels.ops.moe.moe_permute_prepare import moe_permute_prepare

    _, *sizes = required_parameters(moe_permute_prepare)
    moe_permute_prepare(torch.zeros(2, 2, dtype=torch.int32), **dict.fromkeys(sizes, 2))


@refuses(ValueError, "--moe-a2a-backend megamoe needs a CUDA SM90 GPU", "cuda", "rocm")
def test_megamoe(sgl: Sglang) -> None:
    sgl.resolve(moe_a2a_backend="megamoe")


@refuses(ImportError, "DeepEP is not available. Please install DeepEP package from", "cuda", "npu")
def test_deepep() -> None:
    from sglang.srt.layers.moe.token_dispatcher import deepep

    dispatcher = deepep._DeepEPDispatcherImplBase
    dispatcher(**dict.fromkeys(required_parameters(dispatcher)))


@refuses(NotImplementedError, "Only CUDA and CPU support elastic ep now.", "cuda")
def test_elastic_ep() -> None:
    from sglang.srt.elastic_ep.elastic_ep import ElasticEPStateManager

    ElasticEPStateManager._select_device()


@refuses(RuntimeError, "LPLB fused solver unavailable: CUDA is not available", "cuda")
def test_lplb_solver() -> None:
    from sglang.kernels.ops.lplb import torch_solver

    torch_solver.warmup(1, 1)
