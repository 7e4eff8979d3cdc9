"""One pattern covers the texts of every SGLang release: what was said in which, as the released wheels have it."""

from __future__ import annotations

import re

import pytest

from pytest_sglhw.registry.builtin import BUILTIN_CAPABILITIES

ROWS = {row["name"]: row for row in BUILTIN_CAPABILITIES}

HISPARSE = "HiSparse device KV transfer requires sgl_kernel.kvcacheio ({}). It is not available on this backend."
DCP = "Decode context parallel (decode_context_parallel_size > 1) is currently only supported on the AMD HIP{}"
TRTLLM = "TRTLLM MHA backend {} Please use a different {} backend."

TEXTS = [
    ("hisparse", "0.5.10", HISPARSE.format("CUDA/ROCm")),
    ("hisparse", "0.5.21", HISPARSE.format("CUDA/ROCm/XPU")),
    ("kvcacheio", "0.5.10", HISPARSE.format("CUDA/ROCm")),
    ("kvcacheio", "0.5.21", HISPARSE.format("CUDA/ROCm/XPU")),
    ("kv4", "0.5.7", "KV4 is not tested on non-CUDA platforms."),
    ("nvfp4_kv", "0.5.12", "NVFP4 KV cache quantize requires SM90+ GPU"),
    ("nvfp4_kv", "0.5.16", "NVFP4 KV cache quantize requires SM100/SM120 or SM90 fallback GPU"),
    ("dcp", "0.5.15", DCP.format(" platform or CUDA platform, but got decode_context_parallel_size (2) on a non-HIP")),
    ("dcp", "0.5.22", DCP.format(", CUDA, NPU, or Intel XPU platform, but got decode_context_parallel_size (2) on")),
    ("gguf", "0.5.7", "Only CUDA support GGUF quantization currently."),
    ("gguf", "0.5.10", "Only CUDA and MUSA support GGUF quantization currently."),
    ("gguf", "0.5.11", "Only CUDA, MUSA and NPU support GGUF quantization currently."),
    ("fused_marlin_moe", "0.5.7", "XPU does not support fused_marlin_moe currently."),
    ("fused_marlin_moe", "0.5.23", "HIP does not support fused_marlin_moe currently."),
    ("fa3", "0.5.7", "VisionFlash3Attention is only available for cuda"),
    ("fa3", "0.5.11", "VisionFlash3Attention is only available for cuda or musa"),
    ("trtllm_mha", "0.5.7", TRTLLM.format("is only supported on Blackwell GPUs (SM100).", "")),
    ("trtllm_mha", "0.5.10", TRTLLM.format("for prefill is only supported on Blackwell GPUs (SM100).", "prefill")),
    ("trtllm_mha", "0.5.10", TRTLLM.format("for decode is only supported on Hopper (SM90), Blackwell", "decode")),
    ("trtllm_mha", "0.5.23", TRTLLM.format("for prefill requires Hopper (SM90), Blackwell (SM100), or", "prefill")),
    ("trtllm_mla", "0.5.7", "TRTLLM MLA backend is only supported on Blackwell GPUs (SM100). Please use"),
    ("trtllm_mla", "0.5.9", "TRTLLM MLA backend is only supported on Blackwell GPUs (SM100/SM12x). Please use"),
    ("deepep", "0.5.7", "DeepEP is not installed. Please install DeepEP package from "),
    ("deepep", "0.5.22", "DeepEP is not available. Please install DeepEP package from "),
    ("pynccl", "0.5.7", "NCCL only supports CUDA and ROCm backends."),
    ("pynccl", "0.5.9", "NCCL only supports CUDA, ROCm and MUSA backends."),
    ("dspark", "0.5.16", "DSpark speculative decoding only supports CUDA device."),
    ("dspark", "0.5.18", "DSpark speculative decoding only supports CUDA or NPU device."),
    ("dspark", "0.5.23", "DSpark speculative decoding only supports CUDA, NPU or XPU device."),
    ("dflash", "0.5.16", "DFLASH speculative decoding only supports CUDA device."),
    ("dflash", "0.5.20", "DFLASH speculative decoding only supports CUDA, NPU and XPU devices."),
    ("dflash", "0.5.23", "DFLASH speculative decoding is not supported by SRTPlatform on device 'cpu'."),
    ("cuda_graph", "0.5.7", "weak_ref_tensor is implemented only for CUDA and NPU."),
    ("cuda_graph", "0.5.15", "weak_ref_tensor is implemented only for CUDA, XPU, and NPU."),
]


@pytest.mark.parametrize(("name", "release", "text"), TEXTS)
def test_the_text_of_a_release(name: str, release: str, text: str) -> None:
    """The row's patterns find the text, whichever release said it."""
    assert [signal for signal in ROWS[name]["signals"] if re.search(signal["match"], text)]
