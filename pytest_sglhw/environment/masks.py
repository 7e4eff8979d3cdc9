"""Variables that hide devices from a process: what they say, layer by layer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_sglhw.record import Record

if TYPE_CHECKING:
    from pytest_sglhw.registry.platforms import Platform


class Mask(Record):
    """One mask that is set. ``tokens``: the devices it lets through, as written, up to the first that means nothing."""

    variable: str
    value: str
    tokens: tuple[str, ...]

    @property
    def by_identity(self) -> bool:
        """Whether devices are named by what they are (UUID, MIG instance, module) and not by their place in a row."""
        return bool(self.tokens) and (self.variable in _MODULES or not self.tokens[0][0].isdigit())

    def hides_all(self, count: int) -> bool:
        """Whether no device is left of ``count`` (0: nobody knows how many there are)."""
        if not self.tokens or self.by_identity or not count:
            return not self.tokens
        number = self.tokens[0].partition(".")[0].lstrip("0") or "0"
        # No device: the runtimes read no further. Of more digits than a device ever had Python makes no number.
        return len(number) > _MOST_DIGITS or int(number) >= count


def masks_of(platform: Platform, environ: Mapping[str, str]) -> tuple[Mask, ...]:
    """Return the masks that count for ``platform``, outermost first: each renumbers the devices for the next."""
    layers = (next((n for n in layer if n in environ), None) for layer in platform.device_control_env_vars)
    return tuple(Mask(name, environ[name], tokens_of(name, environ[name])) for name in layers if name)


def hiding_mask(platform: Platform, environ: Mapping[str, str], nodes: Sequence[str] = ()) -> Mask | None:
    """Return the first mask that leaves no device to ``platform``, if one does.

    ``nodes`` are the device nodes that the driver offers: where there is one for each device, a number beyond them
    names none.
    """
    numbered = all(re.fullmatch(r"/dev/.*\d", node) for node in nodes)
    count = len(nodes) if numbered else 0
    for mask in masks_of(platform, environ):
        if mask.hides_all(count):
            return mask
        count = len(mask.tokens)  # the next one counts in what this one leaves, at most as many as it names
    return None


_MOST_DIGITS = 9

# Patterns are compiled when a mask is set: most runs read this module for the header, and have none.
#: 0, and for Level Zero tiles 0.1. The runtimes read a number as far as it goes: 1st is 1.
_NUMBER = r"\+?([0-9]+(?:\.[0-9]+)?)"
_IDENTITY = r"((?i:GPU|MIG))-?[0-9a-zA-Z/._-]+"

#: Gaudi's numbers are those of modules on the board: a container that has two of them may have 4 and 5.
_MODULES = frozenset({"HABANA_VISIBLE_MODULES"})

#: ROCr takes numbers and UUIDs in one list.
_MIXED = frozenset({"ROCR_VISIBLE_DEVICES"})

#: To CUDA and HIP a device that is named twice is an error in the list, and they show none at all.
_NO_REPEATS = frozenset({"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"})


def tokens_of(variable: str, value: str) -> tuple[str, ...]:
    """Cut the value where the runtimes do: they stop at the first entry that is no device (``-1``, a word, nothing).

    The first entry says whether devices are named by number, UUID or MIG instance; one of another kind ends the list,
    except to ROCr.
    """
    tokens: list[str] = []
    first = _kind(value.partition(",")[0].strip())
    for word in value.split(","):
        token = word.strip()
        kind = _kind(token)
        if not kind or (kind != first and variable not in _MIXED):
            break
        number = re.match(_NUMBER, token)
        tokens.append(number[1] if number else token)
    repeated = variable in _NO_REPEATS and len(set(tokens)) < len(tokens)
    return () if repeated else tuple(dict.fromkeys(tokens))


def _kind(token: str) -> str:
    if re.match(_NUMBER, token):
        return "number"
    identity = re.fullmatch(_IDENTITY, token)
    return identity[1].upper() if identity else ""
