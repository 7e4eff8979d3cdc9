"""One kernel of one provider in one cell: builds trials, calls the kernel, counts what really ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_sglhw.conformance.failures import RejectedError
from pytest_sglhw.conformance.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from pytest_sglhw.conformance.call_styles import CallStyle
    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.devices import Place
    from pytest_sglhw.conformance.family import Kernel, KernelFunction, Trial


@dataclass
class Bench:
    """What a law needs: trials of this cell, calls of the kernel, the provider's other kernels."""

    kernel: Kernel
    cell: Cell
    provider: Any
    place: Place
    provider_name: str = "kernels"
    calls: int = 0
    """Calls of the kernel under test that returned."""
    large_trials: int = 0
    """Trials that may still take gigabytes of a device's memory."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Examples that a law had nothing to say about, by reason."""

    def function(self, name: str | None = None) -> KernelFunction:
        """The provider's kernel ``name`` (default: the one under test)."""
        return getattr(self.provider, name or self.kernel.name)  # type: ignore[no-any-return]

    def has(self, name: str) -> bool:
        """Whether the provider has a kernel of that name."""
        return callable(getattr(self.provider, name, None))

    def trial(self, case: Any) -> Trial:
        """Build a trial of ``case`` in this cell."""
        trial = self.kernel.workload.build(self.cell, case, self.place)
        trial.case = case
        return trial

    def run(self, trial: Trial, *, style: CallStyle | None = None, **variation: Any) -> dict[str, torch.Tensor]:
        """Call the kernel once, wait, and return the image of every buffer and of every returned tensor.

        On a CPU the images are the live storage: compare them before the trial is restored or called again.

        :param style: another way to make the call.
        :param variation: fields of the case that this call has otherwise.
        :raises BrokenLawError: of law ``source``, where index tensors, tables or lists are not what they were.
        """
        arguments = trial.arguments(**variation)
        kept = Kept(trial.kept(arguments))
        function = style(self.function()) if style else self.function()
        returned = self.place.call(trial.call, function, arguments)
        self.calls += 1
        kept.check("source")
        return {**images(trial), **returned}

    def reject(self, reason: str) -> NoReturn:
        """Give this example up because the law does not apply to it; another one is drawn in its place."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
        raise RejectedError(reason)


def images(trial: Trial) -> Mapping[str, torch.Tensor]:
    """The image of every buffer of a trial now (live storage where it is on the CPU)."""
    return {name: buffer.image() for name, buffer in trial.buffers.items()}
