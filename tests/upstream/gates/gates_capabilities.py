"""Every built-in capability whose documented refusal a CPU can trigger, closed by its own mark.

``TRIGGERS`` names the capability and the gate that speaks for it; class and text come from the registry's row alone.
Run with ``--sglhw-fake`` and ``SGLHW_PRETEND`` (facts for SGLang's ``override_platform``), the same triggers show that
the gate is open where the row says so.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import gates_attention as attention
import gates_kv_cache as kv
import gates_quantization as quantization
import gates_runtime as runtime
import pytest
from sglang_on_cpu import required_parameters

from pytest_sglhw.registry.builtin import BUILTIN_CAPABILITIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_on_cpu import Sglang


def _kv4(sgl: Sglang) -> None:
    kv.check_kv4(sgl.args(kv_cache_dtype="fp4_mx_block16", attention_backend="triton"))


def _nvfp4(sgl: Sglang) -> None:
    kv.check_kv4(sgl.args(kv_cache_dtype="nvfp4", attention_backend="triton"))


def _hisparse_backend(sgl: Sglang) -> None:
    from sglang.srt.arg_groups.hisparse_hook import validate_hisparse_dsa_backend

    args = sgl.args(kv_cache_dtype="bfloat16", dsa_decode_backend="tilelang")
    validate_hisparse_dsa_backend(args, "dsa_decode_backend", "decode")


def _tilelang_fp8(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from sglang.srt.arg_groups.overrides import _check_dsa_backend_constraints

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 0))
    _check_dsa_backend_constraints("fp8_e4m3", "tilelang", "tilelang", hip=False)


def _cuda_ipc(sgl: Sglang) -> None:
    sgl.resolve(mm_feature_transport="cuda_ipc")


def _imported_anew(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    import importlib
    import sys

    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.import_module(name)


def _gguf(monkeypatch: pytest.MonkeyPatch) -> None:
    _imported_anew(monkeypatch, "sglang.srt.layers.quantization.gguf")


def _awq(monkeypatch: pytest.MonkeyPatch) -> None:
    _imported_anew(monkeypatch, "sglang.srt.layers.quantization.awq.awq")


def _weak_ref_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    _imported_anew(monkeypatch, "sglang.srt.model_executor.runner_backend_utils.weak_ref_tensor")


def _amx() -> None:
    attention.build_vision("VisionAMXAttention")


def _fused_marlin_moe(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="Marlin does not support"):
        quantization.test_awq_marlin_on_rocm(monkeypatch)


TRIGGERS: dict[str, Callable[..., None]] = {
    "kvcacheio": kv.test_hisparse_transfer,
    "device_ptr": kv.test_device_pointers_on_rocm,
    "hisparse": _hisparse_backend,
    "hicache_kernel": kv.test_hicache_host_pool_on_xpu,
    "hicache_direct": kv.test_hicache_without_the_xpu_wheel,
    "hicache_unified": kv.test_hicache_unified_pool,
    "kv4": _kv4,
    "nvfp4_kv": _nvfp4,
    "nvfp4_prefill": kv.test_native_nvfp4_prefill,
    "mxfp8_kv": kv.test_mxfp8_kv,
    "dcp": kv.test_decode_context_parallel,
    "gguf": _gguf,
    "awq": _awq,
    "fused_marlin_moe": _fused_marlin_moe,
    "fp8": _tilelang_fp8,
    "fp8_blockwise_sm120": quantization.test_fp8_gemm_cutlass,
    "flashinfer": quantization.test_fp8_gemm_flashinfer_cutlass,
    "flashinfer_allreduce": runtime.test_flashinfer_allreduce,
    "fa3": attention.test_fa3_kernel,
    "fa4": attention.test_vision_fa4,
    "trtllm_mha": attention.test_trtllm_mha_decode,
    "trtllm_mla": attention.test_trtllm_mla,
    "cutedsl_mla": attention.test_cutedsl_mla,
    "aiter": quantization.test_fp8_gemm_aiter,
    "quark_mxfp4": quantization.test_quark_mxfp4,
    "quark_int4fp8_moe": quantization.test_quark_int4fp8_moe,
    "megamoe": quantization.test_megamoe,
    "deepep": quantization.test_deepep,
    "elastic_ep": quantization.test_elastic_ep,
    "pynccl": runtime.test_pynccl,
    "cuda_ipc": _cuda_ipc,
    "weight_cache": runtime.test_weight_cache,
    "dspark": runtime.test_dspark,
    "dflash": runtime.test_dflash,
    "amx": _amx,
    "mindspore": runtime.test_mindspore,
    "mlx": runtime.test_mlx,
    "triton": attention.test_triton_kernel,
    "cuda_graph": _weak_ref_tensor,
}

ROWS = {row["name"]: row for row in BUILTIN_CAPABILITIES}


#: Signals that a mark has to name: a warning does not stop the code, and an ImportError alone is no refusal.
TO_BE_NAMED = {"UserWarning": UserWarning, "ImportError": ImportError}


def _required(name: str) -> pytest.MarkDecorator:
    """Give the capability's mark; class and text come from its row, named where the mark has to."""
    first, *others = ROWS[name]["signals"]
    must_name = all(signal["exception"] in TO_BE_NAMED for signal in (first, *others))
    named = {"raises": TO_BE_NAMED[first["exception"]], "match": first["match"]} if must_name else {}
    return getattr(pytest.mark, f"requires_{name}")(otherwise="raise", **named)


@pytest.fixture(autouse=True)
def pretended(sgl: Sglang) -> None:
    """Let SGLang believe the facts of ``SGLHW_PRETEND``, e.g. ``is_cuda,is_sm100``."""
    facts = os.environ.get("SGLHW_PRETEND")
    if facts:
        sgl.pretend(**dict.fromkeys(facts.split(","), True))


@pytest.mark.parametrize("trigger", [pytest.param(t, id=name, marks=_required(name)) for name, t in TRIGGERS.items()])
def test_capability(trigger: Callable[..., None], request: pytest.FixtureRequest) -> None:
    trigger(**{name: request.getfixturevalue(name) for name in required_parameters(trigger)})
