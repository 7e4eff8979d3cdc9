"""Variables that hide devices from a process: what they say, layer by layer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pytest_sglhw.registry.platforms import Platform


class Mask(NamedTuple):
    """One mask that is set. ``tokens``: the devices it lets through, as written, up to the first that means nothing."""

    variable: str
    value: str
    tokens: tuple[str, ...]

    @property
    def hides_all(self) -> bool:
        """Whether no device is left."""
        return not self.tokens

    @property
    def by_identity(self) -> bool:
        """Whether devices are named by UUID or MIG instance instead of number."""
        return any(not token.isdigit() for token in self.tokens)


def read_masks(platforms: Iterable[Platform], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the masks of any platform that are set, by variable."""
    names = dict.fromkeys(name for p in platforms for layer in p.device_control_env_vars for name in layer)
    return {name: environ[name] for name in names if name in environ}


def masks_of(platform: Platform, environ: Mapping[str, str]) -> tuple[Mask, ...]:
    """Return the masks that count for ``platform``, outermost first: each renumbers the devices for the next."""
    layers = (next((n for n in layer if n in environ), None) for layer in platform.device_control_env_vars)
    return tuple(Mask(name, environ[name], _tokens(environ[name])) for name in layers if name)


def hiding_mask(platform: Platform, environ: Mapping[str, str]) -> Mask | None:
    """Return the first mask that leaves no device to ``platform``, if one does."""
    return next((mask for mask in masks_of(platform, environ) if mask.hides_all), None)


#: 0, GPU-1f2e..., MIG-..., and for Level Zero tiles 0.1
_TOKEN = re.compile(r"\d+(?:\.\d+)?|(?:GPU|MIG|gpu|mig)-?[0-9A-Za-z/._-]+")


def _tokens(value: str) -> tuple[str, ...]:
    """Cut the value where the runtimes do: they stop at the first entry that is no device (``-1``, a word, nothing)."""
    tokens: list[str] = []
    for word in value.split(","):
        token = word.strip()
        if not _TOKEN.fullmatch(token):
            break
        tokens.append(token)
    return tuple(tokens)
