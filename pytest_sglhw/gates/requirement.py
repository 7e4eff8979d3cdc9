"""What a test asks of the machine: one ``Need`` per mark, all of which must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pytest_sglhw.record import Record

if TYPE_CHECKING:
    import re

Otherwise = Literal["skip", "raise"]


class Documented(Record):
    """An error or warning that a refusal is documented to end in.

    ``classes`` are classes, or dotted names of classes that nobody here may import. ``source`` says who documents it.
    """

    classes: tuple[type[BaseException] | str, ...]
    pattern: re.Pattern[str] | None
    source: str

    def __str__(self) -> str:
        names = " or ".join(cls if isinstance(cls, str) else cls.__name__ for cls in self.classes)
        matching = f" matching {self.pattern.pattern!r}" if self.pattern else ""
        return f"{names}{matching} ({self.source})"


class Need(Record):
    """What one mark asks.

    ``platforms`` are the accepted ones: empty for any, ``None`` for any but ``cpu``. ``min_memory`` (in all) and
    ``min_free_memory`` (when the test is set up) are in bytes, for each device.
    ``documented`` is what must be raised where the need does not hold and ``otherwise`` is ``"raise"``.
    """

    mark: str
    text: str
    platforms: tuple[str, ...] | None = ()
    capabilities: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    min_arch: str | None = None
    min_devices: int | None = None
    min_memory: int | None = None
    min_free_memory: int | None = None
    otherwise: Otherwise = "skip"
    documented: tuple[Documented, ...] = ()
    reason: str | None = None
    vacuous_because: str | None = None

    @property
    def asks_devices(self) -> bool:
        """Say whether the need looks at single devices."""
        return bool(self.min_devices or self.archs or self.min_arch or self.min_memory or self.min_free_memory)

    @property
    def names_platforms_alone(self) -> bool:
        """Say whether the need looks at the kind of accelerator and at nothing else."""
        return not (self.asks_devices or self.capabilities)


Requirement = tuple[Need, ...]


def describe(requirement: Requirement) -> str:
    """Give the readable form of a requirement: its marks as they would be written."""
    return ", ".join(need.text for need in requirement)
