"""The laws: what must hold of every kernel, one law each, by name.

The four of :data:`ALWAYS` are checked on every example from its first call; of the others one is drawn for each
example from those of the kernel's row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_sglhw.conformance.failures import BrokenLawError, describe
from pytest_sglhw.conformance.family import Law, Sequences
from pytest_sglhw.conformance.kept import Kept
from pytest_sglhw.conformance.tensors import same_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from pytest_sglhw.conformance.bench import Bench
    from pytest_sglhw.conformance.family import ErrorInput, Kernel, KernelFunction, Trial

#: Laws that every example is held to.
ALWAYS: Mapping[str, str] = {
    "vacuous": "the kernel under test is called, writes, and returns no storage of the reference",
    "reference": "selected bytes equal the reference's",
    "untouched": "bytes outside the selection keep their value, guards included",
    "source": "the source keeps its value, as do index tensors, pointer tables and lists of the caller",
}


#: The one law of a sequence of steps: after each of them, every byte of every pool is what a dictionary model says.
SEQUENCE = "sequence"


def laws_of(kernel: Kernel) -> list[str]:
    """The names of all laws that a kernel is held to."""
    return [SEQUENCE] if isinstance(kernel.workload, Sequences) else [*ALWAYS, *(law.name for law in kernel.laws)]


def examine(bench: Bench, law: Law | None, case: object) -> None:
    """Run one example: build ``case``, call the kernel, hold it to the four common laws and to ``law``.

    A case that is a sequence of steps is played instead, and held to :data:`SEQUENCE` after each of them.
    """
    if isinstance(bench.kernel.workload, Sequences):
        bench.kernel.workload.play(bench, case)
        return
    trial = bench.trial(case)
    trial.first = check_always(trial, bench.run(trial))
    if law is not None:
        law.check(bench, trial)


def check_always(trial: Trial, got: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Hold the images after one call to the four common laws; return what they must be."""
    want = trial.expected()
    _check_own_storage(got, want)
    for name, buffer in trial.buffers.items():
        if name not in want and not same_bytes(got[name], buffer.before):
            raise BrokenLawError("source", *describe(trial, name, got[name], buffer.before))
    _check_not_idle(trial, got, want)
    for name, image in want.items():
        if not same_bytes(got[name], image):
            raise BrokenLawError(_which(trial, name, got[name], image), *describe(trial, name, got[name], image))
    return {**{name: buffer.before for name, buffer in trial.buffers.items()}, **want}


def _check_own_storage(got: Mapping[str, torch.Tensor], want: Mapping[str, torch.Tensor]) -> None:
    theirs = {image.untyped_storage().data_ptr() for image in want.values() if image.numel()}
    for name, image in got.items():
        if image.untyped_storage().data_ptr() in theirs:
            raise BrokenLawError("vacuous", f"{name}: the kernel gave back the storage of the reference itself")


def _check_not_idle(trial: Trial, got: Mapping[str, torch.Tensor], want: Mapping[str, torch.Tensor]) -> None:
    written = [name for name in want if name in trial.buffers]
    changed = [name for name in written if not same_bytes(want[name], trial.buffers[name].before)]
    if changed and all(same_bytes(got[name], trial.buffers[name].before) for name in written):
        raise BrokenLawError("vacuous", f"the kernel wrote nothing at all; it should have changed {', '.join(changed)}")


def _which(trial: Trial, name: str, got: torch.Tensor, want: torch.Tensor) -> str:
    """Tell a wrong byte inside the selection from a byte that should not have been touched at all."""
    if name not in trial.buffers:
        return "reference"
    wrong = got != want
    outside = want == trial.buffers[name].before
    return "untouched" if bool((wrong & outside).sum() * 2 > wrong.sum()) else "reference"


def check_same(law: str, what: str, trial: Trial, got: Mapping[str, torch.Tensor]) -> None:
    """Hold: ``got`` equals what the trial's first call gave."""
    for name, image in trial.first.items():
        if not same_bytes(got[name], image):
            raise BrokenLawError(law, f"{what} gave other bytes", *describe(trial, name, got[name], image))


def same_by(name: str, summary: str) -> Law:
    """Make the law that every other way of ``Trial.ways(name)`` gives the bytes of the first call.

    An example is rejected where there are other ways, and none of them is open with the kernel at hand.
    """

    def check(bench: Bench, trial: Trial) -> None:
        ways = list(trial.ways(name))
        possible = [way for way in ways if _is_possible(way, bench.function())]
        if ways and not possible:
            bench.reject(f"{name}: the kernel's signature does not say that it takes the released names and defaults")
        for way in possible:
            trial.restore()
            for variation in way:
                got = bench.run(trial, **variation)
            check_same(name, f"the call with {_words(way)}", trial, got)

    return Law(name, summary, check)


def _is_possible(way: Sequence[Mapping[str, Any]], function: KernelFunction) -> bool:
    return all(call["style"].fits(function) for call in way if "style" in call)


def _words(way: Sequence[Mapping[str, Any]]) -> str:
    return ", then ".join(
        ", ".join(f"{key}={value}" for key, value in call.items()) or "the same arguments" for call in way
    )


def check_errors(bench: Bench, trial: Trial) -> None:
    """Hold: every wrong input raises its documented error and touches nothing."""
    trial.restore()
    valid = trial.arguments()
    kept = Kept(trial.kept(valid))
    for wrong in bench.kernel.workload.errors(trial):
        if wrong.needs and not bench.has(wrong.needs):
            continue
        arguments = list(valid)
        wrong.change(arguments)
        _check_refused(wrong, _outcome(bench, trial, arguments))
        kept.check("errors")
        for name, buffer in trial.buffers.items():
            if not same_bytes(buffer.image(), buffer.before):
                lines = describe(trial, name, buffer.image(), buffer.before)
                raise BrokenLawError("errors", f"{wrong.name}: refused, but only after it had written", *lines)


def _outcome(bench: Bench, trial: Trial, arguments: list[Any]) -> BaseException | None:
    try:
        bench.place.call(trial.call, bench.function(), arguments)
    except Exception as error:  # noqa: BLE001 - whatever a kernel raises is what is judged
        return error
    return None


def _check_refused(wrong: ErrorInput, error: BaseException | None) -> None:
    classes = wrong.error if isinstance(wrong.error, tuple) else (wrong.error,)
    if isinstance(error, classes) and wrong.match in str(error):
        return
    names = " or ".join(kind.__name__ for kind in classes)
    got = "it raised nothing" if error is None else f"it raised {type(error).__name__}: {error}"
    raise BrokenLawError("errors", wrong.name, f"must raise {names} with the text {wrong.match!r}", got)


#: Laws that a kernel's row may name, beyond those that its family adds.
LAWS: Mapping[str, Law] = {
    law.name: law
    for law in (
        same_by("repeat", "the same call on the same bytes gives the same result, on several threads too"),
        same_by("keywords", "a call by names, and one that leaves the launch to its defaults, give the same result"),
        same_by("quota", "the block quota and the number of warps change nothing"),
        same_by("split", "splitting an index set gives the same bytes"),
        Law("errors", "wrong inputs raise the documented class and text and touch nothing", check_errors),
    )
}
