"""Which devices each worker gets: arithmetic on masks, with no device and no pytest in it.

A worker is pinned by setting the platform's mask in its environment before anything in it is imported. What may be
given away is what the caller's own mask shows, in the caller's own words: numbers, UUIDs and MIG names stay as they
are.

Note [Layers of masks]: a platform's masks stand in layers and each layer renumbers for the next (ROCR's hides devices
from HIP, and HIP's numbers count in what is left). Only the innermost layer is ever set, so that the outer ones keep
their meaning. Within a layer the first variable that is set counts (``HIP_VISIBLE_DEVICES`` before
``CUDA_VISIBLE_DEVICES``, which HIP obeys too); a second one that is set gets the same value, lest a program that reads
only that one sees another device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytest_sglhw.environment.masks import tokens_of

Layers = Sequence[Sequence[str]]


class Pool(NamedTuple):
    """The devices that may be given to workers."""

    names: tuple[str, ...]
    """As the innermost mask names them, in the caller's order."""
    variables: tuple[str, ...]
    """The variables to set in a worker."""
    mask: str | None
    """The variable whose value ``names`` was read from; ``None`` where no mask is set."""


class Share(NamedTuple):
    """What one worker gets."""

    positions: tuple[int, ...]
    """Where its devices stand in the pool: their indices before pinning."""
    names: tuple[str, ...]


class DevicesError(ValueError):
    """The devices asked for do not fit the devices there are."""


def pool_of(layers: Layers, environ: Mapping[str, str], count: int) -> Pool:
    """Read the devices that the caller's masks show; ``count`` is how many the runtime enumerates under them.

    A mask may name more devices than the runtime accepts (CUDA stops at the first name that it does not know), so the
    count caps the list. See Note [Layers of masks].
    """
    innermost = layers[-1] if layers else ()
    mask = next((variable for variable in innermost if variable in environ), None)
    names = tokens_of(mask, environ[mask]) if mask else _renumbered(layers[:-1], environ, count)
    variables = [v for v in innermost if v == innermost[0] or v in environ]
    return Pool(tuple(names[:count]), tuple(variables), mask)


def _renumbered(outer: Layers, environ: Mapping[str, str], count: int) -> list[str]:
    shown = [len(tokens_of(v, environ[v])) for layer in outer for v in layer if v in environ]
    return [str(index) for index in range(min([count, *shown]))]


def chosen(pool: Pool, request: str, uuids: Sequence[str | None] = ()) -> tuple[int, ...]:
    """Positions in the pool that ``request`` names: ``auto`` for all of them, or ids separated by commas.

    An id is a name as the caller's mask has it or, where no mask is set, an index or (the start of) a UUID.

    :raises DevicesError: an id that is not in the pool, one that is named twice, or a pool without devices.
    """
    if not pool.names:
        why = f", since {pool.mask} hides all" if pool.mask else ""
        raise DevicesError(f"there is no device to give to workers{why} (--sglhw-devices {request}). Valid here: off.")
    if request == "auto":
        return tuple(range(len(pool.names)))
    positions: list[int] = []
    for wanted in _ids(request):
        found = _positions(pool, wanted, uuids)
        if len(found) == 1 and found[0] not in positions:
            positions += found
            continue
        problem = "is not a device of this run" if not found else "is named twice"
        if len(found) > 1:
            problem = f"is the start of {len(found)} UUIDs"
        raise DevicesError(f"{wanted!r} {problem} (--sglhw-devices). {_valid(pool)}")
    return tuple(positions)


def _ids(request: str) -> list[str]:
    return [wanted.strip() for wanted in request.split(",")]


def _positions(pool: Pool, wanted: str, uuids: Sequence[str | None]) -> list[int]:
    if wanted in pool.names:
        return [pool.names.index(wanted)]
    if pool.mask or not wanted or wanted.isdecimal():  # a number is an index, whatever a UUID begins with
        return []
    return [i for i, uuid in enumerate(uuids) if uuid and uuid.startswith(wanted)]


def _valid(pool: Pool) -> str:
    origin = f" (from {pool.mask})" if pool.mask else ""
    return f"Valid: off, auto, or some of {', '.join(pool.names)}{origin}, separated by commas."


def shares(pool: Pool, positions: Sequence[int], workers: int, per_worker: int) -> list[Share]:
    """Deal ``positions`` to ``workers``, ``per_worker`` each, round-robin where there are more takers than devices.

    Dealing goes on where the worker before left off, so no device has two takers more than another.

    :raises DevicesError: fewer devices than one worker is to get.
    """
    if per_worker > len(positions):
        wanted, have = (f"{n} device{'' if n == 1 else 's'}" for n in (per_worker, len(positions)))
        raise DevicesError(
            f"each worker is to get {wanted} (--sglhw-devices-per-worker), but there are only {have} to give. "
            f"{_valid(pool)}"
        )
    hands = [[positions[(w * per_worker + i) % len(positions)] for i in range(per_worker)] for w in range(workers)]
    return [Share(tuple(hand), tuple(pool.names[i] for i in hand)) for hand in hands]


def environment_of(pool: Pool, share: Share) -> dict[str, str]:
    """The variables to set in the worker that gets ``share``."""
    return dict.fromkeys(pool.variables, ",".join(share.names))
