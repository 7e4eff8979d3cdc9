"""A transfer case built: pools on their devices, the arguments of the call, the reference's images."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.call_styles import OnThreads, Written
from pytest_sglhw.conformance.family import Trial
from pytest_sglhw.conformance.layouts import Extents, is_paged, position, shape, strides
from pytest_sglhw.conformance.pools import Buffer, Windows
from pytest_sglhw.conformance.reference import LogicalView, transfer
from pytest_sglhw.conformance.tensors import long_tensor, table_of
from pytest_sglhw.conformance.transfer_cases import parameters

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.devices import Place
    from pytest_sglhw.conformance.transfer_cases import TransferCase, TransferFacts


class Pool:
    """K or V of one side of a transfer.

    :param extents: of the rows that calls see; a layer-first pool itself may hold ``gap_heads`` more heads.
    :param rotation: how the layers of a layer-first pool lie in memory, see :class:`TransferCase`.
    """

    def __init__(
        self,
        place: Place,
        windows: Windows,
        where: str,
        layout: str,
        extents: Extents,
        base: int,
        rotation: int = 0,
        gap_heads: int = 0,
        buffers: type[Buffer] = Buffer,
    ) -> None:
        self.layout = layout
        self.extents = extents
        self.stored = extents._replace(heads=extents.heads + (gap_heads if layout == "layer_first" else 0))
        self.rank = _rank(extents.layers, rotation if layout == "layer_first" else 0)
        self.buffer = buffers(place, windows, self.stored.nbytes, where, base)

    def whole(self, dtype: torch.dtype) -> torch.Tensor:
        """The pool as the tensor that its layout is named for."""
        return self.buffer.contents(dtype).view(shape(self.layout, self.stored, dtype.itemsize))

    def layer(self, number: int, dtype: torch.dtype) -> torch.Tensor:
        """One layer ``[token, head, element]`` of a layer-first pool."""
        return self.layers((number,), dtype)[0]

    def layers(self, numbers: Iterable[int], dtype: torch.dtype) -> list[torch.Tensor]:
        """Layers of a layer-first pool, each ``[token, head, element]``."""
        whole = self.whole(dtype).narrow(-2, 0, self.extents.heads)
        return [whole[self.rank[number]] for number in numbers]

    def table(self) -> torch.Tensor:
        """The addresses of the layers of a layer-first pool, uint64."""
        base = self.buffer.address()
        step = strides(self.layout, self.stored)["layer"]
        return table_of(base + step * rank for rank in self.rank)

    def view(self, image: torch.Tensor) -> LogicalView:
        """The logical view of an image of this pool's buffer."""
        return LogicalView(image, self.buffer.start, self.layout, self.stored, self.rank, self.extents.heads)

    def words(self, byte: int) -> str:
        """Say where a byte of the image stands."""
        at = byte - self.buffer.start
        if at < 0:
            return f"guard, {-at} bytes before the pool"
        if at >= self.buffer.nbytes:
            return f"guard, {at - self.buffer.nbytes + 1} bytes after the pool's last"
        found = position(self.layout, self.stored, at)
        layer = self.rank.index(found["layer"])
        return (
            f"layer {layer}, page {found['page']}, token {found['token']}, head {found['head']}, byte {found['byte']}"
        )


def _rank(layers: int, rotation: int) -> tuple[int, ...]:
    return tuple((rotation - layer) % layers if rotation else layer for layer in range(layers))


def _lies_in(value: object, storages: Container[int]) -> bool:
    return isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() in storages


class TransferTrial(Trial):
    """One transfer: pools, arguments, reference."""

    def __init__(
        self,
        facts: TransferFacts,
        cell: Cell,
        case: TransferCase,
        place: Place,
        sources: Mapping[str, Pool] | None = None,
        destinations: Mapping[str, Pool] | None = None,
        buffers: type[Buffer] = Buffer,
    ) -> None:
        self.facts, self.cell, self.case, self.place = facts, cell, case, place
        self.dtype = cell.torch_dtype()
        self._kind = buffers
        windows = Windows(case.seed + (7919 if sources else 0))
        self.sources = sources or dict(self._pools("source", windows))
        self.destinations = destinations or dict(self._pools("destination", windows))
        self.buffers = {
            **{f"{part} source": pool.buffer for part, pool in self.sources.items()},
            **{f"{part} destination": pool.buffer for part, pool in self.destinations.items()},
        }

    def _pools(self, side: str, windows: Windows) -> Iterator[tuple[str, Pool]]:
        case = self.case
        first, _, last = case.direction.partition("_to_")
        where, layout = (first, self.facts.source) if side == "source" else (last, self.facts.destination)
        tokens, base = getattr(case, f"{side}_tokens"), getattr(case, f"{side}_base")
        for part in case.parts:
            head_bytes = case.v_head_bytes if part == "V" else case.head_bytes
            extents = Extents(case.layers, tokens, case.heads, head_bytes, self.cell.page_size)
            shape = (extents, base, case.rotation, case.gap_heads)
            yield part, Pool(self.place, windows, where, layout, *shape, self._kind)

    def arguments(self, **variation: Any) -> list[Any]:
        """The positional arguments of one call."""
        case = replace(self.case, **variation) if variation else self.case
        reads, writes = case.source_indices, case.destination_indices
        indices = [self._index(reads, reads, case.index_stride), self._index(writes, writes[::-1], case.index_stride)]
        if self.facts.direct:
            return [*self._lists(case), *indices, *self._direct_numbers(case)]
        return [*self._operands(case), *indices, *self._numbers(case)]

    def names(self) -> tuple[str, ...]:
        """The names of the arguments in the released signature, in their order."""
        return parameters(self.facts, len(self.case.parts))

    def kept(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """All but the pools, whose buffers are compared."""
        pools = {buffer.storage.untyped_storage().data_ptr() for buffer in self.buffers.values()}
        given = zip(self.names(), arguments, strict=True)
        return {name: value for name, value in given if not _lies_in(value, pools)}

    def _index(self, slots: Sequence[int], between: Sequence[int], stride: int) -> torch.Tensor:
        """An index tensor, as a view of a larger one where ``stride`` is above 1: ``between`` stands between the slots.

        Whoever takes it for packed moves other rows, all inside the pool. Direct kernels take indices of the CPU.
        """
        rows = zip(slots, *[between] * (stride - 1), strict=True)
        table = long_tensor(slots if stride == 1 else [number for row in rows for number in row])
        return (table if self.facts.direct else self.place.put(table))[::stride]

    def _operands(self, case: TransferCase) -> Iterator[torch.Tensor]:
        for part in case.parts:
            for pool in (self.sources[part], self.destinations[part]):
                if pool.layout != "layer_first":
                    yield pool.whole(self.dtype)
                elif self.facts.all_layers:
                    yield self.place.put(pool.table())
                else:
                    yield pool.layer(case.layer_id, self.dtype)

    def _numbers(self, case: TransferCase) -> Iterator[int]:
        row = case.heads * case.head_bytes
        facts = self.facts
        if not facts.all_layers and facts.source != "layer_first":
            yield case.layer_id
        yield row
        if facts.host_layout != "layer_first":
            yield row * case.layers
        if facts.all_layers:
            yield case.layers
        if facts.host_layout == "page_head":
            yield from (self.cell.page_size, case.heads)
        yield from (case.quota, min(case.warps, self.place.most_warps))

    def _lists(self, case: TransferCase) -> Iterator[list[torch.Tensor]]:
        for pools in (self.sources, self.destinations):
            yield [tensor for part in case.parts for tensor in self._tensors(pools[part], case)]

    def _tensors(self, pool: Pool, case: TransferCase) -> list[torch.Tensor]:
        if is_paged(pool.layout):
            return [pool.whole(self.dtype)]
        return pool.layers(range(case.layer_id, case.layer_id + case.span), self.dtype)

    def _direct_numbers(self, case: TransferCase) -> Iterator[int]:
        if self.facts.by_page and not self.facts.all_layers:
            yield case.layer_id
        yield self.cell.page_size

    def moves(self) -> tuple[range, torch.Tensor, torch.Tensor]:
        """The layers and the tokens that the call moves: from which, to which."""
        case = self.case
        layers = range(case.layer_id, case.layer_id + case.span)
        reads, writes = long_tensor(case.source_indices), long_tensor(case.destination_indices)
        if self.facts.by_page:
            reads, writes = (
                self._whole_pages(self.facts.source, reads),
                self._whole_pages(self.facts.destination, writes),
            )
        if case.pattern == "overwrites":
            last = long_tensor(sorted({to: at for at, to in enumerate(case.destination_indices)}.values()))
            reads, writes = reads[last], writes[last]
        return layers, reads, writes

    def _whole_pages(self, layout: str, indices: torch.Tensor) -> torch.Tensor:
        size = self.cell.page_size
        first = indices[::size]
        if is_paged(layout):
            first = torch.div(first, size, rounding_mode="floor") * size
        return (first[:, None] + torch.arange(size)).flatten()

    def expected(self) -> dict[str, torch.Tensor]:
        """The image that each destination must have."""
        layers, reads, writes = self.moves()
        result = {}
        for part in self.case.parts:
            source, destination = self.sources[part], self.destinations[part]
            image = destination.buffer.before.clone()
            transfer(source.view(source.buffer.before), destination.view(image), layers, reads, writes)
            result[f"{part} destination"] = image
        return result

    def ways(self, law: str) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Other ways to the same bytes."""
        if law == "repeat":
            yield [{}]
            if self.place.is_cpu:
                yield [{"style": OnThreads(2)}]
        elif law == "keywords":
            yield [{"style": Written(self.names())}]
            if not self.facts.direct:
                yield from ([{"style": Written(self.names(), by_name, left_out=2)}] for by_name in (True, False))
        elif law == "quota" and not self.facts.direct:
            yield from ([{"quota": quota, "warps": warps}] for quota, warps in ((1, 1), (5, 3), (64, 32)))
        elif law == "split" and self.case.source_indices:
            yield list(self._halves())

    def _halves(self) -> Iterator[dict[str, Any]]:
        case, step = self.case, self.cell.page_size if self.facts.direct else 1
        middle = max(step, len(case.source_indices) // 3 // step * step)
        for part in (slice(None, middle), slice(middle, None)):
            if case.source_indices[part]:
                yield {
                    "source_indices": case.source_indices[part],
                    "destination_indices": case.destination_indices[part],
                }

    def _pool(self, buffer: str) -> Pool:
        part, _, side = buffer.partition(" ")
        return (self.sources if side == "source" else self.destinations)[part]

    def locate(self, buffer: str, byte: int) -> str:
        """Say which layer, page, token, head and byte stand at a byte of a buffer's image."""
        return self._pool(buffer).words(byte)

    def origin(self, buffer: str, byte: int, image: torch.Tensor) -> str | None:
        """Find the bytes that stand at ``byte`` in what the buffers held before the call."""
        pool = self._pool(buffer)
        head = pool.extents.head_bytes
        begin = pool.buffer.start + (byte - pool.buffer.start) // head * head
        begin, end = (byte, begin + head) if begin + head - byte >= 8 else (max(begin, byte - 7), begin + head)
        needle = image[begin : min(end, begin + 16)].numpy().tobytes()
        if len(needle) < 4:
            return None
        for name, other in self.buffers.items():
            found = other.before.numpy().tobytes().find(needle)
            if found >= 0:
                same = name == buffer and found == begin
                return "this place before the call" if same else f"{name}: {self.locate(name, found + byte - begin)}"
        return None
