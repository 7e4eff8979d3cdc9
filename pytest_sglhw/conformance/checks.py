"""The laws: what must hold of every kernel, one law each, by name.

The four of :data:`ALWAYS` are checked on every example from its first call; of the others one is drawn for each
example from those of the kernel's row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_sglhw.conformance.failures import BrokenLawError, describe
from pytest_sglhw.conformance.family import Law

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_sglhw.conformance.bench import Bench
    from pytest_sglhw.conformance.family import Trial

#: Laws that every example is held to.
ALWAYS: Mapping[str, str] = {
    "vacuous": "the kernel under test is called, writes, and returns no storage of the reference",
    "reference": "selected bytes equal the reference's",
    "untouched": "bytes outside the selection keep their value, guards included",
    "source": "the source keeps its value",
}


def examine(bench: Bench, law: Law, case: object) -> None:
    """Run one example: build ``case``, call the kernel, hold it to the four common laws and to ``law``."""
    trial = bench.trial(case)
    got = bench.run(trial)
    check_always(trial, got)
    trial.first = {name: image.clone() for name, image in got.items()}
    law.check(bench, trial)


def check_always(trial: Trial, got: Mapping[str, torch.Tensor]) -> None:
    """Hold the images after one call to the four common laws."""
    want = trial.expected()
    _check_own_storage(got, want)
    for name, buffer in trial.buffers.items():
        if name not in want and not torch.equal(got[name], buffer.before):
            raise BrokenLawError("source", *describe(trial, name, got[name], buffer.before))
    _check_not_idle(trial, got, want)
    for name, image in want.items():
        if not torch.equal(got[name], image):
            raise BrokenLawError(_which(trial, name, got[name], image), *describe(trial, name, got[name], image))


def _check_own_storage(got: Mapping[str, torch.Tensor], want: Mapping[str, torch.Tensor]) -> None:
    theirs = {image.untyped_storage().data_ptr() for image in want.values() if image.numel()}
    for name, image in got.items():
        if image.untyped_storage().data_ptr() in theirs:
            raise BrokenLawError("vacuous", f"{name}: the kernel gave back the storage of the reference itself")


def _check_not_idle(trial: Trial, got: Mapping[str, torch.Tensor], want: Mapping[str, torch.Tensor]) -> None:
    written = [name for name in want if name in trial.buffers]
    changed = [name for name in written if not torch.equal(want[name], trial.buffers[name].before)]
    if changed and all(torch.equal(got[name], trial.buffers[name].before) for name in written):
        raise BrokenLawError("vacuous", f"the kernel wrote nothing at all; it should have changed {', '.join(changed)}")


def _which(trial: Trial, name: str, got: torch.Tensor, want: torch.Tensor) -> str:
    """Tell a wrong byte inside the selection from a byte that should not have been touched at all."""
    if name not in trial.buffers:
        return "reference"
    wrong = got != want
    outside = want == trial.buffers[name].before
    return "untouched" if bool((wrong & outside).sum() * 2 > wrong.sum()) else "reference"


def check_repeat(bench: Bench, trial: Trial) -> None:
    """Hold: the same call on the same bytes gives the same result."""
    trial.restore()
    check_same("repeat", "the same call again", trial, bench.run(trial))


def check_same(law: str, what: str, trial: Trial, got: Mapping[str, torch.Tensor]) -> None:
    """Hold: ``got`` equals what the trial's first call gave."""
    for name, image in trial.first.items():
        if not torch.equal(got[name], image):
            raise BrokenLawError(law, f"{what} gave other bytes", *describe(trial, name, got[name], image))


REPEAT = Law("repeat", "the same call on the same bytes gives the same result", check_repeat)
