"""What a broken law says, in the field's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from pytest_sglhw.conformance.family import Trial


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


def describe(trial: Trial, buffer: str, got: torch.Tensor, want: torch.Tensor) -> list[str]:
    """Say where two images of one buffer first differ, what stands there, and where it comes from."""
    at = first_difference(got, want)
    wrong = int((got != want).sum())
    lines = [
        f"{buffer}: first wrong byte at {trial.locate(buffer, at)}; {wrong} of {len(want)} bytes differ",
        f"got      {_hex(got, at)}",
        f"expected {_hex(want, at)}",
    ]
    origin = trial.origin(buffer, at, got)
    return [*lines, f"the bytes that stand there are those of {origin}"] if origin else lines


def _hex(image: torch.Tensor, at: int, count: int = 8) -> str:
    return bytes(image[at : at + count].tolist()).hex(" ")
