"""Cases of the transfer kernels that move many tokens: for the bandwidth, and for counters of tokens and pages."""

from __future__ import annotations

from math import gcd
from random import Random
from typing import TYPE_CHECKING, Any

from pytest_sglhw.conformance import index_patterns
from pytest_sglhw.conformance.transfer_cases import TransferCase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.transfer_cases import TransferFacts

#: Tokens of a call: past the threads of a block, and past what other powers of two can count.
_MANY = (1 << 10, 1 << 10, 1 << 11, 1 << 12)
#: Past numbers of 16 bits: for the cells of one dtype with pages of a token, as it takes as long as 50 examples.
_MOST = 1 << 16
#: Pages of a call: past what a mask of 64 bits holds.
_PAGES = 64


def bulk_case(facts: TransferFacts, cell: Cell, direction: str, quota: int, nbytes: int) -> TransferCase:
    """A case that moves about ``nbytes``: 4 layers, 8 heads of 128 bytes, every page of both pools in some order."""
    layers, heads, head_bytes, parts = 4, 8, 128, facts.parts[0]
    span = layers if facts.all_layers else 1
    pages = max(1, nbytes // (len(parts) * span * heads * head_bytes * cell.page_size))
    rng = Random(pages)
    reads, writes = (index_patterns.of_pages(rng.sample(range(pages), pages), cell.page_size) for _ in range(2))
    return _of_whole_pages(
        reads,
        writes,
        layers=layers,
        layer_id=0 if facts.all_layers else 1,
        span=span,
        heads=heads,
        head_bytes=head_bytes,
        v_head_bytes=head_bytes,
        parts=parts,
        direction=direction,
        source_tokens=pages * cell.page_size,
        destination_tokens=pages * cell.page_size,
        destination_base=0,
        quota=quota,
        warps=32,
        seed=0,
    )


def many_tokens(facts: TransferFacts, cell: Cell, rng: Random) -> TransferCase:
    """A case of very many tokens in small rows, whole pages in another order on each side."""
    most = cell.page_size == 1 and cell.dtype == "uint8"
    tokens = (_MOST if most else rng.choice(_MANY)) + rng.randint(1, 72)
    layers = 1 if most else rng.choice((1, 2))
    pages = max(-(-tokens // cell.page_size), _PAGES + rng.randint(1, 9))
    held = pages + rng.randrange(4)
    reads, writes = (index_patterns.of_pages(_shuffled(rng, held)[:pages], cell.page_size) for _ in range(2))
    layer_id = 0 if facts.all_layers else layers - 1
    return _of_whole_pages(
        reads,
        writes,
        layers=layers,
        layer_id=layer_id,
        span=layers - layer_id,
        heads=1,
        head_bytes=8,
        v_head_bytes=8,
        parts=rng.choice(facts.parts),
        direction=rng.choice(facts.directions),
        source_tokens=held * cell.page_size,
        destination_tokens=held * cell.page_size,
        destination_base=8,
        quota=rng.choice((1, 2, 16)),
        warps=rng.choice((1, 4, 32)),
        seed=rng.randrange(1 << 30),
    )


def _of_whole_pages(reads: Iterable[int], writes: Iterable[int], **rest: Any) -> TransferCase:
    """A case without gaps, shifts or strides, whose indices name whole pages."""
    return TransferCase(
        source_base=0,
        rotation=0,
        gap_heads=0,
        index_stride=1,
        pattern="pages",
        source_indices=tuple(reads),
        destination_indices=tuple(writes),
        **rest,
    )


def _shuffled(rng: Random, count: int) -> list[int]:
    """The numbers below ``count`` by a step and a start of chance: far cheaper than a shuffle."""
    step = next(step for step in iter(lambda: rng.randrange(count // 3, count), None) if gcd(step, count) == 1)
    start = rng.randrange(count)
    return [(start + step * at) % count for at in range(count)]
