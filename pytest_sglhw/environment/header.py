"""The line at the top of a run: what is known of the machine without a probe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_sglhw.record import printable

if TYPE_CHECKING:
    from pytest_sglhw.environment.detection import Detection
    from pytest_sglhw.environment.static import StaticFacts
    from pytest_sglhw.settings import Settings


def header(detection: Detection, settings: Settings) -> str:
    """Return the line; a fake is said in its first words."""
    if settings.fake:
        known = detection.environment()
        devices = f", {len(known.devices)} devices" if len(known.devices) != 1 else ", 1 device"
        return f"sglhw: FAKE {settings.fake}: {known.platform}{devices if known.devices else ''}"
    return f"sglhw: {printable(static_line(detection.static))}"


def static_line(static: StaticFacts) -> str:
    """Say build, driver, nodes and masks; the platform only where they settle it."""
    platform = ["platform cpu"] if static.settles_cpu else []
    torch = "no torch"
    if static.torch is not None:
        built = ", ".join(f"{name} {version}" for name, version in static.torch.strings.items())
        kind = "CPU build" if static.torch.cpu_only else f"built for {built}" if built else "build not known"
        torch = f"torch {static.torch.version or '(version not readable)'} ({kind})"
    drivers = [f"{name} driver {version}" for name, version in static.drivers.items()]
    nodes = [f"{len(found)} {name} node{'s' if len(found) > 1 else ''}" for name, found in static.nodes.items()]
    masks = [f"{name}={value!r}" for name, value in static.masks.items()]
    return ", ".join([*platform, torch, *drivers, *nodes, *masks])
