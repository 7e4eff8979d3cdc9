"""What a family of kernels gives to the matrix: rows of :class:`Kernel`, a :class:`Workload`, and its :class:`Trial`.

The framework does everything that is the same for all kernels: explicit covering rows and Hypothesis draws, running the
laws, counting, reduction of a failing case, isolation, reports. A family says what a case is, how to build its
buffers, how to call the kernel, and what the truth is. See ``docs/conformance.md``, section "Add a family".
"""

# ruff: noqa: ARG002 (a default implementation has no use for what it is given)

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from pytest_sglhw.conformance.cells import DTYPES, PAGE_SIZES, Cell, cells_of

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    import torch
    from hypothesis.stateful import RuleBasedStateMachine

    from pytest_sglhw.conformance.bench import Bench
    from pytest_sglhw.conformance.devices import Place
    from pytest_sglhw.conformance.pools import Buffer

T = TypeVar("T")

KernelFunction = Callable[..., Any]


class Draw(Protocol):
    """Where the choices of a case come from: Hypothesis, or a seeded generator with some choices pinned."""

    def choice(self, name: str, values: Sequence[T]) -> T:
        """Choose one of ``values`` for the factor ``name``; the first one is the simplest."""

    def random(self) -> random.Random:
        """A generator for everything whose value need not be simple: index sets, offsets, the seed of the bytes.

        One draw pays for all of it, which is what keeps an example cheap.
        """


class Law(NamedTuple):
    """One thing that must hold, with the name by which failures and mutants call it."""

    name: str
    summary: str
    check: Callable[[Bench, Trial], None]
    """``check(bench, trial)`` raises :class:`~pytest_sglhw.conformance.failures.BrokenLawError` where it does not hold.

    It is called after the trial's first call, whose result (``trial.first``) already equals the reference; it may
    restore and call the trial again with ``bench.run(trial, ...)``, or build others with ``bench.trial(case)``.
    """


class ErrorInput(NamedTuple):
    """One input that a kernel must refuse, touching nothing."""

    name: str
    """What is wrong, in words: ``source indices of type int32``."""
    change: Callable[[list[Any]], None]
    """Spoils the positional arguments in place."""
    error: type[BaseException] | tuple[type[BaseException], ...]
    match: str
    """Text that the message must contain."""
    needs: str = ""
    """A function that the provider must have, where only such providers can refuse the input."""


class Bulk(NamedTuple):
    """One large case, by which bandwidth is measured."""

    case: Any
    way: str
    """Direction and launch, in words: ``host to device, quota 2``."""
    source: str
    """Where the bytes come from: ``host`` or ``device``."""
    target: str
    nbytes: int
    """Bytes that have to arrive, each counted once."""


class Trial(ABC):
    """One case, built: buffers in memory, arguments ready, the truth computable.

    ``buffers`` holds every buffer by its name in words (``"K source"``). A trial may be called several times; the
    framework calls :meth:`restore` in between.
    """

    case: Any
    buffers: Mapping[str, Buffer]
    first: Mapping[str, torch.Tensor]
    """The image of everything after the first call, set by the framework once the four common laws hold."""

    @abstractmethod
    def arguments(self, **variation: Any) -> list[Any]:
        """The positional arguments of one call. ``variation`` overrides fields of the case, e.g. ``quota=7``."""

    @abstractmethod
    def expected(self) -> Mapping[str, torch.Tensor]:
        """The whole image that each written buffer (and each returned tensor) must have after the call, flat uint8.

        Buffers that are not in here must not change at all. The images must be new storage on the CPU.
        """

    def call(self, function: KernelFunction, arguments: list[Any]) -> Mapping[str, torch.Tensor]:
        """Call the kernel; return what it returned by name, flat uint8 (nothing for a kernel that writes in place)."""
        function(*arguments)
        return {}

    def kept(self, arguments: Sequence[Any]) -> Mapping[str, Any]:
        """What of the arguments no kernel may change, by name: the caller's index tensors, pointer tables and lists.

        A family whose kernels write into such arguments, or of which the contract does not say, leaves them out.
        """
        return {}

    def locate(self, buffer: str, byte: int) -> str:
        """Say in the field's words what stands at ``byte`` of a buffer's image: ``layer 2, page 1, token 5, ...``."""
        return f"byte {byte}"

    def origin(self, buffer: str, byte: int, image: torch.Tensor) -> str | None:
        """Say where the wrong bytes at ``byte`` of ``image`` really come from (``layer 0 of K``), if it can be told."""
        return None

    def ways(self, law: str) -> Iterable[Sequence[Mapping[str, Any]]]:
        """Other ways to the same result, for a law of :func:`checks.same_by` (``quota``, ``split``).

        One way is a sequence of variations, each the keywords of one call: ``[{"quota": 7}]``.
        """
        return ()

    def restore(self) -> None:
        """Give every buffer its first bytes again."""
        for buffer in self.buffers.values():
            buffer.restore()


class Workload(ABC):
    """How one kernel is exercised; one instance per kernel, which holds the facts about it.

    A *case* is a frozen dataclass of plain values that fixes one example completely, index sets included.
    """

    def factors(self, cell: Cell) -> Mapping[str, Sequence[Any]]:
        """The factors that the covering design combines: name -> values, each read by ``draw.choice`` of that name."""
        return {}

    def feasible(self, cell: Cell, chosen: Mapping[str, Any]) -> bool:
        """Whether these values of some factors can stand together in this cell (the rest at their smallest)."""
        return True

    @abstractmethod
    def draw(self, cell: Cell, draw: Draw) -> Any:
        """Draw one case. Ask ``draw.choice`` for every factor, ``draw.random()`` once for all the rest."""

    @abstractmethod
    def build(self, cell: Cell, case: Any, place: Place) -> Trial:
        """Allocate and fill the buffers of a case on ``place``."""

    def large(self, cell: Cell, rng: random.Random) -> Any | None:
        """A case with far more items than drawn ones have; each cell runs one, as it costs as much as several."""
        return None

    def needs(self, cell: Cell) -> tuple[str, ...]:
        """The provider's kernels without which this cell cannot run."""
        return (cell.kernel,)

    def smaller(self, cell: Cell, case: Any) -> Iterable[Any]:
        """Yield simpler cases than ``case``, the boldest first; how a failing case is reduced."""
        return ()

    def bulk(self, cell: Cell, nbytes: int) -> Iterable[Bulk]:
        """Large cases that move about ``nbytes``, for ``--bandwidth``; none where a kernel moves no bytes."""
        return ()

    def errors(self, trial: Trial) -> Iterable[ErrorInput]:
        """The inputs near ``trial`` that must be refused (law ``errors``)."""
        return ()


Attempt = Callable[[Any, Callable[[], None]], None]
"""``attempt(case, action)`` runs an action, the last step of ``case``, and makes its error the failure of the cell.

Once a cell has failed, nothing is run, and the same case raises the same failure again.
"""

Finished = Callable[[Mapping[str, Any]], None]
"""Told of each sequence that came to its end, with the value of each of its factors."""


class Sequences(Workload):
    """Several kernels of a provider, exercised together in sequences of steps; one case is one whole sequence."""

    @abstractmethod
    def play(self, bench: Bench, case: Any) -> None:
        """Do every step of a case and compare after each.

        :raises BrokenLawError: the state after a step is not what it must be.
        """

    @abstractmethod
    def machine(self, bench: Bench, attempt: Attempt, finished: Finished) -> RuleBasedStateMachine:
        """Make the state machine by which Hypothesis chooses the steps of one sequence."""

    def build(self, cell: Cell, case: Any, place: Place) -> Trial:
        """Refuse: a sequence is played, it is no trial of one kernel."""
        raise NotImplementedError(f"{cell.id}: a sequence is played, not tried")


@dataclass(frozen=True)
class Kernel:
    """One row of the table of kernels."""

    name: str
    """The provider's attribute."""
    family: str
    """The name of its family, e.g. ``kvcacheio``: what tables group by."""
    layouts: tuple[str, ...]
    """Layout names of the ids. Kernels without a host pool use ``("layer_first",)``, or a name of their own."""
    workload: Workload
    laws: tuple[Law, ...]
    """The laws that this kernel is held to, beyond those of :data:`pytest_sglhw.conformance.checks.ALWAYS`."""
    dtypes: tuple[str, ...] = tuple(DTYPES)
    page_sizes: tuple[int, ...] = PAGE_SIZES

    def cells(self) -> list[Cell]:
        """Every cell of this kernel."""
        return cells_of(self.name, self.layouts, self.dtypes, self.page_sizes)
