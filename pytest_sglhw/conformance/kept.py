"""What a caller hands over beside its pools: index tensors, pointer tables and lists stay as they were.

It is compared byte for byte, at the cost of one small copy for each tensor. Pools are left to their images.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.failures import BrokenLawError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Kept:
    """The arguments of a call that are the caller's own, as they are before it.

    A tensor is kept with all of its storage: with what lies between the elements of a view, too.

    :param arguments: tensors and lists by the names of their parameters, see ``Trial.kept``.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._lists = [(name, given, list(given)) for name, given in arguments.items() if isinstance(given, list)]
        self._tensors = [
            (name, given, given.shape, given.data_ptr(), _bytes(given.untyped_storage()))
            for name, given in arguments.items()
            if isinstance(given, torch.Tensor)
        ]

    def check(self, law: str) -> None:
        """Hold: nothing of it has changed.

        :raises BrokenLawError: of ``law``, with the argument and what has become of it.
        """
        for name, entries, first in self._lists:
            if len(entries) != len(first) or any(one is not other for one, other in zip(entries, first, strict=True)):
                raise BrokenLawError(law, f"{name}, a list of {len(first)}: {_fate(entries, first)}")
        for name, given, shape, address, before in self._tensors:
            if (given.shape, given.data_ptr()) != (shape, address):
                words = f"of shape {list(shape)}, has shape {list(given.shape)} now, or other memory"
                raise BrokenLawError(law, f"{name}, a tensor {words}")
            now = _bytes(given.untyped_storage())
            if now != before:
                element = _first(one != other for one, other in zip(now, before, strict=True)) // given.itemsize
                got, want = (_element(content, element, given) for content in (now, before))
                words = f"element {element} of its memory is {got}, not {want} as the caller left it"
                raise BrokenLawError(law, f"{name}, a tensor of {given.dtype}: {words}")


def _bytes(storage: torch.UntypedStorage) -> bytes:
    if storage.device.type == "cpu":
        return ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""
    return _bytes(storage.cpu())


def _element(content: bytes, at: int, tensor: torch.Tensor) -> object:
    size = tensor.itemsize
    return torch.frombuffer(bytearray(content[at * size : (at + 1) * size]), dtype=tensor.dtype).item()


def _fate(given: Sequence[Any], before: Sequence[Any]) -> str:
    if len(given) != len(before):
        return f"it has {len(given)} entries now"
    return f"its entry {_first(one is not other for one, other in zip(given, before, strict=True))} is another one now"


def _first(flags: Iterable[bool]) -> int:
    return next(at for at, flag in enumerate(flags) if flag)
