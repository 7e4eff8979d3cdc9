"""What a broken law says, in the field's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from pytest_sglhw.conformance.bench import Bench
    from pytest_sglhw.conformance.family import Law


class BrokenLawError(AssertionError):
    """A kernel broke a law.

    :param law: the law's name.
    :param lines: what was seen, one fact a line.
    """

    def __init__(self, law: str, *lines: str) -> None:
        super().__init__(law, *lines)
        self.law = law
        self.lines = lines

    def __str__(self) -> str:
        return "\n".join((f"law '{self.law}' is broken", *(f"  {line}" for line in self.lines)))


class RejectedError(Exception):
    """An example has nothing to say about the law that was drawn for it."""


def first_difference(got: torch.Tensor, want: torch.Tensor) -> int:
    """The position of the first byte in which two flat uint8 tensors of one length differ."""
    return int((got != want).nonzero()[0])


class Guide(Protocol):
    """Who knows what stands where in a buffer's image: a trial, or the player of a sequence."""

    def locate(self, buffer: str, byte: int) -> str:
        """Say in the field's words what stands at a byte."""

    def origin(self, buffer: str, byte: int, image: torch.Tensor) -> str | None:
        """Say where the bytes that stand there really come from, if it can be told."""


def describe(guide: Guide, buffer: str, got: torch.Tensor, want: torch.Tensor) -> list[str]:
    """Say where two images of one buffer first differ, what stands there, and where it comes from."""
    at = first_difference(got, want)
    wrong = int((got != want).sum())
    lines = [
        f"{buffer}: first wrong byte at {guide.locate(buffer, at)}; {wrong} of {len(want)} bytes differ",
        f"got      {_hex(got, at)}",
        f"expected {_hex(want, at)}",
    ]
    origin = guide.origin(buffer, at, got)
    return [*lines, f"the bytes that stand there are those of {origin}"] if origin else lines


def _hex(image: torch.Tensor, at: int, count: int = 8) -> str:
    return bytes(image[at : at + count].tolist()).hex(" ")


class CellError(AssertionError):
    """A cell failed: what broke, on which smallest example, and how to see it again."""

    def __init__(self, bench: Bench, law: Law | None, case: Any, error: BaseException, steps: int) -> None:
        super().__init__(str(error))
        self.bench, self.law, self.case, self.error, self.steps = bench, law, case, error, steps

    def __str__(self) -> str:
        broken = isinstance(self.error, BrokenLawError)
        what = str(self.error) if broken else f"{type(self.error).__name__}: {self.error}"
        lines = [f"{self.bench.cell.id} of provider {self.bench.provider_name}: {what}"]
        if self.case is not None:
            lines += ["", f"smallest example (found in {self.steps} steps): {self.case}", "", "to see it again:"]
            lines += [f"    {line}" for line in self.snippet().splitlines()]
        return "\n".join(lines)

    def snippet(self) -> str:
        """Python source that shows the failure by itself."""
        case, law = type(self.case), self.law.name if self.law else None
        return (
            f"from {case.__module__} import {case.__qualname__}\n"
            "from pytest_sglhw.conformance.replay import replay\n"
            f"replay({self.bench.provider_name!r}, {tuple(self.bench.cell)!r}, {law!r},\n"
            f"       {self.case!r})"
        )
