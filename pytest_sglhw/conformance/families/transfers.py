"""SGLang's JIT transfers between a host pool and a device pool (``transfer_hicache_*``), and their relatives.

Targets come before sources, the opposite of ``sgl_kernel.kvcacheio``. Index tensors may be int32 or int64, both alike,
and must be contiguous: each tensor is compared with what the kernel takes before anything is launched. The device pool
is one tensor of rows per layer; the host pool is layer first (``[layer, row]``) or page first (``[row, layer]``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.checks import LAWS
from pytest_sglhw.conformance.families.runs import STRIDED, Area, Rows, RowsWorkload, Run, RunTrial
from pytest_sglhw.conformance.family import ErrorInput, Kernel
from pytest_sglhw.conformance.index_patterns import of_pages

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.family import Trial


class HostTransfer(RowsWorkload):
    """Rows between a host pool of all layers and device pools.

    :param parts: ``("K", "V")``, or ``("latent",)`` for the one cache of MLA.
    :param load: from the host to the device, or back.
    """

    layers = (1, 3)
    widths: Sequence[tuple[int, int]] = ((128, 128), (256, 256), (512, 512), (1024, 1024), (1152, 1152))
    counts: Sequence[int] = (1, 2, 5, 63, 65, 0)
    bases: Sequence[int] = (0, 128)
    options: Sequence[str] = ("packed", "strided")
    """How the rows of a device pool lie: those of a wider pool have others in between."""

    def __init__(self, parts: tuple[str, ...], *, load: bool) -> None:
        self.parts, self.load = parts, load

    def moved_layers(self, case: Rows) -> range:
        """The layers that one call moves: one for a load, all for a write-back."""
        return range(case.layer, case.layer + 1) if self.load else range(case.layers)

    def device_step(self, case: Rows) -> int:
        """Bytes from one row of a device pool to the next."""
        return case.widths[0] * (2 if case.option == "strided" else 1)

    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """See :class:`RowsWorkload`."""
        host_rows, device_rows = self._by_side(case.source_rows, case.target_rows)
        width, step, areas = case.widths[0], self.device_step(case), {}
        for part in self.parts:
            areas[f"host {part}"] = Area(case.layers * host_rows * width, not self.load, "host", case.base)
            areas |= {
                f"device {part} of layer {layer}": Area(device_rows * step, self.load, "device", case.base)
                for layer in self.moved_layers(case)
            }
        return areas

    def runs(self, cell: Cell, case: Rows) -> Iterator[Run]:
        """See :class:`RowsWorkload`."""
        width = case.widths[0]
        for part in self.parts:
            for layer in self.moved_layers(case):
                for source, target in case.pairs:
                    host_row, device_row = self._by_side(source, target)
                    what = f"row {source} of layer {layer} of {part}, which goes to row {target}"
                    ends = (
                        (f"host {part}", self.host_offset(cell, case, layer, host_row)),
                        (f"device {part} of layer {layer}", device_row * self.device_step(case)),
                    )
                    (source_name, origin), (target_name, at) = ends if self.load else ends[::-1]
                    yield Run(target_name, at, source_name, origin, width, what)

    def host_offset(self, cell: Cell, case: Rows, layer: int, row: int) -> int:
        """The byte at which a row of a layer stands in the host pool."""
        if cell.layout == "page_first":
            return (row * case.layers + layer) * case.widths[0]
        rows, _ = self._by_side(case.source_rows, case.target_rows)
        return (layer * rows + row) * case.widths[0]

    def errors(self, trial: Trial) -> Iterator[ErrorInput]:
        """See :class:`Workload`: every index tensor and every table is looked at before anything is launched."""
        assert isinstance(trial, RunTrial)
        for name, at in self.kept.items():
            yield from self.index_errors(trial, name, at) if "indices" in name else _table_errors(name, at)

    def index_errors(self, trial: RunTrial, name: str, at: int) -> Iterator[ErrorInput]:
        """What an index tensor may not be: of another type or length than its twin, strided, or elsewhere."""
        yield _unlike(f"one of {name} too many", at, lambda rows: torch.cat((rows, rows.new_zeros(1))))
        other = torch.int64 if trial.case.index_dtype == torch.int32 else torch.int32
        yield _unlike(f"{name} of type {other}", at, lambda rows: rows.to(other))
        if len(trial.case.pairs) > 1:
            yield _unlike(f"{name} with a stride", at, _strided, "Tensor is not contiguous as expected")
        if not trial.place.is_cpu:
            yield _unlike(f"{name} on the CPU", at, torch.Tensor.cpu)

    def _by_side(self, source: int, target: int) -> tuple[int, int]:
        """(source, target) as (host, device)."""
        return (source, target) if self.load else (target, source)

    def bulk_pairs(
        self, cell: Cell, count: int, option: str, rng: random.Random
    ) -> tuple[list[tuple[int, int]], int, int]:
        """See :class:`RowsWorkload`: rows of whole pages, as serving has them."""
        pages = -(-count // cell.page_size)
        sides = (of_pages(rng.sample(range(pages), pages), cell.page_size)[:count] for _ in range(2))
        return list(zip(*sides, strict=True)), pages * cell.page_size, pages * cell.page_size

    def _stride(self, cell: Cell, case: Rows) -> int:
        return case.widths[0] * (case.layers if cell.layout == "page_first" else 1)


def _unlike(name: str, at: int, change: Callable[[torch.Tensor], torch.Tensor], cause: str = "") -> ErrorInput:
    """One tensor that is not what the kernel takes."""

    def spoil(arguments: list[Any]) -> None:
        arguments[at] = change(arguments[at])

    return ErrorInput(name, spoil, RuntimeError, cause or "Tensor match failed")


def _strided(rows: torch.Tensor) -> torch.Tensor:
    return rows.repeat_interleave(2)[::2]


def _table_errors(name: str, at: int) -> Iterator[ErrorInput]:
    yield _unlike(f"{name} of type int64", at, lambda table: table.view(torch.int64))


class OneLayer(HostTransfer):
    """``transfer_hicache_one_layer``: tensors of the layer's rows; those of a page-first host pool are strided."""

    @property
    def kept(self) -> Mapping[str, int]:
        """See :class:`RowsWorkload`."""
        return {"indices_dst": len(self.parts), "indices_src": 2 * len(self.parts) + 1}

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        cell, dtype, width = trial.cell, trial.cell.torch_dtype(), case.widths[0] // trial.cell.itemsize
        hosts = []
        for part in self.parts:
            shape = (-1, case.layers, width) if cell.layout == "page_first" else (case.layers, -1, width)
            pool = trial.buffers[f"host {part}"].contents(dtype).view(shape)
            hosts.append(pool[:, case.layer] if cell.layout == "page_first" else pool[case.layer])
        step = self.device_step(case) // cell.itemsize
        devices = [trial.view(f"device {part} of layer {case.layer}", dtype, -1, step) for part in self.parts]
        devices = [rows[:, :width] for rows in devices]
        targets, sources = trial.index(case.targets, case.index_dtype), trial.index(case.sources, case.index_dtype)
        return [*devices, targets, *hosts, sources]

    def keywords(self, trial: RunTrial, case: Rows) -> Mapping[str, Any]:
        """See :class:`RowsWorkload`."""
        return {"element_dim": case.widths[0] // trial.cell.itemsize, "page_size": trial.cell.page_size}


class AllLayers(HostTransfer):
    """``transfer_hicache_all_layer``: uint64 tables of addresses, one per layer, and the bytes from row to row."""

    @property
    def kept(self) -> Mapping[str, int]:
        """See :class:`RowsWorkload`."""
        sides = ([f"{table}_{side}" for table in self._tables()] + [f"indices_{side}"] for side in ("dst", "src"))
        return {name: at for at, name in enumerate(name for names in sides for name in names)}

    def _tables(self) -> list[str]:
        return ["k_ptr", "v_ptr"] if len(self.parts) == 2 else ["ptr"]

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        layers = range(case.layers)
        hosts = [
            torch.tensor(
                [
                    trial.buffers[f"host {part}"].address() + self.host_offset(trial.cell, case, layer, 0)
                    for layer in layers
                ],
                dtype=torch.uint64,
            )
            for part in self.parts
        ]
        devices = [trial.table(f"device {part} of layer {layer}" for layer in layers) for part in self.parts]
        targets, sources = trial.index(case.targets, case.index_dtype), trial.index(case.sources, case.index_dtype)
        return [*map(trial.place.put, hosts), targets, *devices, sources]

    def keywords(self, trial: RunTrial, case: Rows) -> Mapping[str, Any]:
        """See :class:`RowsWorkload`."""
        prefix = "kv_cache" if len(self.parts) == 2 else "cache"
        return {
            f"{prefix}_src_stride_bytes": self.device_step(case),
            f"{prefix}_dst_stride_bytes": self._stride(trial.cell, case),
            "element_size": case.widths[0],
            "page_size": trial.cell.page_size,
        }


class Staged(AllLayers):
    """``transfer_hicache_all_layer_staged_lf_pf``: whole pages, through a staging buffer of a few pages.

    A pair is a page here; the option says how many pages the staging buffer holds. Destination indices stay on the CPU.
    Source indices may have a stride: the first of each page is taken.
    """

    indices = ("int64", "int32", f"int64{STRIDED}", f"int32{STRIDED}")
    widths = ((16, 16), (128, 128), (576, 576))
    counts = (1, 2, 3, 5, 0)
    options = ("64", "1", "2")
    bases = (0,)

    @property
    def kept(self) -> Mapping[str, int]:
        """See :class:`RowsWorkload`."""
        names = (*(f"{table}_src" for table in self._tables()), "src_indices", "dst_indices")
        return {name: at for at, name in enumerate(names)}

    def errors(self, trial: Trial) -> Iterator[ErrorInput]:
        """See :class:`Workload`; where there is no page, nothing is looked at."""
        return super().errors(trial) if trial.case.pairs else iter(())

    def index_errors(self, trial: RunTrial, name: str, at: int) -> Iterator[ErrorInput]:
        """What destination indices may not be; a launch sees those of its chunk of pages."""
        if name == "src_indices":
            return
        yield _unlike(f"{name} of type int32", at, torch.Tensor.int)
        if min(int(trial.case.option), len(trial.case.pairs)) * trial.cell.page_size > 1:
            yield _unlike(f"{name} with a stride", at, _strided, "Tensor is not contiguous as expected")
        if not trial.place.is_cpu:
            yield _unlike(f"{name} on the device", at, trial.place.put)

    def bulk_pairs(
        self, cell: Cell, count: int, option: str, rng: random.Random
    ) -> tuple[list[tuple[int, int]], int, int]:
        """See :class:`RowsWorkload`: a pair is a page."""
        return self.pairs(cell, count, option, rng)

    def pairs(self, cell: Cell, count: int, option: str, rng: random.Random) -> tuple[list[tuple[int, int]], int, int]:
        """See :class:`RowsWorkload`; source pages too are met once."""
        sources, targets = (rng.sample(range(count + 3), count) for _ in range(2))
        return list(zip(sources, targets, strict=True)), count + 3, count + 3

    def areas(self, cell: Cell, case: Rows) -> Mapping[str, Area]:
        """See :class:`RowsWorkload`."""
        return {
            name: area._replace(nbytes=area.nbytes * cell.page_size) for name, area in super().areas(cell, case).items()
        }

    def runs(self, cell: Cell, case: Rows) -> Iterator[Run]:
        """See :class:`RowsWorkload`: a page is that many rows."""
        page, width = cell.page_size, case.widths[0]
        for part in self.parts:
            for layer in range(case.layers):
                for source, target in case.pairs:
                    for token in range(page):
                        what = f"token {token} of page {source} of layer {layer} of {part}, which goes to page {target}"
                        at = ((target * page + token) * case.layers + layer) * width
                        origin = (source * page + token) * width
                        yield Run(f"host {part}", at, f"device {part} of layer {layer}", origin, width, what)

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        page, dtype, width = trial.cell.page_size, trial.cell.torch_dtype(), case.widths[0] // trial.cell.itemsize
        layers = range(case.layers)
        tables = [trial.table(f"device {part} of layer {layer}" for layer in layers) for part in self.parts]
        sources, targets = (
            [p * page + token for p in pages for token in range(page)] for pages in (case.sources, case.targets)
        )
        staging = [
            trial.place.put(torch.zeros((int(case.option) * page, case.layers, 1, width), dtype=dtype))
            for _ in self.parts
        ]
        hosts = [trial.view(f"host {part}", dtype, -1, case.layers, 1, width) for part in self.parts]
        return [
            *tables,
            trial.index(sources, case.index_dtype, case.index_stride),
            torch.tensor(targets, dtype=torch.int64),
            *staging,
            *hosts,
        ]

    def keywords(self, trial: RunTrial, case: Rows) -> Mapping[str, Any]:
        """See :class:`RowsWorkload`."""
        return {"page_size": trial.cell.page_size}


class Mamba(HostTransfer):
    """``transfer_kv_mamba_pf_lf`` (load) and ``_lf_pf`` (write-back): states of one size, page first on the host."""

    widths = ((16, 16), (48, 48), (16400, 16400))
    counts = (1, 2, 5, 0)
    options = ("packed",)
    indices = ("int64",)

    @property
    def kept(self) -> Mapping[str, int]:
        """See :class:`RowsWorkload`."""
        return {**({} if self.load else {"src_ptrs": 0}), "src_indices": 2, "dst_indices": 3}

    def arguments(self, trial: RunTrial, case: Rows) -> list[Any]:
        """See :class:`RowsWorkload`."""
        host, width = trial.view("host state", torch.uint8, -1, case.layers * case.widths[0]), case.widths[0]
        rows = [trial.index(case.sources), trial.index(case.targets)]
        if self.load:
            device = trial.view(f"device state of layer {case.layer}", torch.uint8, -1, width)
            return [host, device, *rows, case.layer, width, width * case.layers]
        table = trial.table(f"device state of layer {layer}" for layer in range(case.layers))
        return [table, host, *rows, width, width * case.layers, case.layers]


_KV, _LATENT = ("K", "V"), ("latent",)
_BOTH = ("layer_first", "page_first")
_DTYPES = ("bfloat16", "float8_e4m3fn", "uint8")
_LAWS = (LAWS["repeat"], LAWS["split"], LAWS["errors"])


def _row(
    name: str, workload: HostTransfer, layouts: tuple[str, ...], dtypes: tuple[str, ...], pages: tuple[int, ...]
) -> Kernel:
    return Kernel(name, "transfers", layouts, workload, _LAWS, dtypes, pages)


KERNELS: tuple[Kernel, ...] = (
    _row("transfer_hicache_one_layer", OneLayer(_KV, load=True), _BOTH, _DTYPES, (1, 16, 128)),
    _row("transfer_hicache_one_layer_mla", OneLayer(_LATENT, load=True), _BOTH, _DTYPES, (1, 16, 128)),
    _row("transfer_hicache_all_layer", AllLayers(_KV, load=False), _BOTH, ("uint8",), (1, 16, 128)),
    _row("transfer_hicache_all_layer_mla", AllLayers(_LATENT, load=False), _BOTH, ("uint8",), (1, 16, 128)),
    _row("transfer_hicache_all_layer_staged_lf_pf", Staged(_KV, load=False), ("page_first",), _DTYPES, (1, 4, 16, 64)),
    _row(
        "transfer_hicache_all_layer_mla_staged_lf_pf",
        Staged(_LATENT, load=False),
        ("page_first",),
        _DTYPES,
        (1, 4, 16, 64),
    ),
    _row("transfer_kv_mamba_pf_lf", Mamba(("state",), load=True), ("page_first",), ("uint8",), (1,)),
    _row("transfer_kv_mamba_lf_pf", Mamba(("state",), load=False), ("page_first",), ("uint8",), (1,)),
)
