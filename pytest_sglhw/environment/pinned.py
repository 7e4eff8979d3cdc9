"""What a pinned worker says of its devices: its share of the run's, numbered as its own runtime does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sglhw.record import replace

if TYPE_CHECKING:
    from pytest_sglhw.environment.records import Environment

#: In the environment of a pinned worker: where its devices stand among those of the run, and how many those are.
PINNED = "SGLHW_PINNED"

#: The devices that this process, a remote worker, took, as its mask has them.
PINNED_HERE = pytest.StashKey[str]()


def is_local(spec: Any) -> bool:
    """Whether a worker of xdist with this spec starts on the machine of its controller.

    One that goes through a proxy (``popen//via=ID``) starts where the proxy is.
    """
    return bool(spec.popen) and not spec.via


def pinned_value(positions: Sequence[int], total: int) -> str:
    """The value of ``PINNED``: ``1,3/8``.

    >>> pinned_value((1, 3), 8)
    '1,3/8'
    """
    return f"{','.join(map(str, positions))}/{total}"


def share_of(environment: Environment, value: str) -> Environment:
    """The record as the worker with this share sees it.

    A worker that was pinned before it probed (a remote one) already sees its share alone; only what is withheld from
    it is then added.
    """
    held, _, total = value.partition("/")
    devices = environment.devices
    if len(devices) == int(total):
        devices = tuple(replace(devices[int(i)], index=new) for new, i in enumerate(held.split(",")))
    return replace(environment, devices=devices, withheld=int(total) - len(devices))
