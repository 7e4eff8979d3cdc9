"""Run one example of the matrix by itself: what the snippet of a failure calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_sglhw.conformance import providers
from pytest_sglhw.conformance.bench import Bench
from pytest_sglhw.conformance.cells import Cell
from pytest_sglhw.conformance.checks import examine
from pytest_sglhw.conformance.kernels import all_kernels

if TYPE_CHECKING:
    from collections.abc import Sequence


def replay(provider: str, cell: Sequence[Any], law: str | None, case: Any) -> None:
    """Run one example again.

    :param provider: registered name, module path or ``module:attribute``.
    :param cell: kernel, layout, dtype, page size.
    :param law: the law that was drawn for it, if any.
    :raises BrokenLawError: the law that is broken.
    """
    where = Cell(*cell)
    kernel = all_kernels()[where.kernel]
    found = providers.resolve(provider)
    bench = Bench(kernel, where, found.kernels, found.place(), found.name, large_trials=1)
    examine(bench, next((each for each in kernel.laws if each.name == law), None), case)
    print(f"{where.id} of provider {found.name}: this example holds")
