"""Other ways to make the same call: by the names of parameters, with defaults, on several threads.

Each wraps a kernel into a function of the same positional arguments, and reads in a failure as what it does.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_sglhw.conformance.family import KernelFunction

_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class CallStyle(Protocol):
    """A way to make a call."""

    def fits(self, function: KernelFunction) -> bool:
        """Whether a kernel can be called so."""

    def __call__(self, function: KernelFunction) -> KernelFunction:
        """Wrap a kernel."""


class Written(NamedTuple):
    """The call as it is written in the source of a caller."""

    names: tuple[str, ...]
    """The parameters of the released signature, in their order."""
    by_name: bool = True
    """Every argument by its name, or all by position."""
    left_out: int = 0
    """How many of the last arguments are left to their defaults."""

    @property
    def _given(self) -> tuple[str, ...]:
        return self.names[: len(self.names) - self.left_out]

    def fits(self, function: KernelFunction) -> bool:
        """Whether the signature says that it takes such a call: a provider may name its parameters in its own way.

        Where it takes whatever comes (``*args``), it does not say, and neither where a wrapper takes less than what it
        wraps.
        """
        try:
            return all(self._binds(inspect.signature(each, follow_wrapped=False)) for each in _wrapped(function)) and (
                not any(each.kind in _ANY for each in inspect.signature(function).parameters.values())
            )
        except (TypeError, ValueError):  # a function in C need not say
            return False

    def _binds(self, signature: inspect.Signature) -> bool:
        """See :meth:`fits`.

        :raises TypeError: it does not.
        """
        if self.by_name:
            signature.bind(**dict.fromkeys(self._given))
        else:
            signature.bind(*self._given)
        return True

    def __call__(self, function: KernelFunction) -> KernelFunction:
        """Wrap a kernel."""
        if self.by_name:
            return lambda *values: function(**dict(zip(self._given, values, strict=False)))
        return lambda *values: function(*values[: len(self._given)])

    def __repr__(self) -> str:
        left_out = " and ".join(self.names[len(self._given) :])
        return ", ".join((*(["by name"] if self.by_name else []), *([f"without {left_out}"] if left_out else [])))


def _wrapped(function: Any) -> Iterator[Any]:
    """A function, and what it wraps (``functools.wraps``)."""
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)


class OnThreads(NamedTuple):
    """With so many threads of torch."""

    threads: int

    def fits(self, function: KernelFunction) -> bool:  # noqa: ARG002 - every kernel can
        """Any kernel can be called so."""
        return True

    def __call__(self, function: KernelFunction) -> KernelFunction:
        """Wrap a kernel."""

        def call(*values: Any) -> Any:
            before = torch.get_num_threads()
            torch.set_num_threads(self.threads)
            try:
                return function(*values)
            finally:
                torch.set_num_threads(before)

        return call

    def __repr__(self) -> str:
        return f"on {self.threads} threads"
