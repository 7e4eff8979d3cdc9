"""How a fault is planted: a correct kernel is wrapped, and its arguments, bytes or memory of calls are spoilt."""

# ruff: noqa: ARG005 (every change and every formula is called alike)

from __future__ import annotations

import ctypes
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from pytest_sglhw.conformance.family import KernelFunction

Given = dict[str, Any]
"""The arguments of one call by the kernel's names for them, in order."""

Fault = Callable[["KernelFunction", Given], Any]
"""``fault(kernel, given)`` does what a wrong kernel does, by way of the right one."""


@dataclass(frozen=True)
class Mutant:
    """One planted fault."""

    name: str
    kernels: tuple[str, ...]
    """The kernels in which it is planted, one at a time."""
    laws: tuple[str, ...]
    """The laws that must kill it: the first, or another where an example shows nothing else (one row moved wrongly is
    a row lost, too). The class of an exception where the kernel raises on valid input."""
    why: str
    """What it stands for, with the public bug that it mirrors."""
    make: Callable[[], Fault]
    """Makes the fault anew for each run, as some remember calls."""
    within: tuple[str, ...] = ()
    """The provider's kernels that the fault is planted in, all at once, where the matrix calls several kernels in one
    cell; with none, the kernel of the cell."""


def plant_in(mutant: Mutant, kernel: str, provider: Any) -> dict[str, KernelFunction]:
    """Wrap what ``mutant`` makes wrong of a correct provider, for the cells of ``kernel``."""
    fault = mutant.make()
    return {name: plant(mutant, getattr(provider, name), fault) for name in mutant.within or (kernel,)}


def plant(mutant: Mutant, kernel: KernelFunction, fault: Fault) -> KernelFunction:
    """Wrap a correct kernel. Input that must be refused reaches it as it is, unless the fault is about refusals."""
    names = tuple(inspect.signature(kernel).parameters)

    @functools.wraps(kernel)
    def planted(*values: Any, **keywords: Any) -> Any:
        given = {**dict(zip(names, values, strict=False)), **keywords}
        if "errors" not in mutant.laws and not is_regular(given):
            return kernel(**given)
        return fault(kernel, given)

    return planted


def is_regular(given: Given) -> bool:
    """Whether a call is one that the kernels of ``kvcacheio`` accept (others are always regular)."""
    if "data_ptrs" in given:
        return _is_regular_move(**given)
    if "src_indices" not in given:
        return True
    reads, writes = given["src_indices"], given["dst_indices"]
    if reads.shape != writes.shape or {reads.dtype, writes.dtype} != {torch.int64}:
        return False
    if "item_size" in given:
        tables = [value for name, value in given.items() if name.endswith("_layers") and name != "num_layers"]
        fitting = all(table.dtype == torch.uint64 and len(table) == given["num_layers"] for table in tables)
        return bool(given["item_size"] % 8 == 0 and fitting)
    size = given["page_size"]
    return size > 0 and len(reads) % size == 0 and len(given.get("src_layers", ())) == len(given.get("dst_layers", ()))


def _is_regular_move(
    data_ptrs: torch.Tensor, strides: torch.Tensor, tgt_loc: torch.Tensor, src_loc: torch.Tensor
) -> bool:
    tables = (data_ptrs.dtype, strides.dtype) == (torch.uint64, torch.int64) and len(data_ptrs) == len(strides)
    return tables and (tgt_loc.dtype, len(tgt_loc)) == (src_loc.dtype, len(src_loc))


def changing(**changes: Callable[[Given], Any]) -> Callable[[], Fault]:
    """Give the kernel other arguments: each name with a function of what was given."""

    def fault(kernel: KernelFunction, given: Given) -> Any:
        return kernel(**{**given, **{name: change(given) for name, change in changes.items()}})

    return lambda: fault


def items(select: Callable[[torch.Tensor, Given], torch.Tensor]) -> Callable[[], Fault]:
    """Give the kernel other items: ``select`` picks from the source indices and, alike, from the destination's."""
    return changing(
        src_indices=lambda given: select(given["src_indices"], given),
        dst_indices=lambda given: select(given["dst_indices"], given),
    )


def read_as_packed(indices: torch.Tensor, given: Given) -> torch.Tensor:  # noqa: ARG001 - the signature of `select`
    """Take a tensor for contiguous, whatever its stride is."""
    return indices.as_strided(indices.shape, (1,), indices.storage_offset())


def after(spoil: Callable[[Given], None]) -> Callable[[], Fault]:
    """Do something more when the kernel has returned."""

    def fault(kernel: KernelFunction, given: Given) -> Any:
        result = kernel(**given)
        spoil(given)
        return result

    return lambda: fault


def sides(given: Given) -> Iterator[tuple[str, str]]:
    """The names of each source pool and of its destination."""
    pools = [name for name in given if name.startswith(("src", "dst")) and not name.endswith(("indices", "dim"))]
    return zip((name for name in pools if name[0] == "s"), (name for name in pools if name[0] == "d"), strict=True)


class Geometry(NamedTuple):
    """What the formulas of addresses work with; bytes."""

    item: int
    dim: int
    page: int
    heads: int
    tokens: int
    """Tokens of the paged pool."""

    @property
    def head(self) -> int:
        """Bytes of a head in one layer."""
        return self.item // self.heads

    @property
    def layers(self) -> int:
        """Layers of the pool."""
        return self.dim // self.item


Formula = Callable[[Geometry, int, int, int], int]
"""``formula(geometry, layer, token, head)`` is the byte at which a row stands in a paged pool."""


def page_first(at: Geometry, layer: int, token: int, head: int) -> int:
    """``[token, layer, head]``."""
    return token * at.dim + layer * at.item + head * at.head


def page_head(at: Geometry, layer: int, token: int, head: int) -> int:
    """``[page, head, slot, layer]``."""
    page, slot = divmod(token, at.page)
    return (((page * at.heads + head) * at.page + slot) * at.layers + layer) * at.head


def by_address(formula: Formula | None = None, width: Callable[[int], int] = int) -> Callable[[], Fault]:
    """Move by addresses: with another formula for the paged pool, or another number of bytes for each row.

    A wrong offset is taken modulo the size of its pool: a fault must end in wrong bytes, not in a crash.
    """

    def fault(kernel: KernelFunction, given: Given) -> None:  # noqa: ARG001 - it does without the right one
        pairs = list(zip(given["src_indices"].tolist(), given["dst_indices"].tolist(), strict=True))
        layers = range(given["num_layers"]) if "num_layers" in given else [given.get("layer_id", 0)]
        heads = given.get("head_num", 1)
        size = width(given["item_size"] // heads)
        for source, destination in sides(given):
            read, write = (_locator(given, name, formula) for name in (source, destination))
            for layer in layers:
                for start, end in pairs:
                    for head in range(heads):
                        ctypes.memmove(write(layer, end, head), read(layer, start, head), size)

    return lambda: fault


def _locator(given: Given, name: str, formula: Formula | None) -> Callable[[int, int, int], int]:
    item, heads, pool = given["item_size"], given.get("head_num", 1), given[name]
    if name.endswith("_layers"):
        table = pool.tolist()
        return lambda layer, token, head: table[layer] + token * item + head * (item // heads)
    base, size = pool.data_ptr(), pool.numel() * pool.element_size()
    if f"{name[:3]}_layout_dim" not in given:
        return lambda layer, token, head: base + token * item + head * (item // heads)
    dim = given[f"{name[:3]}_layout_dim"]
    at = Geometry(item, dim, given.get("page_size", 1), heads, size // dim)
    place = formula or (page_head if "head_num" in given else page_first)
    return lambda layer, token, head: base + place(at, layer, token, head) % size


def as_32_bits(number: int, signed: bool) -> int:
    """What is left of an offset in a 32-bit register."""
    low = number & 0xFFFFFFFF
    return low - (1 << 32) if signed and low >> 31 else low


def wrapped_offsets(signed: bool, word: int = 1) -> Callable[[], Fault]:
    """Move rows of two layer-first pools by offsets of 32 bits, which count words of so many bytes."""

    def fault(kernel: KernelFunction, given: Given) -> None:  # noqa: ARG001 - it does without the right one
        size = given["item_size"]
        pairs = list(zip(given["src_indices"].tolist(), given["dst_indices"].tolist(), strict=True))
        for source, destination in sides(given):
            reads, writes = given[source].data_ptr(), given[destination].data_ptr()
            for start, end in pairs:
                offsets = (as_32_bits(token * size // word, signed) * word for token in (end, start))
                ctypes.memmove(writes + next(offsets), reads + next(offsets), size)

    return lambda: fault


def remembering(is_dropped: Callable[[Given, Given], Mapping[str, Any] | None]) -> Callable[[], Fault]:
    """Make a kernel that remembers the call before: ``is_dropped(before, given)`` gives arguments to use instead.

    An empty mapping drops the call.
    """

    def make() -> Fault:
        before: Given = {}

        def fault(kernel: KernelFunction, given: Given) -> None:
            instead = is_dropped(dict(before), given) if before else None
            before.clear()
            before.update(given)
            if instead is None:
                kernel(**given)
            elif instead:
                kernel(**{**given, **instead})

        return fault

    return make
