"""Faults planted in correct kernels: each names the law that must kill it. Run by ``sglhw conformance --self-test``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_sglhw.conformance.mutants import direct, launched, reach, refusals, sequences, slots

if TYPE_CHECKING:
    from pytest_sglhw.conformance.mutants.planting import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *launched.MUTANTS,
    *direct.MUTANTS,
    *refusals.MUTANTS,
    *reach.MUTANTS,
    *slots.MUTANTS,
    *sequences.MUTANTS,
)
