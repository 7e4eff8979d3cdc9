"""Built-in rows: the KV cache, its transfers and its formats."""

from __future__ import annotations

from typing import Any

from pytest_sglhw.registry.vocabulary import (
    BLACKWELL,
    JIT,
    KERNELS,
    SGLANG_ALONE,
    SGLANG_WITH,
    SM100,
    SM120,
    SMOKE,
    XPU_KERNELS,
    refusal,
)

_TRANSFER_OPS = tuple(
    f"sgl_kernel::transfer_kv_{name}"
    for name in (
        "per_layer", "per_layer_pf_lf", "per_layer_ph_lf", "per_layer_mla", "per_layer_mla_pf_lf",
        "per_layer_direct_pf_lf", "all_layer", "all_layer_lf_pf", "all_layer_lf_ph", "all_layer_mla",
        "all_layer_mla_lf_pf", "all_layer_direct_lf_pf", "direct",
    )
)  # fmt: skip

_NO_KVCACHEIO = (
    # "(CUDA/ROCm)" up to 0.5.20, "(CUDA/ROCm/XPU)" since 0.5.21; the two lines of the text were joined differently.
    refusal("RuntimeError", r"HiSparse device KV transfer requires sgl_kernel\.kvcacheio \(CUDA/ROCm(/XPU)?\)"),
    refusal("RuntimeError", r"HiCache host<->device KV transfer needs transfer_kv_\w+, which is not available here"),
    refusal("ValueError", r"HiCache cannot build the .+ host pool (for --hicache-io-backend \w+ .*)?here: "),
)
_KV4 = refusal("RuntimeError", r"KV4 is not tested on non-CUDA platforms")

KV_ROWS: tuple[dict[str, Any], ...] = (
    {
        "name": "kvcacheio",
        "summary": "KV transfer kernels between host and device memory (`sgl_kernel.kvcacheio`)",
        "platforms": {"cuda": "", "rocm": "", "musa": "", "xpu": "0.5.21"},
        "probe": {
            "distributions": (*KERNELS, *XPU_KERNELS),
            "module": "sgl_kernel.kvcacheio",
            "ops": _TRANSFER_OPS,
            "check": SMOKE + "kvcacheio",
        },
        "signals": _NO_KVCACHEIO,
        "source": "sgl_kernel/kvcacheio.py, srt/mem_cache/pool_host/_kvcacheio.py",
    },
    {
        "name": "kvcacheio_npu",
        "summary": "KV transfer between host and device memory on Ascend (`sgl_kernel_npu.kvcacheio`)",
        "platforms": {"npu": ""},
        "probe": {
            "distributions": ("sgl-kernel-npu",),
            "module": "sgl_kernel_npu.kvcacheio",
            "names": ("TransferDirection", "transfer_kv_dim_exchange"),
            "ops": ("npu::transfer_kv_dim_exchange",),
        },
        "source": "sgl_kernel_npu/kvcacheio.py and csrc/pytorch_extensions.cpp of sgl-kernel-npu",
    },
    {
        "name": "embedding_ranges",
        "summary": "row-range copies of embedding tables (`transfer_embedding_ranges_direct`)",
        "platforms": {"cuda": "0.5.23"},
        "probe": {
            "distributions": KERNELS,
            "module": "sgl_kernel.kvcacheio",
            "ops": ("sgl_kernel::transfer_embedding_ranges_direct",),
        },
        "source": "sgl_kernel/kvcacheio.py",
    },
    {
        "name": "device_ptr",
        "summary": "device addresses of registered host memory (`get_device_accessible_ptr`)",
        "platforms": {"cuda": "0.5.20", "rocm": "0.5.20"},
        "probe": {
            "distributions": KERNELS,
            "module": "sgl_kernel.kvcacheio",
            "ops": ("sgl_kernel::get_device_accessible_ptr",),
        },
        "signals": (refusal("ImportError", r"sgl_kernel\.kvcacheio\.get_device_accessible_ptr is missing"),),
        "source": "srt/mem_cache/pool_host/common.py, #35233",
    },
    {
        "name": "hisparse",
        "summary": "HiSparse: hierarchical sparse attention with host-side KV",
        "platforms": {"cuda": "0.5.10", "rocm": "0.5.10", "xpu": "0.5.21"},
        "probe": {
            **SGLANG_WITH,
            "module": "sgl_kernel.kvcacheio",
            "brought_by": (*KERNELS, *XPU_KERNELS),
            "ops": ("sgl_kernel::transfer_kv_all_layer_mla",),
        },
        "signals": (
            _NO_KVCACHEIO[0],
            refusal("ValueError", r"HiSparse supports DSA \w+ backend\(s\) \[.*\] on this platform"),
        ),
        "source": "srt/mem_cache/hisparse_memory_pool.py, srt/arg_groups/hisparse_hook.py, #32792",
    },
    {
        "name": "hicache_kernel",
        "summary": "HiCache host pools with `--hicache-io-backend kernel`",
        "platforms": {"cuda": "", "rocm": "", "xpu": "0.5.23"},
        "probe": {
            **SGLANG_WITH,
            "module": "sgl_kernel.kvcacheio",
            "brought_by": (*KERNELS, *XPU_KERNELS),
            "ops": ("sgl_kernel::transfer_kv_per_layer", "sgl_kernel::transfer_kv_all_layer"),
        },
        "signals": _NO_KVCACHEIO[1:],
        "source": "srt/mem_cache/pool_host/_kvcacheio.py",
    },
    {
        "name": "hicache_direct",
        "summary": "HiCache host pools with `--hicache-io-backend direct`",
        "platforms": {"cuda": "", "rocm": "", "xpu": "0.5.23"},
        "probe": {
            **SGLANG_WITH,
            "module": "sgl_kernel.kvcacheio",
            "brought_by": (*KERNELS, *XPU_KERNELS),
            "ops": ("sgl_kernel::transfer_kv_direct",),
            "check": SMOKE + "kvcacheio_direct",
        },
        "signals": _NO_KVCACHEIO[1:],
        "source": "srt/mem_cache/pool_host/_kvcacheio.py",
    },
    {
        "name": "hicache_unified",
        "summary": "HiCache page-envelope transfers of the unified host pool",
        "platforms": {"cuda": "0.5.21", "rocm": "0.5.21"},
        "probe": SGLANG_ALONE,
        "signals": (refusal("RuntimeError", r"Unified page-envelope transfers require a CUDA or ROCm device"),),
        "source": "srt/mem_cache/pool_host/unified.py",
    },
    {
        "name": "jit_hicache",
        "summary": "HiCache transfer kernels compiled on first use",
        "platforms": {"cuda": "", "rocm": ""},
        "probe": JIT,
        "source": "kernels/ops/kvcache/hicache.py",
    },
    {
        "name": "kv4",
        "summary": "4-bit KV cache (`--kv-cache-dtype fp4_mx_block16`, before 0.5.16 `fp4_e2m1`)",
        "platforms": {"cuda": ""},
        "probe": SGLANG_ALONE,
        "signals": (_KV4,),
        "source": "srt/arg_groups/kv_cache_hook.py, #14467",
    },
    {
        "name": "nvfp4_kv",
        "summary": "NVFP4 KV cache (`--kv-cache-dtype nvfp4`)",
        "platforms": {"cuda": "0.5.16"},
        "archs": {"cuda": (*SM100, *SM120)},
        "probe": SGLANG_ALONE,
        "signals": (
            _KV4,
            refusal("RuntimeError", r"--kv-cache-dtype=nvfp4 requires Blackwell SM100 or SM120"),
            refusal("ValueError", r"NVFP4 prefill supports an FP8 E4M3 workspace or native NVFP4, but backend"),
            refusal("AssertionError", r"NVFP4 KV cache quantize requires SM(90\+|100/SM120)"),
        ),
        "source": "srt/arg_groups/kv_cache_hook.py, srt/layers/quantization/kvfp4_tensor.py",
    },
    {
        "name": "nvfp4_prefill",
        "summary": "native NVFP4 prefill, without an FP8 workspace",
        "platforms": {"cuda": "0.5.21"},
        "archs": {"cuda": SM100},
        "probe": SGLANG_ALONE,
        "signals": (refusal("ValueError", r"Native NVFP4 prefill (currently|with trtllm_mha) requires SM100"),),
        "source": "srt/arg_groups/kv_cache_hook.py, srt/layers/attention/trtllm_mha_backend.py",
    },
    {
        "name": "mxfp8_kv",
        "summary": "MXFP8 KV cache (`--kv-cache-dtype mxfp8`)",
        "platforms": {"cuda": "0.5.16"},
        "archs": {"cuda": BLACKWELL},
        "probe": SGLANG_ALONE,
        "signals": (
            refusal("ValueError", r"--kv-cache-dtype mxfp8 requires an SM100\+ \(Blackwell\) GPU"),
            refusal("AssertionError", r"MXFP8 KV cache requires CUDA and store_cache-compatible rows"),
        ),
        "source": "srt/arg_groups/kv_cache_hook.py, srt/mem_cache/memory_pool.py",
    },
    {
        "name": "dcp",
        "summary": "decode context parallelism (`--dcp-size` above 1)",
        "platforms": {"cuda": "0.5.15", "rocm": "0.5.15", "npu": "0.5.22", "xpu": "0.5.22"},
        "probe": SGLANG_ALONE,
        "signals": (
            # The list of platforms in the text grew: HIP; HIP or CUDA; HIP, CUDA, NPU or XPU.
            refusal("RuntimeError", r"Decode context parallel \(.+\) is currently only supported on the AMD HIP"),
            refusal("ValueError", r"--dcp-size > 1 on Intel XPU needs --attention-backend intel_xpu"),
        ),
        "source": "srt/distributed/parallel_state.py, srt/arg_groups/attention_hook.py",
    },
)
