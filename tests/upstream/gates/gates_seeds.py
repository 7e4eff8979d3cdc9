"""The two refusals that this project began with, under their own marks, on every release that it knows."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sglang_on_cpu import Sglang

RELEASE = tuple(map(int, version("sglang").split(".")[:3]))
PLATFORMS = "CUDA/ROCm/XPU" if RELEASE >= (0, 5, 21) else "CUDA/ROCm"
HISPARSE = (
    rf"^HiSparse device KV transfer requires sgl_kernel\.kvcacheio \({PLATFORMS}\)\. "
    r"It is not available on this backend\.$"
)
KV4 = r"^KV4 is not tested on non-CUDA platforms\.$"


def _hisparse() -> None:
    from sglang.srt.mem_cache.hisparse_memory_pool import transfer_kv_all_layer_mla

    transfer_kv_all_layer_mla()


def _kv4(sgl: Sglang) -> None:
    sgl.resolve(kv_cache_dtype="fp4_mx_block16" if RELEASE >= (0, 5, 16) else "fp4_e2m1")


@pytest.mark.requires_hisparse(otherwise="raise")
def test_hisparse() -> None:
    _hisparse()


@pytest.mark.requires_kv4(otherwise="raise")
def test_kv4(sgl: Sglang) -> None:
    _kv4(sgl)


@pytest.mark.requires_hisparse(otherwise="raise", raises=RuntimeError, match=HISPARSE)
def test_hisparse_text_of_this_release() -> None:
    _hisparse()


@pytest.mark.requires_kv4(otherwise="raise", raises=RuntimeError, match=KV4)
def test_kv4_text_of_this_release(sgl: Sglang) -> None:
    _kv4(sgl)


@pytest.mark.requires_hisparse(otherwise="raise", match="KV4 is not tested")
def test_hisparse_is_not_kv4() -> None:
    _hisparse()


@pytest.mark.requires_kv4(otherwise="raise", match="HiSparse device KV transfer")
def test_kv4_is_not_hisparse(sgl: Sglang) -> None:
    _kv4(sgl)
