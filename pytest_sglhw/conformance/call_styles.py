"""Other ways to make the same call: by the names of parameters, with defaults, on several threads.

Each wraps a kernel into a function of the same positional arguments, and reads in a failure as what it does.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from pytest_sglhw.conformance.family import KernelFunction

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class ByName(NamedTuple):
    """Every argument by its name, the last ones left to their defaults."""

    names: tuple[str, ...]
    """The parameters of the released signature, in their order."""
    defaults: int = 0
    """How many of the last arguments are left out."""

    def __call__(self, function: KernelFunction) -> KernelFunction:
        """Wrap a kernel."""
        names = self.names[: len(self.names) - self.defaults]
        if not self._is_possible(function):
            return function
        return lambda *values: function(**dict(zip(names, values, strict=False)))

    def _is_possible(self, function: KernelFunction) -> bool:
        """Whether the signature has the names, and defaults: a provider may name its parameters in its own way."""
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):  # a function in C need not say
            return False
        by_name = [name for name, each in parameters.items() if each.kind in _BY_NAME]
        left_out = self.names[len(self.names) - self.defaults :]
        return set(self.names) <= set(by_name) and all(
            parameters[name].default is not inspect.Parameter.empty for name in left_out
        )

    def __repr__(self) -> str:
        left_out = self.names[len(self.names) - self.defaults :]
        return "by name" + (f", without {' and '.join(left_out)}" if left_out else "")


class OnThreads(NamedTuple):
    """With so many threads of torch."""

    threads: int

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
