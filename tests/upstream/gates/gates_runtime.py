"""Gates of platforms, devices, communication, speculative decoding and server arguments."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from refusal import refuses
from sglang_on_cpu import GPT_OSS, Sglang, required_parameters

NO_ACCELERATOR = "No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available."
ACCELERATORS = ("cuda", "rocm", "xpu", "npu", "musa", "mps", "hpu")


@refuses(RuntimeError, NO_ACCELERATOR, *ACCELERATORS)
def test_no_device() -> None:
    from sglang.srt.utils import get_device

    get_device()


@refuses(RuntimeError, NO_ACCELERATOR, *ACCELERATORS)
def test_no_device_in_the_pipeline(sgl: Sglang) -> None:
    sgl.resolve(device=None)


@refuses(ValueError, "Unsupported device type: 'tpu'.", *ACCELERATORS)
def test_memory_of_an_unknown_device() -> None:
    from sglang.srt.utils.common import get_available_gpu_memory

    get_available_gpu_memory("tpu", 0)


@refuses(AttributeError, "module 'torch' has no attribute 'hpu'", "hpu")
def test_memory_of_an_hpu() -> None:
    from sglang.srt.utils.common import get_available_gpu_memory

    get_available_gpu_memory("hpu", 0)


@refuses(RuntimeError, "Cannot execute getRecommendedMaxMemory() without MPS backend.", "mps")
def test_memory_of_mps() -> None:
    from sglang.srt.platforms.mps import _recommended_working_set_size

    _recommended_working_set_size()


@refuses(RuntimeError, "SGLANG_PLATFORM='no_such_plugin' not found in discovered platform plugins", "hpu")
def test_platform_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt import platforms

    monkeypatch.setenv("SGLANG_PLATFORM", "no_such_plugin")
    platforms._resolve_platform()


@refuses(ImportError, "torch_npu is required when run on npu device.", "npu")
def test_device_npu(sgl: Sglang) -> None:
    sgl.resolve(device="npu")


@refuses(RuntimeError, "hl-smi error: ", "hpu")
def test_device_hpu(sgl: Sglang) -> None:
    sgl.resolve(device="hpu")


@refuses(RuntimeError, "SGLANG_USE_MLX requires stable Torch 2.13.x and MLX >= 0.32.0", "mps")
def test_mlx() -> None:
    from sglang.srt.hardware_backend.mlx.runtime import _validate_runtime

    _validate_runtime()


@refuses(Exception, "sglang-kernel with minimum required version 0.4.10 is not installed.", "cuda")
def test_kernel_package() -> None:
    from sglang.srt.utils.common import assert_pkg_version

    assert_pkg_version("sglang-kernel", "0.4.10", "")


@refuses(NotImplementedError, "weak_ref_tensor is implemented only for CUDA, XPU, and NPU.", "cuda", "xpu", "npu")
def test_weak_ref_tensor() -> None:
    import sglang.srt.model_executor.runner_backend_utils.weak_ref_tensor  # noqa: F401


@refuses(ModuleNotFoundError, "No module named 'torch_memory_saver'", "cuda")
def test_memory_saver() -> None:
    from sglang.srt.utils.torch_memory_saver_adapter import TorchMemorySaverAdapter

    TorchMemorySaverAdapter.create(enable=True)


@refuses(ValueError, "NCCL only supports CUDA, ROCm and MUSA backends.", "cuda", "rocm", "musa")
def test_pynccl() -> None:
    from sglang.srt.distributed.device_communicators.pynccl_wrapper import find_nccl_library

    find_nccl_library()


@refuses(ValueError, "FlashInfer allreduce fusion requires SM90 or SM10X NVIDIA GPUs.", "cuda")
def test_flashinfer_allreduce() -> None:
    from sglang.srt.layers.flashinfer_comm_fusion import _resolve_backend

    _resolve_backend("auto")


@refuses(ValueError, "FlashInfer allreduce fusion cutedsl backend requires a Blackwell system.", "cuda")
def test_flashinfer_allreduce_cutedsl_on_hopper(sgl: Sglang) -> None:
    from sglang.srt.layers.flashinfer_comm_fusion import _resolve_backend

    sgl.pretend(is_cuda=True, is_sm90=True)
    _resolve_backend("cutedsl")


@refuses(RuntimeError, "fused all-reduce cluster kernels require CUDA SM90 or newer", "cuda")
def test_allreduce_cluster() -> None:
    from sglang.kernels.ops.communication.all_reduce_fusion import require_cluster_launch_arch

    require_cluster_launch_arch()


@refuses(RuntimeError, "the weight cache daemon requires a CUDA-alike platform (CUDA or ROCm)", "cuda", "rocm")
def test_weight_cache() -> None:
    from sglang.srt.weight_cache.daemon import WeightCacheDaemon

    WeightCacheDaemon.__new__(WeightCacheDaemon).load()


@pytest.mark.parametrize("transport", ["cuda_ipc", "cuda_vmm"])
@refuses(ValueError, " requires NVIDIA CUDA.", "cuda")
def test_multimodal_transport(sgl: Sglang, transport: str) -> None:
    sgl.resolve(mm_feature_transport=transport)


@refuses(ValueError, "--speculative-use-block-verification only supports CUDA or ROCm.", "cuda", "rocm")
def test_block_verification(sgl: Sglang) -> None:
    sgl.resolve(speculative_algorithm="EAGLE", speculative_use_block_verification=True)


@refuses(ValueError, "DSpark speculative decoding only supports CUDA, NPU or XPU device.", "cuda", "npu", "xpu")
def test_dspark(sgl: Sglang) -> None:
    sgl.resolve(speculative_algorithm="DSPARK")


@refuses(ValueError, "DFLASH speculative decoding is not supported by SRTPlatform on device 'cpu'.", "cuda", "npu")
def test_dflash(sgl: Sglang) -> None:
    sgl.resolve(speculative_algorithm="DFLASH")


@refuses(ValueError, "UNO only supports CUDA.", "cuda")
def test_uno(sgl: Sglang) -> None:
    sgl.resolve(speculative_algorithm="UNO")


@refuses(ValueError, "DFLASH Domino currently requires CUDA, got cpu.", "cuda")
def test_domino() -> None:
    import torch
    from sglang.srt.speculative.domino_utils import validate_domino_runtime

    others = dict.fromkeys(required_parameters(validate_domino_runtime))
    validate_domino_runtime(**{**others, "device": torch.device("cpu")})


@refuses(ValueError, "Ngram speculative decoding only supports CUDA, CPU, or XPU devices.", "cuda", "rocm", "xpu")
def test_ngram() -> None:
    from sglang.srt.arg_groups import speculative_hook

    speculative_hook._handle_ngram(SimpleNamespace(device="npu"))


@refuses(ValueError, "Stochastic rounding for the Mamba SSM cache is only supported on NVIDIA CUDA", "cuda")
def test_mamba_stochastic_rounding(sgl: Sglang) -> None:
    sgl.resolve(enable_mamba_cache_stochastic_rounding=True, mamba_ssm_dtype="float16")


@refuses(AssertionError, "RemoteInstanceConnector only supports cuda device.", "cuda", "npu")
def test_remote_instance() -> None:
    import torch
    from sglang.srt.connector.remote_instance import RemoteInstanceConnector

    RemoteInstanceConnector("instance://localhost", torch.device("cpu"))


@refuses(AssertionError, "Runai Model Streamer only supports CUDA and CPU, got xpu", "cuda")
def test_model_streamer() -> None:
    from sglang.srt.model_loader.loader import RunaiModelStreamerLoader

    loader = RunaiModelStreamerLoader.__new__(RunaiModelStreamerLoader)
    loader.load_model(model_config=None, device_config=SimpleNamespace(device_type="xpu"))


def _validate(args: object) -> None:
    from sglang.srt.arg_groups.validation_hook import check_server_args

    check_server_args(args)


@refuses(AssertionError, "MindSpore model impl is only supported on Ascend npu.", "npu")
def test_mindspore(sgl: Sglang) -> None:
    _validate(sgl.resolve(model_impl="mindspore"))


@refuses(ValueError, "Communications quantization is only supported for NPU device", "npu")
def test_quantized_communication(sgl: Sglang) -> None:
    _validate(sgl.resolve(enable_quant_communications=True, tp_size=2))


@refuses(ValueError, "InstantTensor requires a CUDA-compatible device (including CUDA and ROCm)", "cuda", "rocm")
def test_instanttensor() -> None:
    from sglang.srt.model_loader.weight_utils import instanttensor_weights_iterator

    next(instanttensor_weights_iterator([]))


@refuses(RuntimeError, "Dots3 model only supports CUDA backend.", "cuda")
def test_dots3() -> None:
    from sglang.srt.models.dots3_common.modeling import _require_cuda

    _require_cuda()


@refuses(ValueError, "--enable-watermark requires --device cuda, got 'cpu'", "cuda")
def test_watermark(sgl: Sglang) -> None:
    from sglang.srt.arg_groups.validation_hook import check_watermark_server_args

    check_watermark_server_args(sgl.args(enable_watermark=True, watermark_key="00" * 16))


@refuses(ValueError, "--disable-custom-all-reduce cannot be combined with --enable-deterministic-inference", "cuda")
def test_deterministic_inference_on_rocm(sgl: Sglang) -> None:
    from sglang.srt.arg_groups.overrides import _deterministic_rocm_rccl_check

    sgl.pretend(is_hip=True)
    args = sgl.args(enable_deterministic_inference=True, tp_size=4, disable_custom_all_reduce=True)
    _deterministic_rocm_rccl_check(args)


@refuses(NotImplementedError, "GptOssForCausalLM on Intel XPU only supports bfloat16 dtype", "cuda")
def test_gpt_oss_dtype_on_xpu(sgl: Sglang) -> None:
    sgl.pretend(is_xpu=True)
    sgl.resolve(GPT_OSS, dtype="float16")


@refuses(ValueError, "renorm kernels require a CUDA/HIP tensor", "cuda", "rocm")
def test_renorm_kernels() -> None:
    import torch
    from sglang.kernels.ops.sampling.renorm_triton import _prepare_probs

    _prepare_probs(torch.zeros(1, 4))


@refuses(ValueError, "Lanczos RGB preprocessing requires a CUDA tensor", "cuda")
def test_lanczos() -> None:
    import torch
    from sglang.kernels.ops.mm.process import lanczos

    lanczos.lanczos_resize(torch.zeros(4, 4, 3, dtype=torch.uint8), 2, 2)


@refuses(ValueError, "--enable-deepseek-v4-fp4-indexer requires SM100, SM120, or gfx95 GPUs", "cuda", "rocm")
def test_fp4_indexer(sgl: Sglang) -> None:
    sgl.resolve(enable_deepseek_v4_fp4_indexer=True)


@refuses(AssertionError, "Torch not compiled with CUDA enabled", "cuda")
def test_torch_without_cuda() -> None:
    import torch

    torch.zeros(1, device="cuda")
