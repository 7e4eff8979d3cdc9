"""What a caller hands over beside its pools: index tensors, pointer tables and lists stay as they were.

It is compared byte for byte, at the cost of one small copy for each tensor: pools are left to their images.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.failures import BrokenLawError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_sglhw.conformance.family import Trial


class Kept:
    """The arguments of a call as they are before it.

    A tensor is kept with all of its storage: with what lies between the elements of a view, too.
    """

    def __init__(self, trial: Trial, arguments: Sequence[Any]) -> None:
        pools = {buffer.storage.untyped_storage().data_ptr() for buffer in trial.buffers.values()}
        self._lists = [(at, given, list(given)) for at, given in enumerate(arguments) if isinstance(given, list)]
        self._tensors = []
        for at, given in enumerate(arguments):
            if isinstance(given, torch.Tensor):
                storage = given.untyped_storage()
                if storage.data_ptr() not in pools:
                    self._tensors.append((at, given, given.shape, given.data_ptr(), storage, _bytes(storage)))

    def check(self, law: str, names: Sequence[str] = ()) -> None:
        """Hold: nothing of it has changed.

        :param names: of the arguments; where there are none, failures count them.
        :raises BrokenLawError: of ``law``, with the argument and what has become of it.
        """
        for at, entries, first in self._lists:
            if len(entries) != len(first) or any(one is not other for one, other in zip(entries, first, strict=True)):
                raise BrokenLawError(law, f"{_name(at, names)}, a list of {len(first)}: {_fate(entries, first)}")
        for at, given, shape, address, storage, before in self._tensors:
            if (given.shape, given.data_ptr()) != (shape, address):
                words = f"of shape {list(shape)}, has shape {list(given.shape)} now, or other memory"
                raise BrokenLawError(law, f"{_name(at, names)}, a tensor {words}")
            now = _bytes(storage)
            if now != before:
                element = _first(one != other for one, other in zip(now, before, strict=True)) // given.itemsize
                got, want = (_element(content, element, given) for content in (now, before))
                words = f"element {element} of its memory is {got}, not {want} as the caller left it"
                raise BrokenLawError(law, f"{_name(at, names)}, a tensor of {given.dtype}: {words}")


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


def _name(at: int, names: Sequence[str]) -> str:
    return names[at] if names else f"argument {at}"
