"""Index sets: pairs of source and destination tokens, by the name of the pattern they make.

Each pattern is a function of a generator and of :class:`Bounds`; destinations never repeat unless the pattern says so,
because the winner among equal destinations is unspecified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from random import Random

Indices = tuple[list[int], list[int]]


class Bounds(NamedTuple):
    """What an index set may refer to."""

    page_size: int
    source_tokens: int
    destination_tokens: int
    launch: int
    """Quota x warps: the number of items that one pass of a kernel's grid takes."""

    @property
    def tokens(self) -> int:
        """How many tokens can be moved at most."""
        return min(self.source_tokens, self.destination_tokens)

    @property
    def pages(self) -> tuple[int, int]:
        """Whole pages in the source and in the destination."""
        return self.source_tokens // self.page_size, self.destination_tokens // self.page_size


Pattern = Callable[["Random", Bounds], Indices]


def of_pages(pages: list[int], page_size: int) -> list[int]:
    """Every token of these pages, page after page."""
    return [page * page_size + slot for page in pages for slot in range(page_size)]


def _of_pages(sides: Iterable[list[int]], bounds: Bounds) -> Indices:
    reads, writes = (of_pages(pages, bounds.page_size) for pages in sides)
    return reads, writes


def _empty(rng: Random, bounds: Bounds) -> Indices:  # noqa: ARG001 - the table's signature
    return [], []


def _page(rng: Random, bounds: Bounds) -> Indices:
    return _of_pages(([rng.randrange(pages)] for pages in bounds.pages), bounds)


def _contiguous(rng: Random, bounds: Bounds) -> Indices:
    """A run of pages in order, at another place of each pool."""
    count = rng.randint(1, max(1, min(bounds.pages) - 1))
    starts = [rng.randint(0, pages - count) for pages in bounds.pages]
    return _of_pages((list(range(start, start + count)) for start in starts), bounds)


def _pages(rng: Random, bounds: Bounds) -> Indices:
    """Whole pages in another order on each side."""
    count = rng.randint(2, max(2, min(bounds.pages)))
    return _of_pages((rng.sample(range(pages), count) for pages in bounds.pages), bounds)


def _ends(rng: Random, bounds: Bounds) -> Indices:  # noqa: ARG001 - the table's signature
    """The first and the last page of each pool, crossed."""
    last_source, last_destination = (pages - 1 for pages in bounds.pages)
    return _of_pages(([0, last_source], [last_destination, 0]), bounds)


def _same_page(rng: Random, bounds: Bounds) -> Indices:
    """One source page over and over, to different pages."""
    count = rng.randint(2, min(3, bounds.pages[1]))
    page = rng.randrange(bounds.pages[0])
    return _of_pages(([page] * count, rng.sample(range(bounds.pages[1]), count)), bounds)


def _unaligned(rng: Random, bounds: Bounds) -> Indices:
    """Page runs that begin inside a page, by the same shift in every page, on both sides."""
    count = rng.randint(1, min(bounds.pages) - 1)
    shift = rng.randrange(bounds.page_size)
    reads, writes = _of_pages((rng.sample(range(pages - 1), count) for pages in bounds.pages), bounds)
    return [token + shift for token in reads], [token + shift for token in writes]


def _first_only(rng: Random, bounds: Bounds) -> Indices:
    """Only the first index of each page means something; the others are any tokens at all."""
    reads, writes = _pages(rng, bounds)
    keep = bounds.page_size
    reads = [token if at % keep == 0 else rng.randrange(bounds.source_tokens) for at, token in enumerate(reads)]
    writes = [token if at % keep == 0 else rng.randrange(bounds.destination_tokens) for at, token in enumerate(writes)]
    return reads, writes


def _token(rng: Random, bounds: Bounds) -> Indices:
    return [rng.randrange(bounds.source_tokens)], [rng.randrange(bounds.destination_tokens)]


def _scatter(rng: Random, bounds: Bounds, count: int) -> Indices:
    count = max(1, min(count, bounds.tokens))
    return rng.sample(range(bounds.source_tokens), count), rng.sample(range(bounds.destination_tokens), count)


def _scattered(rng: Random, bounds: Bounds) -> Indices:
    return _scatter(rng, bounds, rng.randint(2, bounds.tokens))


def _launch(rng: Random, bounds: Bounds) -> Indices:
    """Counts around a multiple of quota x warps."""
    return _scatter(rng, bounds, bounds.launch * rng.choice((1, 1, 2, 3)) + rng.choice((-1, 0, 1)))


def _reversed(rng: Random, bounds: Bounds) -> Indices:
    """Pages whose tokens are taken back to front."""
    reads, writes = _pages(rng, bounds)
    size = bounds.page_size
    return [token for at in range(0, len(reads), size) for token in reads[at : at + size][::-1]], writes


def _rotated(rng: Random, bounds: Bounds) -> Indices:
    """A cycle within each page (or over all tokens of small pages): a permutation that is not its own inverse."""
    reads, writes = _pages(rng, bounds)
    size = bounds.page_size if bounds.page_size > 2 else len(reads)
    chunks = [reads[at : at + size] for at in range(0, len(reads), size)]
    return [token for chunk in chunks for token in (*chunk[1:], chunk[0])], writes


def _duplicates(rng: Random, bounds: Bounds) -> Indices:
    """Sources that repeat, to different destinations."""
    count = rng.randint(2, max(2, bounds.destination_tokens // 2))
    few = [rng.randrange(bounds.source_tokens) for _ in range(max(1, count // 3))]
    return [rng.choice(few) for _ in range(count)], rng.sample(range(bounds.destination_tokens), count)


def _overwrites(rng: Random, bounds: Bounds) -> Indices:
    """Destinations that repeat: the last one wins, where the contract has an order."""
    reads, writes = _scattered(rng, bounds)
    few = writes[: max(1, len(writes) // 2)]
    return reads, [rng.choice(few) for _ in writes]


PATTERNS: Mapping[str, Pattern] = {
    "page": _page,
    "contiguous": _contiguous,
    "pages": _pages,
    "ends": _ends,
    "same_page": _same_page,
    "empty": _empty,
    "token": _token,
    "scattered": _scattered,
    "launch": _launch,
    "reversed": _reversed,
    "rotated": _rotated,
    "duplicates": _duplicates,
    "overwrites": _overwrites,
    "unaligned": _unaligned,
    "first_only": _first_only,
}

_PAGES = ("page", "contiguous", "pages", "ends", "same_page", "empty")

#: What each kind of kernel accepts, the simplest pattern first.
TOKENS = ("token", *_PAGES, "scattered", "launch", "reversed", "rotated", "duplicates")
#: In-order runs of any indices, as many as fill pages.
RUNS = (*_PAGES, "scattered", "reversed", "rotated", "duplicates", "overwrites")
#: Only the first index of each page counts.
PAGES = (*_PAGES, "unaligned", "first_only")
