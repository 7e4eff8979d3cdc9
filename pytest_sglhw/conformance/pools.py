"""Buffers whose every byte is accounted for: random contents, guard bytes around them, one snapshot to compare with.

The contents come from one bank of random bytes that is made once per process. A window of the bank *is* the snapshot
of the buffer that was filled from it, so filling and comparing cost one pass over memory each and nothing is kept.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from pytest_sglhw.conformance.devices import Place

#: Bytes before and after the contents of a buffer that no kernel may touch.
GUARD = 256

_BANK_BYTES = 1 << 24

#: (mask to keep, bits to set) of 32-bit words that a copy through floating point registers or a value conversion would
#: change: signalling and quiet NaN of float32, bfloat16, float16, float8_e4m3fn and float8_e5m2, -0.0, denormals.
_SPECIAL_WORDS = (
    (0x803FFFFF, 0x7F800001),
    (0x80003FFF, 0x7F817F81),
    (0x81FF81FF, 0x7C017C01),
    (0x80808080, 0x7F7F7F7F),
    (0x80838083, 0x7D7E7D7E),
    (0x00000000, 0x80008000),
    (0x00010001, 0x00010001),
)


@lru_cache(maxsize=1)
def bank() -> torch.Tensor:
    """Random bytes, one word in eight a special value with random payload bits."""
    generator = torch.Generator().manual_seed(20_260_101)
    words = torch.randint(-(1 << 31), 1 << 31, (_BANK_BYTES // 4,), dtype=torch.int64, generator=generator)
    kind = torch.randint(0, 8 * len(_SPECIAL_WORDS), words.shape, dtype=torch.uint8, generator=generator)
    for number, (keep, bits) in enumerate(_SPECIAL_WORDS):
        words = torch.where(kind == number, (words & keep) | bits, words)
    return words.to(torch.int32).view(torch.uint8)


class Windows:
    """Hands out windows of the bank that do not overlap, so that no two buffers of a trial hold the same bytes."""

    def __init__(self, seed: int) -> None:
        self._next = (seed * 40_503 * 16) % (_BANK_BYTES // 2)

    def take(self, nbytes: int) -> torch.Tensor:
        """Return the next ``nbytes`` bytes (uint8, aligned to words of 8 bytes, read-only by convention)."""
        if nbytes > _BANK_BYTES:
            return bank().repeat(-(-nbytes // _BANK_BYTES))[:nbytes]
        start = self._next if self._next + nbytes <= _BANK_BYTES else 0
        self._next = start + -(-nbytes // 8) * 8
        return bank()[start : start + nbytes]


class Buffer:
    """One allocation: guard, base offset, contents, guard.

    :param where: ``device`` or ``host``.
    :param base: bytes by which the contents start off the allocation's own alignment (a storage offset).
    """

    def __init__(self, place: Place, windows: Windows, nbytes: int, where: str = "device", base: int = 0) -> None:
        self.start = GUARD + base
        self.nbytes = nbytes
        self.before = windows.take(self.start + nbytes + GUARD)
        self.storage = place.empty(len(self.before), where)
        self.storage.copy_(self.before)

    def contents(self, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        """The contents as a flat tensor of ``dtype``; its address and storage offset are those of the contents."""
        return self.storage[self.start : self.start + self.nbytes].view(dtype)

    def address(self) -> int:
        """The address of the first byte of the contents."""
        return int(self.storage.data_ptr()) + self.start

    def image(self) -> torch.Tensor:
        """Every byte of the allocation now, guards included, on the CPU."""
        return self.storage if self.storage.device.type == "cpu" else self.storage.cpu()

    def restore(self) -> None:
        """Write the first bytes again."""
        self.storage.copy_(self.before)
