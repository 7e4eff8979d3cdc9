"""The table of row widths: which the register kernel and the TMA kernel take."""

from __future__ import annotations

import pytest

from pytest_sglhw.conformance.families.selection import Machine, register_kernel, tma_kernel

AMPERE, HOPPER, ROCM, CPU = Machine("cuda", 8), Machine("cuda", 9), Machine("rocm"), Machine("cpu")


@pytest.mark.parametrize(
    ("width", "cuda", "rocm"),
    [(8, False, False), (16, False, False), (64, False, True), (96, False, True), (128, True, True), (256, True, True),
     (512, True, True), (576, False, True), (656, False, False), (1024, True, True), (1152, True, True)],
)  # fmt: skip
def test_register_kernel(width, cuda, rocm):
    """CUDA wants rounds of 128 bytes; ROCm takes 64, 32 and 16 too where each thread still moves 4, 8 or 16."""
    assert register_kernel(width, AMPERE) is cuda
    assert register_kernel(width, ROCM) is rocm
    assert register_kernel(width, CPU) is False


@pytest.mark.parametrize(
    ("width", "page_size", "taken"),
    [(576, 32, True), (576, 16, False), (1152, 16, True), (256, 128, True), (256, 64, False), (72, 128, False),
     (32768, 1, True), (16, 128, True)],
)  # fmt: skip
def test_tma_kernel(width, page_size, taken):
    """Rows of whole 16 bytes, and pages that are whole chunks; NVIDIA from major 9 on."""
    assert tma_kernel(width, page_size, HOPPER) is taken
    assert not any(tma_kernel(width, page_size, machine) for machine in (AMPERE, ROCM, CPU))
