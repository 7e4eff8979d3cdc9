"""How much memory is free on a device now: asked before single tests, of the source that costs and disturbs least.

1. torch, where the tests have made a device context in this process: what the driver says is free, and what torch's own
   allocator keeps without using it, which a test of this process gets as well.
2. The driver's tools: ``nvidia-smi`` and amdgpu's files below ``/sys``. They need no context. A device that is only a
   part of a card (MIG, partitions) is not looked up there.
3. The probe's child process, whose import of torch takes seconds and whose own context counts as used.

This process imports nothing for it and makes no context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_sglhw.environment.loaded_torch import device_contexts
from pytest_sglhw.record import replace

if TYPE_CHECKING:
    from pytest_sglhw.asking.asker import Asker
    from pytest_sglhw.environment.records import Device
    from pytest_sglhw.registry.platforms import Platform

_NVIDIA_SMI = ("nvidia-smi", "--query-gpu=uuid,memory.total,memory.free", "--format=csv,noheader,nounits")
_MIB = 2**20

#: What a runtime shows of a card's memory at least; a device with less is a part of the card.
_WHOLE = 0.8


class Card(NamedTuple):
    """One card as the driver's tools show it; sizes in bytes."""

    identity: str
    total: int
    free: int


def with_free_memory(
    devices: Sequence[Device],
    row: Platform,
    asker: Callable[[], Asker],
    vendors: Iterable[str] = (),
    *,
    timeout: float,
) -> tuple[Device, ...]:
    """Return ``devices`` with ``free_memory`` as it is now; where nobody can tell, ``reason`` says why.

    ``asker`` makes the child process, which first imports ``vendors``; ``timeout`` is in seconds.
    """
    found = _in_this_process(devices, row.api)
    left = [device for device in devices if device.index not in found]
    if left and row.name in _CARDS:
        found.update(_on_cards(left, _CARDS[row.name](timeout)))
        left = [device for device in left if device.index not in found]
    reasons = _in_child(left, row.api, asker, vendors, found) if left else {}
    return tuple(
        replace(device, free_memory=found.get(device.index), reason=reasons.get(device.index, "")) for device in devices
    )


def _in_this_process(devices: Sequence[Device], api: str) -> dict[int, int]:
    namespace = dict(device_contexts()).get(api)
    if not hasattr(namespace, "mem_get_info"):
        return {}
    try:
        return {device.index: _free_for(namespace, device.index) for device in devices}
    except Exception:  # noqa: BLE001 (a context that was lost says nothing about the device: others are asked)
        return {}


def _free_for(namespace: Any, index: int) -> int:
    free, _ = namespace.mem_get_info(index)
    return int(free) + _kept_unused(namespace, index)


def _kept_unused(namespace: Any, index: int) -> int:
    """What torch's allocator holds in whole blocks that nothing uses: it gives them back before it runs out."""
    stats = namespace.memory_stats(index) if hasattr(namespace, "memory_stats") else {}
    reserved, active, split = (
        int(stats.get(f"{name}_bytes.all.current", 0)) for name in ("reserved", "active", "inactive_split")
    )
    return max(reserved - active - split, 0)


def _nvidia_cards(timeout: float) -> list[Card]:
    import subprocess

    try:
        done = subprocess.run(
            _NVIDIA_SMI, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return read_nvidia_smi(done.stdout)


def read_nvidia_smi(text: str) -> list[Card]:
    r"""Read what ``nvidia-smi`` says of uuid, total and free memory; a line that it has no figures for is left out.

    >>> read_nvidia_smi("GPU-ab12-cd, 143771, 143000\nGPU-ef34-ab, [N/A], [N/A]\n")
    [Card(identity='ab12-cd', total=150754820096, free=149946368000)]
    """
    lines = [[word.strip() for word in line.split(",")] for line in text.splitlines()]
    return [
        Card(_identity(words[0]), int(words[1]) * _MIB, int(words[2]) * _MIB)
        for words in lines
        if len(words) == 3 and words[1].isdigit() and words[2].isdigit()
    ]


def amd_cards(root: str = "/") -> list[Card]:
    """Read what amdgpu says of its cards below ``root``."""
    cards = []
    for folder in sorted(Path(root, "sys/class/drm").glob("card*/device")):
        total, used = (_number(folder / f"mem_info_vram_{what}") for what in ("total", "used"))
        if total is not None and used is not None:
            cards.append(Card(_identity(_text(folder / "unique_id")), total, max(total - used, 0)))
    return cards


def _number(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text.isdigit() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _identity(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("0x")


def _identities(uuid: str) -> set[str]:
    """A device's uuid as torch shows it, and as HIP means it: sixteen bytes that are the letters of its unique id."""
    plain = _identity(uuid)
    try:
        letters = bytes.fromhex(plain.replace("-", "")).decode("ascii").strip("\0")
    except ValueError:
        return {plain}
    return {plain, letters}


def _on_cards(devices: Sequence[Device], cards: Sequence[Card]) -> dict[int, int]:
    found = {}
    for device in devices:
        names = _identities(device.uuid or "")
        card = next((card for card in cards if card.identity and card.identity in names), None)
        if card is None and len(cards) == 1 and device.index == 0:
            card = cards[0]
        if card is not None and device.memory is not None and device.memory >= _WHOLE * card.total:
            found[device.index] = card.free
    return found


_CARDS: dict[str, Callable[[float], list[Card]]] = {"cuda": _nvidia_cards, "rocm": lambda _: amd_cards()}


def _in_child(
    devices: Sequence[Device], api: str, asker: Callable[[], Asker], vendors: Iterable[str], found: dict[int, int]
) -> dict[int, str]:
    """Ask a child process and put the answers into ``found``; return why, for each device that it can't tell of."""
    reasons: dict[int, str] = {}
    with asker() as child:
        child.ask("import of torch", "torch", imports="torch", again=True)
        for module in vendors:
            child.ask(f"import of {module}", "import", imports=module, again=True, module=module)
        for device in devices:
            answer = child.ask(f"free memory of {api}:{device.index}", "free_memory", api=api, index=device.index)
            if answer.ok and answer.value is not None:
                found[device.index] = answer.value
            else:
                said = answer.told or f"torch.{api} has no mem_get_info"
                reasons[device.index] = f"{answer.stage} {answer.fault}: {said}" if answer.fault else said
    return reasons
