"""``sglhw conformance --self-test``: plant each fault, run the cells of its kernel, and show which law kills it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_sglhw import kvcacheio
from pytest_sglhw.conformance.bench import Bench
from pytest_sglhw.conformance.checks import laws_of
from pytest_sglhw.conformance.devices import Place
from pytest_sglhw.conformance.failures import CellError
from pytest_sglhw.conformance.kernels import all_kernels
from pytest_sglhw.conformance.mutants import MUTANTS, models
from pytest_sglhw.conformance.mutants.planting import plant_in
from pytest_sglhw.conformance.runner import PROFILES, CellRun, Effort
from pytest_sglhw.conformance.virtual import ADDRESSES

if TYPE_CHECKING:
    from pytest_sglhw.conformance.family import Kernel
    from pytest_sglhw.conformance.mutants.planting import Mutant

#: The correct kernels that faults are planted in.
RIGHT = SimpleNamespace(**{**vars(kvcacheio), **vars(models)})


class Verdict(NamedTuple):
    """What became of one mutant in one kernel."""

    mutant: Mutant
    kernel: str
    killer: str | None
    """The law that killed it, or the class of the exception that it raised; ``None``: it survived."""
    cell: str
    examples: int
    """Examples run up to and with the one that killed it."""

    @property
    def is_right(self) -> bool:
        """Whether it was killed as it must be."""
        return self.killer in self.mutant.laws

    def line(self) -> str:
        """The row of the table."""
        killer = self.killer or "SURVIVED"
        killer += "" if self.is_right or not self.killer else " (WRONG)"
        expected = " or ".join(self.mutant.laws)
        return f"{self.mutant.name:44}  {killer:20}  {expected:44}  {self.examples:8}  {self.cell}"


def run(profile: str = "ci", seed: int = 0, kernels: Sequence[str] = ()) -> int:
    """Run every mutant (of ``kernels``, where some are named), print the table; return 0 if all died as they must."""
    torch.set_num_threads(1)  # buffers are small
    print(f"{'mutant':44}  {'killed by':20}  {'expected':44}  examples  cell")
    found = []
    for verdict in verdicts(MUTANTS, PROFILES[profile], seed, kernels):
        print(verdict.line(), flush=True)
        found.append(verdict)
    problems = list(_problems(found, every_law=not kernels))
    print(f"\n{_summary(found)} Profile {profile}, seed {seed}.")
    for problem in problems:
        print(f"  {problem}")
    return 1 if problems else 0


def kernels_with_mutants() -> list[str]:
    """The kernels that some fault is planted in."""
    return list(dict.fromkeys(name for mutant in MUTANTS for name in mutant.kernels))


def verdicts(mutants: Iterable[Mutant], effort: Effort, seed: int, kernels: Sequence[str] = ()) -> Iterator[Verdict]:
    """Run mutants, each in each of its kernels."""
    for mutant in mutants:
        for name in mutant.kernels:
            if not kernels or name in kernels:
                yield examine_mutant(mutant, all_kernels()[name], effort, seed)


def examine_mutant(mutant: Mutant, kernel: Kernel, effort: Effort, seed: int) -> Verdict:
    """Run the cells of a kernel with a fault planted in it, in an order of the seed's, up to the first that fails."""
    if ADDRESSES.name not in mutant.laws:  # a wrong address in reserved memory would end this process
        kernel = _without(kernel, ADDRESSES.name)
    provider = SimpleNamespace(**{**vars(RIGHT), **plant_in(mutant, kernel.name, RIGHT)})
    cells, place, examples = kernel.cells(), Place("cpu"), 0
    random.Random(seed).shuffle(cells)
    for cell in cells:
        run_of_cell = CellRun(Bench(kernel, cell, provider, place, "mutant"), effort._replace(reduction=0), seed)
        error = _failure(run_of_cell)
        examples += run_of_cell.tally.examples
        if error is not None:
            killer = getattr(error.error, "law", type(error.error).__name__)
            return Verdict(mutant, kernel.name, killer, cell.id, examples + 1)
    return Verdict(mutant, kernel.name, None, kernel.name, examples)


def _without(kernel: Kernel, law: str) -> Kernel:
    return replace(kernel, laws=tuple(each for each in kernel.laws if each.name != law))


def _failure(run_of_cell: CellRun) -> CellError | None:
    try:
        run_of_cell.run()
    except CellError as error:
        return error
    return None


def _problems(found: Sequence[Verdict], *, every_law: bool) -> Iterator[str]:
    for verdict in found:
        where = f"{verdict.mutant.name!r} in {verdict.kernel}"
        if verdict.killer is None:
            yield f"survivor: {where}: {verdict.mutant.why}"
        elif not verdict.is_right:
            yield f"wrong law: {where} was killed by {verdict.killer}, not by {' or '.join(verdict.mutant.laws)}"
    if every_law:
        killers = {verdict.killer for verdict in found}
        yield from (f"idle law: {law} killed nothing" for law in laws() if law not in killers)


def laws() -> list[str]:
    """Every law that the matrix has."""
    return list(dict.fromkeys(name for kernel in all_kernels().values() for name in laws_of(kernel)))


def _summary(found: Sequence[Verdict]) -> str:
    faults, killed = len({id(verdict.mutant) for verdict in found}), sum(verdict.is_right for verdict in found)
    kills = Counter(verdict.killer for verdict in found if verdict.killer)
    words = ", ".join(f"{law} {count}" for law, count in kills.most_common())
    return f"{faults} mutants in {len(found)} places, {killed} killed as they must be. Kills by law: {words or 'none'}."
