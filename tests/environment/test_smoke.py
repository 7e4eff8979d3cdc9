"""The smoke checks accept kernels that leave the right bytes and refuse those that do not."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from pytest_sglhw import kvcacheio  # noqa: E402
from pytest_sglhw.environment import smoke  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.torch


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package ``sgl_kernel`` whose transfer kernels are this project's, on a machine whose device is its CPU."""
    package, module = ModuleType("sgl_kernel"), ModuleType("sgl_kernel.kvcacheio")
    vars(module).update({name: getattr(kvcacheio, name) for name in kvcacheio.__all__})
    vars(package)["kvcacheio"] = module
    monkeypatch.setitem(sys.modules, "sgl_kernel", package)
    monkeypatch.setitem(sys.modules, "sgl_kernel.kvcacheio", module)
    monkeypatch.setattr(smoke, "_device", lambda: "cpu")
    return module


def _nothing(*arguments: Any) -> None:
    """A kernel that is there and does nothing."""


def _swapped(src_k: Any, dst_k: Any, src_v: Any, dst_v: Any, *rest: Any) -> None:
    kvcacheio.transfer_kv_per_layer(src_k, dst_v, src_v, dst_k, *rest)


def _one_short(src_k: Any, dst_k: Any, src_v: Any, dst_v: Any, src: Any, dst: Any, *rest: Any) -> None:
    kvcacheio.transfer_kv_per_layer(src_k, dst_k, src_v, dst_v, src[:-1], dst[:-1], *rest)


def _half_rows(src_k: Any, dst_k: Any, src_v: Any, dst_v: Any, src: Any, dst: Any, item_size: int) -> None:
    kvcacheio.transfer_kv_per_layer(src_k, dst_k, src_v, dst_v, src * 2, dst * 2, item_size // 2)


@pytest.mark.parametrize("check", [smoke.kvcacheio, smoke.kvcacheio_direct])
def test_right_bytes(kernels: ModuleType, check: Callable[[], bool]) -> None:
    """Kernels that keep the contract pass."""
    assert check() is True


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (_nothing, "transfer_kv_per_layer, K left 192 of 512 values wrong"),
        (_swapped, "transfer_kv_per_layer, K left 192 of 512 values wrong"),
        (_one_short, "transfer_kv_per_layer, K left 64 of 512 values wrong"),
        (_half_rows, "transfer_kv_per_layer, K left 96 of 512 values wrong"),
    ],
)
def test_wrong_bytes(kernels: ModuleType, kernel: Callable[..., None], said: str) -> None:
    """A kernel that runs and leaves other bytes is broken, and the error counts them."""
    vars(kernels)["transfer_kv_per_layer"] = kernel
    with pytest.raises(smoke.WrongBytesError) as error:
        smoke.kvcacheio()
    assert str(error.value) == said


def test_direct_that_does_nothing(kernels: ModuleType) -> None:
    """The check of the direct transfer has teeth too."""
    vars(kernels)["transfer_kv_direct"] = _nothing
    with pytest.raises(smoke.WrongBytesError, match=r"^transfer_kv_direct left 192 of 512 values wrong$"):
        smoke.kvcacheio_direct()


def test_fp8(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own FP8 product on a CPU gives what the check expects of a device."""
    monkeypatch.setattr(smoke, "_device", lambda: "cpu")
    assert smoke.fp8() is True


def test_without_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that can say "not here" say so; the others are never asked on such a machine, and name the reason."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.delenv("SGLANG_USE_CPU_ENGINE", raising=False)
    assert [smoke.p2p(), smoke.cpu_engine(), smoke.amx()] == [False, False, False]
    with pytest.raises(RuntimeError, match=r"^torch has no accelerator in this process$"):
        smoke._device()


@pytest.mark.parametrize("accelerator", [None, torch.accelerator])
def test_device_of_a_namespace(monkeypatch: pytest.MonkeyPatch, accelerator: ModuleType | None) -> None:
    """The device is what its own namespace of torch says, with or without ``torch.accelerator`` (new in 2.6)."""
    monkeypatch.setattr(torch, "accelerator", accelerator)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    assert smoke._device() == "xpu"


def test_a_build_without_a_device_has_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """``current_accelerator`` of a CUDA build says ``cuda`` on a machine without any; that is no accelerator."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.delenv("SGLANG_USE_CPU_ENGINE", raising=False)
    assert smoke.cpu_engine() is torch.accelerator.is_available()


def test_a_platform_of_others_is_asked_in_general(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device type that no row names is still torch's accelerator."""
    for name in ("cuda", "xpu", "mps"):
        monkeypatch.setattr(getattr(torch, name), "is_available", lambda: False, raising=False)
    general = SimpleNamespace(
        is_available=lambda: True, current_accelerator=lambda: SimpleNamespace(type="privateuseone")
    )
    monkeypatch.setattr(torch, "accelerator", general)
    assert smoke._device() == "privateuseone"


def test_cpu_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's CPU engine is what its variable says, exactly as SGLang reads it."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    for value, expected in (("1", True), ("true", False), ("0", False)):
        monkeypatch.setenv("SGLANG_USE_CPU_ENGINE", value)
        assert smoke.cpu_engine() is expected


@pytest.mark.parametrize(("hip", "program"), [(None, "nvcc"), ("7.0", "hipcc")])
def test_jit_toolchain(monkeypatch: pytest.MonkeyPatch, hip: str | None, program: str) -> None:
    """The compiler that is looked for is the one of torch's build."""
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(smoke.shutil, "which", lambda name: f"/bin/{name}" if name == program else None)
    assert smoke.jit_toolchain() is True
    monkeypatch.setattr(smoke.shutil, "which", lambda name: None)
    assert smoke.jit_toolchain() is False
