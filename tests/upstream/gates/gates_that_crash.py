"""Gates that ask torch for a device before they speak: a CPU build of torch answers first, with an AssertionError."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from refusal import refuses
from sglang_on_cpu import DEEPSEEK_V32, Sglang, required_parameters


@refuses(ValueError, "CUDA TileLang FP8 KV requires SM89 or newer.", "cuda")
def test_tilelang_fp8() -> None:
    from sglang.srt.arg_groups.overrides import _check_dsa_backend_constraints

    _check_dsa_backend_constraints("fp8_e4m3", "tilelang", "tilelang", hip=False)


@refuses(ValueError, "--bf16-gemm-backend gemv requires SM90 (Hopper) or SM12x", "cuda")
def test_bf16_gemm_gemv(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.layers.quantization import unquant

    published = SimpleNamespace(
        kernel=SimpleNamespace(bf16_gemm_backend="gemv"),
        deterministic=SimpleNamespace(enable_deterministic_inference=False),
    )
    monkeypatch.setattr(unquant, "get_exec", lambda: published)
    unquant.initialize_bf16_gemm_config()


# The class alone is no help: the crash is an AssertionError too.
@refuses(AssertionError, "", "cuda")
def test_trtllm_mla_through_the_pipeline(sgl: Sglang) -> None:
    sgl.resolve(DEEPSEEK_V32, attention_backend="trtllm_mla")


@refuses(AssertionError, "", "cuda")
def test_skinny_fp8_gemm() -> None:
    import torch
    from sglang.kernels.kda_kernels.sm120_fp8_skinny_gemm_sm120 import _jit_sm120_fp8_skinny_module as module

    build = getattr(module, "__wrapped__", module)
    build(*(torch.bfloat16 if "dtype" in name else 1 for name in required_parameters(build)))
