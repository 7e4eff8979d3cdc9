"""The names of our marks, from plain data: an idle run registers them and imports nothing else of this package."""

from __future__ import annotations

from pytest_sglhw.registry.builtin import BUILTIN_CAPABILITIES

PLATFORMS = ("cuda", "rocm", "xpu", "npu", "musa", "mps", "hpu", "cpu")

#: What each platform mark accepts: platform names, or ``None`` for every platform but ``cpu``.
PLATFORM_MARKS: dict[str, tuple[str, ...] | None] = {
    **{f"{name}_only": (name,) for name in PLATFORMS},
    "gpu_only": None,
}

GENERAL = "sglhw"
KNOWN_GAP = "known_gap"
REQUIRES = "requires_"

_COMMON = "otherwise='skip', raises=None, match=None, reason=None"


def registered_lines() -> dict[str, str]:
    """Give the line for ini ``markers`` of every built-in mark, by name."""
    lines = {name: f"{name}({_COMMON}): needs {_accepted(name)} (pytest-sglhw)" for name in PLATFORM_MARKS}
    for row in BUILTIN_CAPABILITIES:
        lines.update([capability_line(row["name"], row["summary"])])
    lines[GENERAL] = (
        f"{GENERAL}(*capabilities, platforms=(), archs=(), min_arch=None, min_devices=None, min_memory=None, "
        f"{_COMMON}): needs all of it (pytest-sglhw)"
    )
    lines[KNOWN_GAP] = (
        f"{KNOWN_GAP}(issue, until=None, raises=None, reason=None): runs and must fail until the gap is closed; "
        "until is a date or an SGLang version (pytest-sglhw)"
    )
    return lines


def capability_line(name: str, summary: str) -> tuple[str, str]:
    """Give name and ``markers`` line of the mark that requires a capability."""
    mark = REQUIRES + name
    return mark, f"{mark}(*kernels, {_COMMON}): needs {summary} (pytest-sglhw)"


def _accepted(mark: str) -> str:
    accepted = PLATFORM_MARKS[mark]
    return "any accelerator" if accepted is None else f"platform {accepted[0]}"
