"""Put the CPU kernels where code that bound ``sgl_kernel.kvcacheio`` at import looks for them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

_ABSENT = object()


class Binding:
    """Names replaced in modules, and what they were before."""

    def __init__(self) -> None:
        self._before: list[tuple[ModuleType, str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        while self._before:
            module, name, value = self._before.pop()
            if value is _ABSENT:
                delattr(module, name)
            else:
                setattr(module, name, value)

    def bind(self, *module_names: str) -> None:
        """Bind every kernel that one of these modules uses into that module, importing it first.

        :raises TypeError: no module name, or something else than a name.
        :raises ValueError: a module in which no kernel's name occurs: it would change nothing.
        """
        from pytest_sglhw import kvcacheio

        if not module_names or not all(isinstance(name, str) for name in module_names):
            raise TypeError(f"kvcacheio_on_cpu takes names of modules, but was given {module_names!r}")
        for module_name in module_names:
            module = importlib.import_module(module_name)
            used = sorted(set(kvcacheio.__all__) & set(_names(module)))
            if not used:
                raise ValueError(
                    f"no kernel of kvcacheio is used in module {module_name!r}, so there is nothing to bind. "
                    f"Name the module whose code calls one of: {', '.join(kvcacheio.__all__)}."
                )
            for name in used:
                self._before.append((module, name, vars(module).get(name, _ABSENT)))
                setattr(module, name, getattr(kvcacheio, name))


def _names(module: ModuleType) -> Iterator[str]:
    """Give the module's globals and every global name that its functions and methods look up."""
    yield from vars(module)
    for value in list(vars(module).values()):
        members = vars(value).values() if isinstance(value, type) and value.__module__ == module.__name__ else (value,)
        for member in members:
            function = getattr(member, "__func__", member)
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                yield from _looked_up(function.__code__)


def _looked_up(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _looked_up(constant)
