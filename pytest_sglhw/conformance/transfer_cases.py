"""Cases of the transfer kernels: which values they take, how one is drawn, and how one gets simpler."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_sglhw.conformance import index_patterns
from pytest_sglhw.conformance.index_patterns import PATTERNS, Bounds
from pytest_sglhw.conformance.layouts import is_paged
from pytest_sglhw.conformance.strategies import choose_factors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from random import Random

    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.family import Draw, Workload

#: Few, mostly primes; and as many as large models have.
LAYERS = (1, 2, 3, 5, 7, 13, 61)
HEADS = (1, 2, 3, 4, 6, 8, 16)
ROW_BYTES = (8, 16, 24, 72, 80, 128, 512, 576, 656, 1024, 1152, 2048, 3072, 4104, 8192, 16384)
#: Rows that no 8-byte word divides, for copies that have no such rule.
ODD_ROW_BYTES = (4, 12, 36, 148)
PARTS = (("K", "V"), ("KV",))

#: Bytes that one pool may have: what keeps an example far below a millisecond of memory traffic.
POOL_BYTES = 1 << 18
SMALLEST_PAGES = 3


class TransferFacts(NamedTuple):
    """What tells one transfer kernel from another."""

    source: str
    destination: str
    all_layers: bool
    """All layers in one call, or one layer given by its number."""
    parts: tuple[tuple[str, ...], ...]
    """Which pools one call moves: K and V, or a single one, or either (told by the length of a list)."""
    direct: bool = False
    """Lists of tensors and a page size, instead of addresses, row sizes and launch arguments."""
    partner: str = ""
    """The kernel that moves the same rows back."""

    @property
    def host_layout(self) -> str:
        """The layout that names the cell: that of the paged side where there is one."""
        return self.destination if self.source == "layer_first" else self.source

    @property
    def by_page(self) -> bool:
        """Whether only the first index of each page counts."""
        return self.direct and is_paged(self.host_layout)

    @property
    def directions(self) -> tuple[str, ...]:
        """Which way the bytes may go: page-wise pools are the host's."""
        both = ("host_to_device", "device_to_host", "device_to_device")
        if self.source != "layer_first":
            return both[::2]
        return both[1:] if self.destination != "layer_first" else both

    @property
    def patterns(self) -> tuple[str, ...]:
        """The index patterns that the kernel accepts."""
        if self.by_page:
            return index_patterns.PAGES
        return index_patterns.RUNS if self.direct else index_patterns.TOKENS


@lru_cache(maxsize=64)
def parameters(facts: TransferFacts, parts: int) -> tuple[str, ...]:
    """The names of a kernel's parameters in the released signature, in their order.

    :param parts: pools that one call moves: 2 for K and V.
    """
    sides = (("src", facts.source), ("dst", facts.destination))
    indices = ("src_indices", "dst_indices")
    layer = ("layer_id",) if facts.source != "layer_first" else ()
    if facts.direct:
        lists = "ptrs" if facts.by_page else "layers"
        return (f"src_{lists}", f"dst_{lists}", *indices, *layer, "page_size")
    pools = [
        f"{side}{part}{'_layers' if facts.all_layers and layout == 'layer_first' else ''}"
        for part in (("_k", "_v") if parts == 2 else ("",))
        for side, layout in sides
    ]
    dims = [f"{side}_layout_dim" for side, layout in sides if layout != "layer_first"]
    layers = ("num_layers",) if facts.all_layers else ()
    paged = ("page_size", "head_num") if facts.host_layout == "page_head" else ()
    return (*pools, *indices, *layer, "item_size", *dims, *layers, *paged, "block_quota", "num_warps_per_block")


@dataclass(frozen=True)
class TransferCase:
    """One example of a transfer, complete: ``build`` makes the same bytes of it every time."""

    layers: int
    layer_id: int
    span: int
    """Layers that one call moves, from ``layer_id`` on (1 where the kernel takes one layer)."""
    heads: int
    head_bytes: int
    v_head_bytes: int
    parts: tuple[str, ...]
    direction: str
    source_tokens: int
    destination_tokens: int
    source_base: int
    destination_base: int
    rotation: int
    """How the layers of a layer-first pool lie in memory: 0 in order, else reversed and rotated by this."""
    gap_heads: int
    """Heads of a wider pool that the call leaves out of each row (strided rows), where the kernel takes strides."""
    quota: int
    warps: int
    pattern: str
    source_indices: tuple[int, ...]
    destination_indices: tuple[int, ...]
    index_stride: int
    """1, or more: the index tensors are views of larger ones, with other slots of the same side in between."""
    seed: int


def factors(facts: TransferFacts) -> dict[str, Sequence[Any]]:
    """The factors of the covering design."""
    return {
        "layers": LAYERS,
        "heads": HEADS,
        "row_bytes": row_sizes(facts),
        "direction": facts.directions,
        "pattern": facts.patterns,
    }


def feasible(facts: TransferFacts, cell: Cell, chosen: Mapping[str, Any]) -> bool:
    """Whether some row that is left divides into heads of whole words (of elements), in a pool that is small enough."""
    rows = (chosen["row_bytes"],) if "row_bytes" in chosen else row_sizes(facts)
    unit = chosen.get("heads", 1) * unit_bytes(facts, cell)
    most = 2 * POOL_BYTES // (chosen.get("layers", 1) * SMALLEST_PAGES * cell.page_size)
    return any(row % unit == 0 and row <= most for row in rows)


def row_sizes(facts: TransferFacts) -> tuple[int, ...]:
    """The sizes of rows that the kernel takes."""
    return (*ROW_BYTES[:3], *ODD_ROW_BYTES, *ROW_BYTES[3:]) if facts.direct else ROW_BYTES


def unit_bytes(facts: TransferFacts, cell: Cell) -> int:
    """What the bytes of one head must be a multiple of: kernels that split rows by heads copy words of 8 bytes."""
    return 8 if "page_head" in (facts.source, facts.destination) else cell.itemsize


def draw_case(workload: Workload, facts: TransferFacts, cell: Cell, draw: Draw) -> TransferCase:
    """Draw one case of a transfer kernel."""
    chosen = choose_factors(workload, cell, draw)
    rng = draw.random()
    layers, heads = chosen["layers"], chosen["heads"]
    layer_id = 0 if facts.all_layers else rng.randrange(layers)
    parts = rng.choice(facts.parts)
    head_bytes = chosen["row_bytes"] // heads
    quota, warps = rng.choice((1, 2, 3, 16)), rng.choice((1, 2, 4, 8, 16, 32))
    most = POOL_BYTES // (layers * chosen["row_bytes"])
    tokens = [_pool_tokens(rng, layout, cell.page_size, most) for layout in (facts.source, facts.destination)]
    reads, writes = _indices(rng, facts, chosen["pattern"], Bounds(cell.page_size, tokens[0], tokens[1], quota * warps))
    return TransferCase(
        layers=layers,
        layer_id=layer_id,
        span=_span(rng, facts, layers, layer_id),
        heads=heads,
        head_bytes=head_bytes,
        v_head_bytes=_v_head_bytes(rng, facts, parts, head_bytes, cell.itemsize),
        parts=parts,
        direction=chosen["direction"],
        source_tokens=tokens[0],
        destination_tokens=tokens[1],
        source_base=rng.choice((0, 8, 16, 72, 1032)),
        destination_base=rng.choice((0, 8, 16, 72, 1032)),
        rotation=rng.randrange(layers + 1),
        gap_heads=rng.choice((0, 0, 1)) if facts.direct and not facts.by_page else 0,
        quota=quota,
        warps=warps,
        pattern=chosen["pattern"],
        source_indices=tuple(reads),
        destination_indices=tuple(writes),
        index_stride=rng.choice((1, 1, 1, 2)),
        seed=rng.randrange(1 << 30),
    )


def _span(rng: Random, facts: TransferFacts, layers: int, layer_id: int) -> int:
    if facts.all_layers:
        return layers
    return rng.randint(1, layers - layer_id) if facts.direct else 1


def _v_head_bytes(rng: Random, facts: TransferFacts, parts: tuple[str, ...], head_bytes: int, itemsize: int) -> int:
    """A V width of its own where the kernel has no common row size (and there is a V)."""
    if not facts.direct or len(parts) == 1:
        return head_bytes
    half = max(itemsize, head_bytes // itemsize // 2 * itemsize)
    return rng.choice((head_bytes, itemsize, half, head_bytes + itemsize))


def _pool_tokens(rng: Random, layout: str, page_size: int, most: int) -> int:
    pages = rng.randint(SMALLEST_PAGES, max(SMALLEST_PAGES + 2, min(72, most) // page_size))
    return pages * page_size + (0 if is_paged(layout) else rng.randrange(page_size))


def _indices(rng: Random, facts: TransferFacts, pattern: str, bounds: Bounds) -> index_patterns.Indices:
    reads, writes = PATTERNS[pattern](rng, bounds)
    count = len(reads) // bounds.page_size * bounds.page_size if facts.direct else len(reads)
    return reads[:count], writes[:count]


def smaller(facts: TransferFacts, cell: Cell, case: TransferCase) -> Iterator[TransferCase]:
    """Yield simpler cases: fewer tokens first, then each number by itself."""
    yield from _fewer_tokens(case, cell.page_size if facts.direct else 1)
    for changes in _simpler_values(facts, cell, case):
        simpler = replace(case, **changes)
        if simpler != case:
            yield simpler
    yield from _fewer_layers(facts, case)


def _fewer_tokens(case: TransferCase, step: int) -> Iterator[TransferCase]:
    count = len(case.source_indices)
    size = max(step, count // 2 // step * step)
    while size >= step:
        for start in range(0, count, size):
            keep = [at for at in range(count) if not start <= at < start + size]
            if len(keep) < count:
                reads, writes = (
                    tuple(indices[at] for at in keep) for indices in (case.source_indices, case.destination_indices)
                )
                yield replace(case, source_indices=reads, destination_indices=writes)
        size = size // 2 // step * step


def _simpler_values(facts: TransferFacts, cell: Cell, case: TransferCase) -> Iterator[dict[str, Any]]:
    yield {"source_base": 0, "destination_base": 0}
    for name in ("source_base", "destination_base", "rotation", "gap_heads", "seed"):
        yield {name: 0}
    yield {"index_stride": 1}
    yield {"v_head_bytes": case.head_bytes}
    yield from ({"quota": 1, "warps": 1}, {"quota": 1}, {"warps": 1})
    for heads in range(1, case.heads):
        if facts.direct or heads * case.head_bytes % 8 == 0:
            yield {"heads": heads}
    yield from _narrower(facts, cell, case)
    for name, indices in (("source_tokens", case.source_indices), ("destination_tokens", case.destination_indices)):
        pages = max(SMALLEST_PAGES, max(indices, default=0) // cell.page_size + 2)
        yield {name: min(getattr(case, name), pages * cell.page_size)}


def _narrower(facts: TransferFacts, cell: Cell, case: TransferCase) -> Iterator[dict[str, Any]]:
    unit = unit_bytes(facts, cell)
    for head_bytes in (unit, 2 * unit, 3 * unit, case.head_bytes // 2 // unit * unit):
        if not 0 < head_bytes < case.head_bytes:
            continue
        if facts.direct:
            yield {"head_bytes": head_bytes}
        elif case.heads * head_bytes % 8 == 0:
            yield {"head_bytes": head_bytes, "v_head_bytes": head_bytes}


def _fewer_layers(facts: TransferFacts, case: TransferCase) -> Iterator[TransferCase]:
    if case.layers > 1:
        fewer = case.layers - 1
        layer_id = min(case.layer_id, fewer - 1)
        span = fewer if facts.all_layers else min(case.span, fewer - layer_id)
        yield replace(case, layers=fewer, layer_id=layer_id, span=span, rotation=min(case.rotation, fewer))
    if case.layer_id:
        yield replace(case, layer_id=case.layer_id - 1)
    if case.span > 1 and not facts.all_layers:
        yield replace(case, span=1)
