"""Situations of an installed (or half installed) kernel package, on a machine that should have its kernels."""

from __future__ import annotations

import pytest
from hostile import NATIVE, TENSORS, doctor, h100, namespace, torch_package

FUNCTIONS = "def transfer_kv_per_layer(*a, **k): raise RuntimeError('fake')\n"
PACKAGE = {"sgl_kernel/__init__.py": "", "sgl_kernel/kvcacheio.py": FUNCTIONS}
NO_OPS = torch_package(namespace("cuda") + TENSORS, cuda="13.0")
CPU_OPS = torch_package(namespace("cuda") + TENSORS + NATIVE.format(prefix="sgl_kernel::", key="CPU"), cuda="13.0")
MOCK = "import sys, unittest.mock\nsys.modules[__name__] = unittest.mock.MagicMock()\n"
METADATA = "Metadata-Version: 2.1\nName: sglang-kernel-xpu\nVersion: 0.0.1\n"
LIBRARY = "raise ImportError('libnvrtc.so.13: cannot open shared object file: No such file or directory')"

#: files -> state of kvcacheio, words of its reason.
SITUATIONS = {
    "nothing": (h100(), "unavailable", "is not installed"),
    "missing_library": (h100() | PACKAGE | {"sgl_kernel/__init__.py": LIBRARY}, "broken", "libnvrtc.so.13"),
    "distribution_without_module": (
        h100() | {"sglang_kernel_xpu-0.0.1.dist-info/METADATA": METADATA},
        "broken",
        "sglang-kernel-xpu 0.0.1 is installed, but brings no module sgl_kernel.kvcacheio",
    ),
    "empty_folder": (h100() | {"sgl_kernel/README": ""}, "unavailable", "no module sgl_kernel.kvcacheio"),
    "plain_file": (h100() | {"sgl_kernel.py": ""}, "unavailable", "no module sgl_kernel.kvcacheio"),
    "pure_python": (NO_OPS | PACKAGE, "broken", "importable, not native"),
    "other_backend": (CPU_OPS | PACKAGE, "broken", "importable, not native"),
    "old_release": (h100(prefix="sgl_kernel::transfer_kv_per") | PACKAGE, "unavailable", "kernels are not there"),
    "raises": (h100() | PACKAGE | {"sgl_kernel/__init__.py": "raise RuntimeError('x')"}, "broken", "RuntimeError: x"),
    "mock": (h100() | PACKAGE | {"sgl_kernel/kvcacheio.py": MOCK}, "broken", "importable, not native"),
    "mock_package": (h100() | PACKAGE | {"sgl_kernel/__init__.py": MOCK}, "broken", ""),
    "fails_in_use": (h100() | PACKAGE, "broken", "the check"),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_kernel_package_has_its_true_state(tmp_path, situation):
    """Importable is not available, and not installed is not broken."""
    files, state, words = SITUATIONS[situation]
    seen = doctor(tmp_path, files)

    assert (seen.state("kvcacheio"), words in seen.reason("kvcacheio")) == (state, True), seen.reason("kvcacheio")


def test_each_kernel_has_its_own_state(tmp_path):
    """An old release has some kernels and lacks others."""
    seen = doctor(tmp_path, h100(prefix="sgl_kernel::transfer_kv_per") | PACKAGE)

    kernels = seen.record["kernels"]["kvcacheio"]
    assert kernels["transfer_kv_per_layer"]["state"] == "available"
    assert kernels["transfer_kv_all_layer"]["state"] == "unavailable"


def test_doctor_says_what_is_missing_even_where_the_platform_settles_it(tmp_path):
    """On a CPU machine the kernels are unavailable, and the evidence names the library they would lack."""
    cpu = torch_package(TENSORS, __version__="2.11.0+cpu")
    seen = doctor(tmp_path, cpu | PACKAGE | {"sgl_kernel/__init__.py": LIBRARY})

    found = seen.record["capabilities"]["kvcacheio"]
    assert found["state"] == "unavailable"
    assert "make these libraries loadable: libnvrtc.so.13" in found["evidence"]
