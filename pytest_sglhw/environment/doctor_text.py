"""An environment record for a person: the platform first, one line for each device and capability."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_sglhw.environment.records import STATES, CapabilityState, Device, Environment
from pytest_sglhw.record import printable


def render(environment: Environment) -> str:
    """Return the text that ``sglhw doctor`` prints."""
    lines = [*_machine(environment), *_capabilities(environment), *_disagreements(environment)]
    return "\n".join(map(printable, lines))


def _machine(e: Environment) -> Iterator[str]:
    yield f"platform      {e.platform}: {e.reason}"
    if e.probe.status not in ("ok", "skipped"):
        yield f"probe         {e.probe.status} at: {e.probe.stage}"
    for device in e.devices:
        yield f"device {device.index:<6} {_device(device)}"
    said = ", ".join(f"{name} {text}" for name, text in e.torch.items() if name not in ("version", "path") and text)
    yield (
        f"torch         {e.torch.get('version')}{f' ({said})' if said else ''}"
        if e.torch
        else "torch         not installed"
    )
    for title, facts in (("versions", e.versions), ("packages", e.packages), ("masks", e.masks)):
        if facts:
            yield f"{title:<13} {', '.join(f'{name} {text}' for name, text in facts.items())}"


def _device(device: Device) -> str:
    memory = f"{device.memory / 2**30:.0f} GiB" if device.memory else "memory not known"
    facts = ", ".join(filter(None, (device.name, device.arch or "arch not known", memory, device.uuid)))
    return f"{device.state}: {device.reason}" if device.state != "available" else facts


def _capabilities(e: Environment) -> Iterator[str]:
    if not e.capabilities:
        return
    width = max(map(len, e.capabilities))
    said: dict[str, str] = {}
    yield "capabilities"
    for state in STATES:
        for name, found in sorted(e.capabilities.items()):
            if found.state == state:
                yield f"  {name:<{width}}  {state:<11}  {found.reason}"
                yield from _details(name, found, width, said)


def _details(name: str, found: CapabilityState, width: int, said: dict[str, str]) -> Iterator[str]:
    """Show the evidence, what several capabilities have in common only once (``said``: line -> who said it)."""
    indent = " " * (width + 17)
    lines = [line for seen in found.evidence for line in seen.splitlines()]
    yield from (f"{indent}{_short(line)}" for line in lines if line not in said)
    if repeated := sorted({said[line] for line in lines if line in said}):
        yield f"{indent}and what {', '.join(repeated)} shows"
    said.update((line, name) for line in lines if line not in said)
    by_platform = found.state == "unavailable" and not found.evidence and " is for " in found.reason
    if found.remedy and found.state != "available" and not by_platform:
        yield f"{indent}-> {found.remedy}"


def _short(line: str, limit: int = 240) -> str:
    """Cut the middle out of a long line: what failed stands first, and the last link of its causes at the end."""
    half = limit // 2
    return line if len(line) <= limit else f"{line[:half]} ... {line[-half:]}"


def _disagreements(e: Environment) -> Iterator[str]:
    if e.disagreements:
        yield "disagreements"
        yield from (f"  {sentence}" for sentence in e.disagreements)
