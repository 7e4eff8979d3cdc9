"""The last rung of a probe: one tiny real use of a capability, compared with what it must give.

Runs in the probe's child process only. Each function takes no arguments; it returns ``True`` where the capability works
and ``False`` where the machine lacks it, and raises where it is there and broken (``WrongBytesError`` for bytes that
are not the right ones). ``UndecidedError``: torch failed before the capability was used.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from pytest_sglhw.registry.platforms import BUILTIN_PLATFORMS

if TYPE_CHECKING:
    import torch

_ROWS, _WIDTH = 8, 64


class WrongBytesError(AssertionError):
    """A kernel ran and left other bytes than the ones it was asked to leave."""


class UndecidedError(RuntimeError):
    """A check could not be made: torch failed before the capability was used, which says nothing about it."""

    undecided = True


@contextmanager
def _preparing() -> Iterator[None]:
    """What is done in here is not yet the capability: if it fails, that one is unknown, not broken."""
    try:
        yield
    except Exception as error:
        raise UndecidedError(f"could not be made: {type(error).__name__}: {error}") from error


def kvcacheio() -> bool:
    """Move three rows of K and of V between device pools with ``transfer_kv_per_layer``."""
    from sgl_kernel.kvcacheio import transfer_kv_per_layer

    with _preparing():
        device = _device()
        src_k, src_v = _pattern(1).to(device), _pattern(2).to(device)
        dst_k, dst_v = _pattern(3).to(device), _pattern(4).to(device)
        src, dst = _indices(device)
        expected_k, expected_v = _moved(1, 3), _moved(2, 4)
    transfer_kv_per_layer(src_k, dst_k, src_v, dst_v, src, dst, _WIDTH)
    _expect("transfer_kv_per_layer, K", dst_k, expected_k)
    _expect("transfer_kv_per_layer, V", dst_v, expected_v)
    return True


def kvcacheio_direct() -> bool:
    """Move three rows from host to device memory with ``transfer_kv_direct``."""
    from sgl_kernel.kvcacheio import transfer_kv_direct

    with _preparing():
        host, device = _pattern(1), _pattern(3).to(_device())
        src, dst = _indices("cpu")
        expected = _moved(1, 3)
    transfer_kv_direct([host], [device], src, dst, 1)
    _expect("transfer_kv_direct", device, expected)
    return True


def jit_toolchain() -> bool:
    """Look for the compiler that SGLang's JIT kernels need on this build of torch."""
    import torch

    return shutil.which("hipcc" if torch.version.hip else "nvcc") is not None


def triton() -> bool:
    """Launch one Triton kernel that adds one to eight integers."""
    import torch

    from pytest_sglhw.environment.smoke_triton import add_one

    with _preparing():
        values = torch.arange(_ROWS, device=_device(), dtype=torch.int32)
    add_one[(1,)](values, _ROWS)
    _expect("a Triton kernel", values, torch.arange(1, _ROWS + 1, dtype=torch.int32))
    return True


def fp8() -> bool:
    """Multiply two small matrices of ones in FP8."""
    import torch

    with _preparing():
        device = _device()
        ones, scale = torch.ones(32, 32, device=device), torch.ones((), device=device)
    dtype = torch.float8_e4m3fnuz if _is_gfx942() else torch.float8_e4m3fn
    ones = ones.to(dtype)
    product = torch._scaled_mm(ones, ones.t(), scale, scale, out_dtype=torch.bfloat16)
    _expect("an FP8 matrix product", product, torch.full((32, 32), 32.0, dtype=torch.bfloat16))
    return True


def cuda_graph() -> bool:
    """Capture one addition in a CUDA graph and replay it twice."""
    import torch

    with _preparing():
        value = torch.zeros(_ROWS, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value += 1
    value.zero_()
    graph.replay()
    graph.replay()
    _expect("a replayed CUDA graph", value, torch.full((_ROWS,), 2.0))
    return True


def p2p() -> bool:
    """Copy a row from the first device to the second, where they can reach each other."""
    import torch

    if torch.cuda.device_count() < 2 or not torch.cuda.can_device_access_peer(0, 1):
        return False
    with _preparing():
        original = _pattern(1).to("cuda:0")
    copy = original.to("cuda:1")
    _expect("a copy between two devices", copy, _pattern(1))
    return True


def cpu_engine() -> bool:
    """Look whether SGLang would take its CPU engine here, where torch has no accelerator."""
    return _accelerator() is not None or os.environ.get("SGLANG_USE_CPU_ENGINE") == "1"


def elastic_ep() -> bool:
    """Import SGLang where it would take this machine; elsewhere it makes no difference whether it imports."""
    if not cpu_engine():
        return False
    return import_module("sglang.srt.utils").__file__ is not None


def amx() -> bool:
    """Ask for what SGLang's AMX paths ask for: its CPU engine, AMX tiles and the kernel that packs weights."""
    import torch

    tiles = torch.cpu._is_amx_tile_supported()
    return bool(cpu_engine() and tiles and hasattr(torch.ops.sgl_kernel, "convert_weight_packed"))


def _device() -> str:
    """Name torch's accelerator; ``cuda`` on ROCm."""
    found = _accelerator()
    if found is None:
        raise RuntimeError("torch has no accelerator in this process")
    return found


def _accelerator() -> str | None:
    """Ask each kind of device first: ``torch.accelerator`` is new in 2.6, and names what is built without a device."""
    import torch

    for platform in BUILTIN_PLATFORMS:
        available = getattr(getattr(torch, platform.api, None), "is_available", None)
        if available is not None and available():
            return platform.device_type
    general = getattr(torch, "accelerator", None)
    if general is None or not general.is_available():
        return None
    return str(general.current_accelerator().type)


def _is_gfx942() -> bool:
    import torch

    return bool(torch.version.hip) and "gfx942" in torch.cuda.get_device_properties(0).gcnArchName


def _pattern(seed: int) -> torch.Tensor:
    """Fill rows of bytes so that no two bytes at one place agree between seeds, rows or neighbours."""
    import torch

    row, column = torch.arange(_ROWS)[:, None], torch.arange(_WIDTH)[None, :]
    return ((row * 37 + column * 5 + seed * 61) % 251).to(torch.uint8)


def _indices(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    source, destination = [6, 1, 3], [0, 5, 2]
    return torch.tensor(source, device=device), torch.tensor(destination, device=device)


def _moved(source: int, destination: int) -> torch.Tensor:
    src, dst = _indices("cpu")
    expected = _pattern(destination)
    expected[dst] = _pattern(source)[src]
    return expected


def _expect(what: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    wrong = int((found.cpu() != expected).sum())
    if wrong:
        raise WrongBytesError(f"{what} left {wrong} of {expected.numel()} values wrong")
