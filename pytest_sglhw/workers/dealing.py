"""Give the workers of a run their devices: in the specs of local ones, and on their own machines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sglhw.environment.detection import Detection
from pytest_sglhw.environment.pinned import PINNED, PINNED_HERE, is_local, pinned_value
from pytest_sglhw.record import replace
from pytest_sglhw.settings import PIN_SELF, read_settings
from pytest_sglhw.workers.pinning import DevicesError, Pool, Share, chosen, environment_of, pool_of, shares

if TYPE_CHECKING:
    from pytest_sglhw.settings import Settings
    from pytest_sglhw.workers.pinning import Layers

_TWICE = (
    "the spec of worker {worker} sets {variable}={value!r} (--tx), and --sglhw-devices {request} gives that worker its "
    "devices as well. Valid: one of the two. Set {variable} for the whole run to name the devices that may be given "
    "away, or leave --sglhw-devices off to keep the specs as they are."
)


def pin(specs: Sequence[Any], detection: Detection, settings: Settings) -> None:
    """Put the share of each worker into its spec; into that of a remote one what it needs to take its share itself.

    :raises pytest.UsageError: devices that do not fit, or a spec that says itself what its local worker sees. (A mask
        in the spec of a remote worker is the mask of the machine there: it takes its share inside of it.)
    """
    local = [spec for spec in specs if is_local(spec)]
    if local:
        layers, hands = deal(detection, settings, len(local))
        for spec, variables in zip(local, hands, strict=True):
            if variables:
                _refuse_own_mask(spec, layers, settings.devices)
            spec.env = {**spec.env, **variables}
    for slot, spec in _remote_slots(specs):
        request = f"{settings.devices};{settings.devices_per_worker};{slot}"
        spec.env = {**spec.env, PIN_SELF: request}


def _refuse_own_mask(spec: Any, layers: Layers, request: str) -> None:
    for variable in (variable for layer in layers for variable in layer):
        if variable in spec.env:
            value = spec.env[variable]
            text = _TWICE.format(worker=spec.id, variable=variable, value=value, request=request)
            raise pytest.UsageError(text)


def _remote_slots(specs: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Remote specs, each with its number among those of its host."""
    seen: dict[str, int] = {}
    for spec in specs:
        if not is_local(spec):
            host = str(spec.ssh or spec.vagrant_ssh or spec.socket or spec.via)
            slot = seen[host] = seen.get(host, -1) + 1
            yield slot, spec


def deal(detection: Detection, settings: Settings, workers: int) -> tuple[Layers, list[dict[str, str]]]:
    """The platform's masks, and the variables that pin each of ``workers`` workers.

    None of either on a machine without an accelerator.
    """
    environment = detection.environment(())
    platform = detection.registry.platforms.get(environment.platform)
    if platform is None or not platform.device_control_env_vars:
        return (), [{}] * workers
    layers = platform.device_control_env_vars
    pool = pool_of(layers, os.environ, len(environment.devices))
    try:
        positions = chosen(pool, settings.devices, [device.uuid for device in environment.devices])
        hands = shares(pool, positions, workers, settings.devices_per_worker)
    except DevicesError as error:
        raise pytest.UsageError(str(error)) from error
    return layers, [_variables(pool, hand, len(environment.devices)) for hand in hands]


def _variables(pool: Pool, share: Share, total: int) -> dict[str, str]:
    return {**environment_of(pool, share), PINNED: pinned_value(share.positions, total)}


def pin_this_process(config: pytest.Config) -> None:
    """Pin a remote worker, which learns its request from the environment and its devices from its own machine."""
    request, per_worker, slot = os.environ.pop(PIN_SELF).split(";")
    # This early, what was on the command line stands in the namespace of known arguments only.
    fake = config.known_args_namespace.sglhw_fake
    settings = replace(read_settings(config), fake=fake, devices=request, devices_per_worker=int(per_worker))
    _, hands = deal(Detection(config, settings), settings, int(slot) + 1)
    variables = hands[int(slot)]
    os.environ.update(variables)
    if variables:
        config.stash[PINNED_HERE] = next(iter(variables.values()))
