"""Kernel providers that load their kernels from installed packages when they are first asked for one.

A kernel that cannot be had on this machine is an ``AttributeError`` that says why, and stands in ``sglhw_missing``; it
is never an import error.
"""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch


class Source(NamedTuple):
    """Where a kernel stands, and how to make a plain function of it where it is not one."""

    module: str
    attribute: str
    adapt: Callable[[Any], Callable[..., Any]] | None = None
    unfit: Callable[[], str | None] | None = None
    """Say why this machine cannot run this kernel although its package is there."""

    def load(self) -> Callable[..., Any] | str:
        """Import the kernel, or say why it cannot be had."""
        if self.unfit and (reason := self.unfit()):
            return reason
        try:
            value = getattr(importlib.import_module(self.module), self.attribute)
            return self.adapt(value) if self.adapt else value
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any failure of a foreign import is its kernel's state
            return f"importing {self.attribute} from {self.module} failed: {type(error).__name__}: {error}"


class Provider:
    """Kernels by attribute.

    :param sources: every kernel that the provider has in a complete installation, by name (``sglhw_kernels``).
    :param prepare: makes the package importable, or says why none of the kernels can be had.
    :param device: says on which torch device (``sglhw_device``) pools, indices and pointer tables live.
    """

    def __init__(
        self, sources: Mapping[str, Source], prepare: Callable[[], str | None], device: Callable[[], str]
    ) -> None:
        self._sources = sources
        self._prepare = prepare
        self._device = device

    @cached_property
    def sglhw_device(self) -> str:
        """The torch device string of pools, indices and tables."""
        return self._device()

    @property
    def sglhw_kernels(self) -> tuple[str, ...]:
        """Every kernel that this provider can have."""
        return tuple(self._sources)

    @cached_property
    def sglhw_missing(self) -> Mapping[str, str]:
        """The kernels that cannot be had here, each with its reason."""
        return {name: loaded for name, loaded in self._loaded.items() if isinstance(loaded, str)}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in self._sources:
            raise AttributeError(f"{name!r} is no kernel of this provider. It has: {', '.join(self._sources)}.")
        loaded = self._loaded[name]
        if isinstance(loaded, str):
            raise AttributeError(f"{name} is not available here: {loaded}")
        return loaded

    @cached_property
    def _loaded(self) -> dict[str, Callable[..., Any] | str]:
        with quiet():
            reason = self._prepare()
            return {name: reason or source.load() for name, source in self._sources.items()}


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back warnings and log lines of a foreign import: they are about that package's features, not its kernels."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def accelerator() -> str:
    """The torch device type of this machine's accelerator, ``cpu`` where torch sees none (ROCm's is ``cuda``)."""
    import torch

    return torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"


def require(package: str) -> str | None:
    """Say that a package is not installed."""
    return None if find_spec(package) else f"{package} is not installed"


_TORCHVISION: list[torch.library.Library] = []
"""Definitions live as long as their ``Library`` object."""


def repair_torchvision() -> None:
    """Let ``import torchvision`` succeed beside a CPU build of torch.

    torchvision's wheel from PyPI is built for CUDA; without the CUDA libraries it registers no operators, then fails on
    decorating ``torchvision::nms``. SGLang imports it through transformers. The names alone are enough.
    """
    if find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        _define_torchvision_operators()


def _define_torchvision_operators() -> None:
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _TORCHVISION.append(library)
