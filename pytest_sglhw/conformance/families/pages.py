"""Kernels that move whole pages, or address them in a layout of their own: page rows, DeepSeek V4's C4, page-unified.

A page of the page-unified host layout holds ``[head group, layer, K or V, token, head in group, dim]`` (without the
group and the K/V axis for MLA), so a range of layers of one head group is one run of bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_sglhw.conformance.checks import LAWS
from pytest_sglhw.conformance.families.runs import Area, Rows, RowsWorkload, Run, RunTrial
from pytest_sglhw.conformance.family import Kernel

if TYPE_CHECKING:
    import random

    from pytest_sglhw.conformance.cells import Cell


class PageRows(RowsWorkload):
    """``transfer_page_rows``: opaque rows of whole pages in every layer; ``option`` is the direction."""

    widths = ((128, 128), (384, 384), (20096, 20096))
    counts = (1, 2, 5, 0)
    options = ("load", "write back")
    bases = (0, 128)
    padding = 128

    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """See :class:`RowsWorkload`."""
        load, width = case.option == "load", case.widths[0]
        host_rows, device_rows = _host_first(case, case.source_rows, case.target_rows)
        areas = {}
        for layer in range(case.layers):
            areas[f"host layer {layer}"] = Area(host_rows * (width + self.padding), not load, "host", case.base)
            areas[f"device layer {layer}"] = Area(device_rows * width, load, "device", case.base)
        return areas

    def runs(self, cell: Cell, case: Rows) -> Iterator[Run]:
        """See :class:`RowsWorkload`."""
        width = case.widths[0]
        for layer in range(case.layers):
            for source, target in case.pairs:
                host, device = _host_first(case, source, target)
                ends = (
                    (f"host layer {layer}", host * (width + self.padding)),
                    (f"device layer {layer}", device * width),
                )
                (source_name, origin), (target_name, at) = ends if case.option == "load" else ends[::-1]
                what = f"page {source} of layer {layer}, which goes to page {target}"
                yield Run(target_name, at, source_name, origin, width, what)

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        tables = [trial.table(f"{side} layer {layer}" for layer in range(case.layers)) for side in ("host", "device")]
        rows = _host_first(case, case.sources, case.targets)
        return [*tables, *(trial.index(pages, case.index_dtype) for pages in rows)]

    def keywords(self, trial: RunTrial, case: Rows) -> Mapping[str, Any]:
        """See :class:`RowsWorkload`."""
        width = case.widths[0]
        strides = {"host_stride": width + self.padding, "device_stride": width}
        return {**strides, "row_bytes": width, "load": case.option == "load"}


def _host_first(case: Rows, source: Any, target: Any) -> tuple[Any, Any]:
    return (source, target) if case.option == "load" else (target, source)


class DimExchange(RowsWorkload):
    """``transfer_kv_dim_exchange`` of Ascend: whole pages of all layers, host ``[page, layer, token, head, dim]``."""

    widths = ((128, 128), (512, 128), (256, 64))
    counts = (1, 2, 5, 0)
    options = ("H2D", "D2H")
    indices = ("int64",)
    bases = (0,)

    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """See :class:`RowsWorkload`."""
        load, areas = case.option == "H2D", {}
        host_pages, device_pages = self._sides(case, case.source_rows, case.target_rows)
        for kv, width in zip("KV", case.widths, strict=True):
            page = case.layers * cell.page_size * width
            areas[f"host {kv}"] = Area(host_pages * page, not load, "host")
            areas[f"device {kv}"] = Area(device_pages * page, load)
        return areas

    def runs(self, cell: Cell, case: Rows) -> Iterator[Run]:
        """See :class:`RowsWorkload`: the tokens of a page in a layer are one run."""
        _, device_pages = self._sides(case, case.source_rows, case.target_rows)
        for kv, width in zip("KV", case.widths, strict=True):
            size = cell.page_size * width
            for layer in range(case.layers):
                for source, target in case.pairs:
                    host, device = self._sides(case, source, target)
                    ends = (
                        (f"host {kv}", (host * case.layers + layer) * size),
                        (f"device {kv}", (layer * device_pages + device) * size),
                    )
                    (source_name, origin), (target_name, at) = ends if case.option == "H2D" else ends[::-1]
                    what = f"page {source} of layer {layer} of {kv}, which goes to page {target}"
                    yield Run(target_name, at, source_name, origin, size, what)

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        page, dtype = trial.cell.page_size, trial.cell.torch_dtype()
        host_pages, device_pages = self._sides(case, case.source_rows, case.target_rows)
        pools = []
        for kv, width in zip("KV", case.widths, strict=True):
            shape = (page, 1, width // trial.cell.itemsize)
            pools.append(trial.view(f"device {kv}", dtype, case.layers, device_pages, *shape))
            pools.append(trial.view(f"host {kv}", dtype, host_pages, case.layers, *shape))
        host, device = self._sides(case, case.sources, case.targets)
        tokens = [[each * page + at for each in pages for at in range(page)] for pages in (device, host)]
        return [*map(trial.index, tokens), *pools]

    def keywords(self, trial: RunTrial, case: Rows) -> Mapping[str, Any]:
        """See :class:`RowsWorkload`."""
        return {"page_size": trial.cell.page_size, "direction": case.option}

    def _sides(self, case: Rows, source: Any, target: Any) -> tuple[Any, Any]:
        """(source, target) as (host, device)."""
        return (source, target) if case.option == "H2D" else (target, source)


class C4Page(NamedTuple):
    """A page of DeepSeek V4's compressed cache: values of all tokens, then their scales, padded to whole values."""

    tokens: int = 64
    value: int = 576
    scale: int = 8

    @property
    def nbytes(self) -> int:
        """Bytes of a page."""
        used = self.tokens * (self.value + self.scale)
        return -(-used // self.value) * self.value

    def places(self, token: int) -> tuple[tuple[str, int, int], ...]:
        """(part, offset, bytes) of a token's value and scale."""
        page, at = divmod(token, self.tokens)
        base = page * self.nbytes
        scale = base + self.tokens * self.value + at * self.scale
        return ("value", base + at * self.value, self.value), ("scale", scale, self.scale)


C4 = C4Page()


class C4Transfer(RowsWorkload):
    """``transfer_cache_dsv4_mla``: tokens between paged C4 buffers of every layer."""

    widths = ((C4.value, C4.scale),)
    counts = (1, 2, 5, 33, 0)
    indices = ("int64",)
    bases = (0,)

    def pairs(self, cell: Cell, count: int, option: str, rng: random.Random) -> tuple[list[tuple[int, int]], int, int]:
        """See :class:`RowsWorkload`: two pages or more."""
        rows = C4.tokens * 2
        return list(zip(rng.choices(range(rows), k=count), rng.sample(range(rows), count), strict=True)), rows, rows

    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """See :class:`RowsWorkload`."""
        size = case.source_rows // C4.tokens * C4.nbytes
        sides = (("source", False), ("target", True))
        return {f"{side} layer {layer}": Area(size, target) for layer in range(case.layers) for side, target in sides}

    def runs(self, cell: Cell, case: Rows) -> Iterator[Run]:
        """See :class:`RowsWorkload`."""
        for layer in range(case.layers):
            for source, target in case.pairs:
                for (part, origin, size), (_, at, _) in zip(C4.places(source), C4.places(target), strict=True):
                    what = f"the {part} of token {source} of layer {layer}, which goes to token {target}"
                    yield Run(f"target layer {layer}", at, f"source layer {layer}", origin, size, what)

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        tables = [trial.table(f"{side} layer {layer}" for layer in range(case.layers)) for side in ("source", "target")]
        return [*tables, trial.index(case.sources), trial.index(case.targets)]


class PageUnified(RowsWorkload):
    """What load and write-back of the page-unified layout share. The option is the number of head groups.

    :param parts: ``("K", "V")``, or ``("latent",)`` for MLA, which has one group.
    """

    widths = ((64, 64), (128, 128), (576, 576))
    counts = (1, 2, 5, 0)
    options: Sequence[str] = ("1", "2", "4")
    bases = (0,)

    def __init__(self, parts: tuple[str, ...]) -> None:
        self.parts = parts
        if len(parts) == 1:
            self.options = ("1",)

    def shape(self, cell: Cell, case: Rows) -> tuple[int, ...]:
        """The shape of one host page, in elements."""
        groups, row = int(case.option), case.widths[0] // cell.itemsize
        if len(self.parts) == 1:
            return (case.layers, cell.page_size, row)
        return (groups, case.layers, 2, cell.page_size, 1, row // groups)

    def host_offset(self, cell: Cell, case: Rows, token: int, group: int, layer: int, part: int) -> int:
        """The byte at which a token's row of one head group stands in the host pool."""
        page, at = divmod(token, cell.page_size)
        groups, parts = int(case.option), len(self.parts)
        row = (((page * groups + group) * case.layers + layer) * parts + part) * cell.page_size + at
        return row * (case.widths[0] // groups)

    def host_bytes(self, cell: Cell, case: Rows, pages: int) -> int:
        """Bytes of a host pool."""
        return pages * cell.page_size * case.layers * len(self.parts) * case.widths[0]

    def pieces(
        self, cell: Cell, case: Rows, host: int, device: int, layer: int
    ) -> Iterator[tuple[str, int, int, int, str]]:
        """(part, host offset, device offset, bytes, words) of one token in one layer."""
        groups = int(case.option)
        size = case.widths[0] // groups
        for number, part in enumerate(self.parts):
            for group in range(groups):
                offset = self.host_offset(cell, case, host, group, layer, number)
                words = f"head group {group} of layer {layer} of {part}, host token {host}, device token {device}"
                yield part, offset, device * case.widths[0] + group * size, size, words


class PageUnifiedLoad(PageUnified):
    """``transfer_hicache_one_layer_page_unified_lf``: tokens of one layer from host pages to the device pool."""

    def pairs(self, cell: Cell, count: int, option: str, rng: random.Random) -> tuple[list[tuple[int, int]], int, int]:
        """See :class:`RowsWorkload`: sources are tokens of whole pages."""
        pairs, sources, targets = super().pairs(cell, count, option, rng)
        return pairs, -(-sources // cell.page_size) * cell.page_size, targets

    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """See :class:`RowsWorkload`."""
        devices = {f"device {part}": Area(case.target_rows * case.widths[0], target=True) for part in self.parts}
        return {"host": Area(self.host_bytes(cell, case, case.source_rows // cell.page_size), where="host"), **devices}

    def runs(self, cell: Cell, case: Rows) -> Iterator[Run]:
        """See :class:`RowsWorkload`."""
        for source, target in case.pairs:
            for part, host, device, size, words in self.pieces(cell, case, source, target, case.layer):
                yield Run(f"device {part}", device, "host", host, size, words)

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        dtype = trial.cell.torch_dtype()
        devices = [trial.view(f"device {part}", dtype, case.target_rows, int(case.option), -1) for part in self.parts]
        host = trial.view("host", dtype, -1, *self.shape(trial.cell, case))
        rows = [trial.index(each, case.index_dtype) for each in (case.sources, case.targets)]
        return [*devices, host, *rows, case.layer]


class PageUnifiedWriteBack(PageUnified):
    """``transfer_hicache_all_layer_staged_lf_page_unified``: whole pages of all layers, through a staging buffer."""

    capacity = 2

    def pairs(self, cell: Cell, count: int, option: str, rng: random.Random) -> tuple[list[tuple[int, int]], int, int]:
        """See :class:`RowsWorkload`: a pair is a page."""
        pages = count + 3
        return list(zip(rng.sample(range(pages), count), rng.sample(range(pages), count), strict=True)), pages, pages

    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """See :class:`RowsWorkload`."""
        size = case.source_rows * cell.page_size * case.widths[0]
        names = (f"device {part} of layer {layer}" for part in self.parts for layer in range(case.layers))
        host = Area(self.host_bytes(cell, case, case.target_rows), target=True, where="host")
        return {"host": host, **{name: Area(size) for name in names}}

    def runs(self, cell: Cell, case: Rows) -> Iterator[Run]:
        """See :class:`RowsWorkload`."""
        page = cell.page_size
        tokens = [(s * page + token, t * page + token) for s, t in case.pairs for token in range(page)]
        for layer in range(case.layers):
            for source, target in tokens:
                for part, host, device, size, words in self.pieces(cell, case, target, source, layer):
                    yield Run("host", host, f"device {part} of layer {layer}", device, size, words)

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        dtype, shape, layers = trial.cell.torch_dtype(), self.shape(trial.cell, case), range(case.layers)
        tables = [trial.table(f"device {part} of layer {layer}" for layer in layers) for part in self.parts]
        staging = trial.place.put(torch.zeros((self.capacity, *shape), dtype=dtype))
        pages = [trial.index(case.sources, case.index_dtype), torch.tensor(case.targets, dtype=torch.int64)]
        return [*tables, *pages, staging, trial.view("host", dtype, -1, *shape)]


_KV, _LATENT = ("K", "V"), ("latent",)
_LAWS = (LAWS["repeat"], LAWS["split"])
_DTYPES = ("bfloat16", "float8_e4m3fn", "uint8")


def _unified(name: str, workload: PageUnified) -> Kernel:
    return Kernel(name, "pages", ("page_unified",), workload, _LAWS, _DTYPES, (1, 4, 16, 64))


KERNELS: tuple[Kernel, ...] = (
    Kernel("transfer_page_rows", "pages", ("pages",), PageRows(), _LAWS, ("uint8",), (1,)),
    Kernel("transfer_cache_dsv4_mla", "pages", ("c4",), C4Transfer(), _LAWS, ("uint8",), (C4.tokens,)),
    Kernel(
        "transfer_kv_dim_exchange", "pages", ("page_first_direct",), DimExchange(), _LAWS, _DTYPES[::2], (1, 16, 128)
    ),
    _unified("transfer_hicache_one_layer_page_unified_lf", PageUnifiedLoad(_KV)),
    _unified("transfer_hicache_one_layer_mla_page_unified_lf", PageUnifiedLoad(_LATENT)),
    _unified("transfer_hicache_all_layer_staged_lf_page_unified", PageUnifiedWriteBack(_KV)),
    _unified("transfer_hicache_all_layer_mla_staged_lf_page_unified", PageUnifiedWriteBack(_LATENT)),
)
