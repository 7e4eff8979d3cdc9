"""Make the real SGLang usable on a machine without an accelerator, and small enough for tests."""

from __future__ import annotations

import importlib.util
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import ExitStack

LLAMA: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}

GPT_OSS: Mapping[str, Any] = {**LLAMA, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"}

DEEPSEEK_V32: Mapping[str, Any] = {
    **LLAMA,
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "moe_intermediate_size": 64,
    "q_lora_rank": 32,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "index_topk": 64,
    "index_head_dim": 128,
    "index_n_heads": 4,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "routed_scaling_factor": 1.0,
    "hidden_act": "silu",
    "attention_bias": False,
}

_KEPT: list[Any] = []


def make_torchvision_importable() -> None:
    """Define two operators that torchvision's CUDA build takes for granted, where torch is a CPU build.

    The only torchvision on PyPI for Linux is a CUDA build; beside a CPU build of torch its native library can't load,
    and importing it (transformers and SGLang do) fails on the first operator that it extends.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None or _KEPT:
        return
    import torch

    built_for_cuda = "+cu" in Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    if not built_for_cuda or torch.version.cuda is not None:
        return
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT.append(library)  # the definitions live as long as the library object


def required_parameters(function: Callable[..., Any]) -> list[str]:
    """Name the parameters that a call has to give, to reach a gate at the top of a long signature."""
    parameters = inspect.signature(function).parameters.values()
    named = (p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    return [p.name for p in named if p.default is p.empty]


class Sglang:
    """SGLang's configuration pipeline over a model that is nothing but a ``config.json``."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack

    def model(self, config: Mapping[str, Any] = LLAMA) -> str:
        """Write the model directory and return its path."""
        (self._directory / "config.json").write_text(json.dumps(dict(config)), encoding="utf-8")
        return str(self._directory)

    def args(self, config: Mapping[str, Any] = LLAMA, **fields: Any) -> Any:
        """Build ``ServerArgs`` for the CPU unless ``fields`` say otherwise; validates nothing (since 0.5.20)."""
        from sglang.srt.server_args import ServerArgs

        return ServerArgs(model_path=self.model(config), **{"device": "cpu", **fields})

    def resolve(self, config: Mapping[str, Any] = LLAMA, **fields: Any) -> Any:
        """Build ``ServerArgs`` and run the whole pipeline of checks and defaults over them."""
        args = self.args(config, **fields)
        if hasattr(args, "resolve_once"):  # older releases resolve in the constructor
            args.resolve_once()
        return args

    def pretend(self, **facts: Any) -> None:
        """Let SGLang believe these facts about the platform (``is_cuda=True``) until the test ends."""
        from sglang.srt.runtime_context import override_platform

        self._stack.enter_context(override_platform(**facts))
