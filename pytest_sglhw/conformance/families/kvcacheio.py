"""The 13 transfer kernels of ``sgl_kernel.kvcacheio``: facts, documented errors, round trips."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_sglhw.conformance.checks import LAWS
from pytest_sglhw.conformance.failures import BrokenLawError
from pytest_sglhw.conformance.family import Bulk, ErrorInput, Kernel, Law, Workload
from pytest_sglhw.conformance.transfer_bulk import bulk_case, many_tokens
from pytest_sglhw.conformance.transfer_cases import (
    PARTS,
    TransferCase,
    TransferFacts,
    draw_case,
    factors,
    feasible,
    smaller,
)
from pytest_sglhw.conformance.transfer_trials import TransferTrial
from pytest_sglhw.conformance.virtual import ADDRESSES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from random import Random

    from pytest_sglhw.conformance.bench import Bench
    from pytest_sglhw.conformance.cells import Cell
    from pytest_sglhw.conformance.devices import Place
    from pytest_sglhw.conformance.family import Draw, Trial


class TransferWorkload(Workload):
    """How one transfer kernel is exercised."""

    def __init__(self, facts: TransferFacts) -> None:
        self.facts = facts

    def factors(self, cell: Cell) -> dict[str, Sequence[Any]]:
        """Layers, heads, row bytes, direction, index pattern."""
        return factors(self.facts)

    def feasible(self, cell: Cell, chosen: Mapping[str, Any]) -> bool:
        """Rows divide into heads, and pools stay small."""
        return feasible(self.facts, cell, chosen)

    def draw(self, cell: Cell, draw: Draw) -> TransferCase:
        """Draw a case."""
        return draw_case(self, self.facts, cell, draw)

    def large(self, cell: Cell, rng: Random) -> TransferCase:
        """A case of over 1000 tokens and 64 pages."""
        return many_tokens(self.facts, cell, rng)

    def build(self, cell: Cell, case: TransferCase, place: Place) -> TransferTrial:
        """Build pools and arguments."""
        return TransferTrial(self.facts, cell, case, place)

    def smaller(self, cell: Cell, case: TransferCase) -> Iterator[TransferCase]:
        """Fewer tokens, then each number by itself."""
        return smaller(self.facts, cell, case)

    def bulk(self, cell: Cell, nbytes: int) -> Iterator[Bulk]:
        """Whole pages in another order on each side, rows of 1 KiB, in every direction and at two quotas."""
        for direction in self.facts.directions:
            for quota in (None,) if self.facts.direct else (2, 32):
                case = bulk_case(self.facts, cell, direction, quota or 1, nbytes)
                words = direction.replace("_", " ") + (f", quota {quota}" if quota else "")
                source, _, target = direction.partition("_to_")
                moved = len(case.parts) * case.span * len(case.source_indices) * case.heads * case.head_bytes
                yield Bulk(case, words, source, target, moved)

    def errors(self, trial: Trial) -> Iterator[ErrorInput]:
        """The documented refusals of this kernel."""
        assert isinstance(trial, TransferTrial)
        return direct_errors(trial) if self.facts.direct else kernel_errors(trial)


def _changed(position: int, change: Callable[[Any], Any]) -> Callable[[list[Any]], None]:
    def spoil(arguments: list[Any]) -> None:
        arguments[position] = change(arguments[position])

    return spoil


def _set(position: int, value: Any) -> Callable[[list[Any]], None]:
    return _changed(position, lambda _: value)


def kernel_errors(trial: TransferTrial) -> Iterator[ErrorInput]:
    """What the kernels over addresses refuse; they all do so with ``RuntimeError``."""
    facts, at = trial.facts, 2 * len(trial.case.parts)
    row = at + (3 if not facts.all_layers and facts.source != "layer_first" else 2)
    yield from _length_errors(at)
    for side, position in (("source", at), ("destination", at + 1)):
        words = f"{side.capitalize()} indices must be of type long"
        yield ErrorInput(f"{side} indices of type int32", _changed(position, torch.Tensor.int), RuntimeError, words)
        if not trial.place.is_cpu:
            words = f"{side.capitalize()} indices must be a CUDA tensor"
            yield ErrorInput(f"{side} indices on the CPU", _changed(position, torch.Tensor.cpu), RuntimeError, words)
    words = "Item byte size must be divisible by 8"
    yield ErrorInput("an item size of 4 bytes more", _changed(row, lambda size: size + 4), RuntimeError, words)
    if facts.all_layers:
        yield from _table_errors(trial, row + (1 if facts.host_layout == "layer_first" else 2))
    if not trial.place.is_cpu and any(argument.is_cpu for argument in trial.arguments()[:at]):
        words, needs = "invalid argument", "get_device_accessible_ptr"  # releases without it use the address unseen
        yield ErrorInput("a host pool that is not pinned", _unpin, RuntimeError, words, needs)


def _length_errors(position: int) -> Iterator[ErrorInput]:
    """One index too many on either side; the index tensors stand at ``position`` and behind it."""
    words = "Source and destination indices must have the same length"
    for at, side in enumerate(("source", "destination"), position):
        yield ErrorInput(f"one {side} index too many", _changed(at, _one_more), RuntimeError, words)


def _unpin(arguments: list[Any]) -> None:
    at = next(at for at, argument in enumerate(arguments) if argument.is_cpu)
    arguments[at] = arguments[at].clone()


def _table_errors(trial: TransferTrial, num_layers: int) -> Iterator[ErrorInput]:
    kind = "source k tensor" if len(trial.case.parts) == 2 else "source tensor"
    words = f"Number of layers in {kind} does not match num_layers"
    yield ErrorInput("one layer more than the table has", _changed(num_layers, lambda n: n + 1), RuntimeError, words)
    yield ErrorInput("one layer less than the table has", _changed(num_layers, lambda n: n - 1), RuntimeError, words)
    words = "expected scalar type UInt64"
    layouts = (trial.facts.source, trial.facts.destination)
    for at, name in enumerate(trial.names()[: 2 * len(trial.case.parts)]):
        if layouts[at % 2] == "layer_first":
            wrong = _changed(at, lambda table: table.view(torch.int64))
            yield ErrorInput(f"{name}, a pointer table, of type int64", wrong, RuntimeError, words)


def direct_errors(trial: TransferTrial) -> Iterator[ErrorInput]:
    """What the kernels over lists of tensors refuse; they all do so with ``RuntimeError``."""
    if trial.facts.host_layout == "layer_first":
        words = "Source and destination layers must have the same number of layers"
        for at, side in enumerate(("source", "destination")):
            more = _changed(at, lambda layers: [*layers, layers[0]])  # one less could leave no tensor to dispatch on
            yield ErrorInput(f"one {side} layer too many", more, RuntimeError, words)
    yield from _length_errors(2)
    for size in (0, -1):
        yield ErrorInput(f"a page size of {size}", _set(-1, size), RuntimeError, "Page size must be positive")
    count = len(trial.case.source_indices)
    if count:
        words = "Source indices size must be divisible by page size"
        yield ErrorInput("a page size above the number of indices", _set(-1, count + 1), RuntimeError, words)
    if count > 2:  # no number divides the one above it, but 1
        words = "Source indices size must be divisible by page size"
        yield ErrorInput("a page size of one index less", _set(-1, count - 1), RuntimeError, words)
    for side, position in (("source", 2), ("destination", 3)):
        wrong = _changed(position, torch.Tensor.int)
        yield ErrorInput(
            f"{side} indices of type int32", wrong, RuntimeError, "expected scalar type Long but found Int"
        )


def _one_more(indices: torch.Tensor) -> torch.Tensor:
    return torch.cat([indices, indices.new_zeros(1)])


def check_round_trip(bench: Bench, trial: Trial) -> None:
    """Hold: what the partner kernel moves back to where it came from is what was there."""
    assert isinstance(trial, TransferTrial)
    facts, case = trial.facts, trial.case
    if not bench.has(facts.partner):
        bench.reject(f"round trip: the provider has no {facts.partner}")
    if case.pattern in {"duplicates", "same_page", "overwrites", "first_only"}:
        bench.reject(f"round trip: the index pattern {case.pattern} has no way back")
    back = TransferTrial(FACTS[facts.partner], trial.cell, _reversed(case), trial.place, sources=trial.destinations)
    for arguments in _calls_back(back):
        bench.place.call(bench.function(facts.partner), *arguments)
    _compare_rows(trial, back)


def _calls_back(back: TransferTrial) -> Iterator[list[Any]]:
    """All layers in one call, or one call for each layer that went there."""
    case = back.case
    if back.facts.all_layers:
        yield back.arguments(layer_id=0, span=case.layers)
    else:
        yield from (back.arguments(layer_id=case.layer_id + at, span=1) for at in range(case.span))


def _reversed(case: TransferCase) -> TransferCase:
    start, _, end = case.direction.partition("_to_")
    return replace(
        case,
        direction=f"{end}_to_{start}",
        source_tokens=case.destination_tokens,
        destination_tokens=case.source_tokens,
        source_indices=case.destination_indices,
        destination_indices=case.source_indices,
    )


def _compare_rows(trial: TransferTrial, back: TransferTrial) -> None:
    layers, tokens, _ = trial.moves()
    for part, start in trial.sources.items():
        end = back.destinations[part]
        was = start.view(start.buffer.before).read(layers, tokens)
        now = end.view(end.buffer.image()).read(layers, tokens)
        if not torch.equal(was, now):
            layer, token, head, byte = (int(number) for number in (was != now).nonzero()[0])
            place = f"layer {layers[layer]}, token {int(tokens[token])}, head {head}, byte {byte}"
            lines = (f"{part}: the way back by {trial.facts.partner} gives other bytes", f"first wrong byte at {place}")
            raise BrokenLawError("round_trip", *lines)


ROUND_TRIP = Law("round_trip", "there and back by the partner kernel is the identity", check_round_trip)

_LF, _PF, _PH, _PFD = "layer_first", "page_first", "page_head", "page_first_direct"
_KV, _ONE = PARTS[:1], PARTS[1:]

FACTS: Mapping[str, TransferFacts] = {
    "transfer_kv_per_layer": TransferFacts(_LF, _LF, False, _KV, partner="transfer_kv_per_layer"),
    "transfer_kv_per_layer_pf_lf": TransferFacts(_PF, _LF, False, _KV, partner="transfer_kv_all_layer_lf_pf"),
    "transfer_kv_per_layer_ph_lf": TransferFacts(_PH, _LF, False, _KV, partner="transfer_kv_all_layer_lf_ph"),
    "transfer_kv_all_layer": TransferFacts(_LF, _LF, True, _KV, partner="transfer_kv_all_layer"),
    "transfer_kv_all_layer_lf_pf": TransferFacts(_LF, _PF, True, _KV, partner="transfer_kv_per_layer_pf_lf"),
    "transfer_kv_all_layer_lf_ph": TransferFacts(_LF, _PH, True, _KV, partner="transfer_kv_per_layer_ph_lf"),
    "transfer_kv_per_layer_mla": TransferFacts(_LF, _LF, False, _ONE, partner="transfer_kv_per_layer_mla"),
    "transfer_kv_per_layer_mla_pf_lf": TransferFacts(_PF, _LF, False, _ONE, partner="transfer_kv_all_layer_mla_lf_pf"),
    "transfer_kv_all_layer_mla": TransferFacts(_LF, _LF, True, _ONE, partner="transfer_kv_all_layer_mla"),
    "transfer_kv_all_layer_mla_lf_pf": TransferFacts(_LF, _PF, True, _ONE, partner="transfer_kv_per_layer_mla_pf_lf"),
    "transfer_kv_direct": TransferFacts(_LF, _LF, True, PARTS, direct=True, partner="transfer_kv_direct"),
    "transfer_kv_per_layer_direct_pf_lf": TransferFacts(
        _PFD, _LF, False, PARTS, direct=True, partner="transfer_kv_all_layer_direct_lf_pf"
    ),
    "transfer_kv_all_layer_direct_lf_pf": TransferFacts(
        _LF, _PFD, True, PARTS, direct=True, partner="transfer_kv_per_layer_direct_pf_lf"
    ),
}


def _laws(facts: TransferFacts) -> tuple[Law, ...]:
    names = ("repeat", "keywords", *(() if facts.direct else ("quota",)), "split", "errors")
    return (*(LAWS[name] for name in names), ROUND_TRIP, ADDRESSES)


KERNELS = tuple(
    Kernel(name, "kvcacheio", (facts.host_layout,), TransferWorkload(facts), _laws(facts))
    for name, facts in FACTS.items()
)
