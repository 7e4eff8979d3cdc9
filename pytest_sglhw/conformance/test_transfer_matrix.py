"""The transfer matrix: one item for each kernel, layout, dtype and page size of every provider of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.conformance.hooks import KnownInputItem, MatrixItem, register
from pytest_sglhw.conformance.items import run_item, run_known_input

if TYPE_CHECKING:
    from pytest_sglhw.conformance.providers import FoundProvider


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make the items of this run."""
    matrix = register(metafunc.config)
    if "matrix_item" in metafunc.fixturenames:
        metafunc.parametrize("matrix_item", matrix.items, ids=matrix.ids())
    if "known_input_item" in metafunc.fixturenames:
        known = matrix.known_inputs()
        ids = [f"{row.provider}-{row.kernel}-{row.name}" for _, row in known]
        metafunc.parametrize("known_input_item", known, ids=ids)
    if "faulty_provider" in metafunc.fixturenames:
        faulty = matrix.faulty_providers()
        metafunc.parametrize("faulty_provider", faulty, ids=[found.name for found in faulty])


def test_transfer(matrix_item: MatrixItem, request: pytest.FixtureRequest) -> None:
    """The kernel keeps every law in this cell."""
    run_item(register(request.config), matrix_item, request.node)


def test_known_input(known_input_item: KnownInputItem) -> None:
    """A kernel still fails on an input that it is known to fail on, in a process of its own."""
    run_known_input(*known_input_item)


def test_provider(faulty_provider: FoundProvider) -> None:
    """A provider that is installed loads, and has what it declares."""
    pytest.fail(f"provider {faulty_provider.name!r} {faulty_provider.complaint(promised=True)}", pytrace=False)
