"""What a requirement comes to on a machine of which only a lane's promise is known: met, unmet, or open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from pytest_sglhw.gates.contradiction import is_arch_of
from pytest_sglhw.gates.values import arch, sm_number

if TYPE_CHECKING:
    from pytest_sglhw.gates.requirement import Need, Requirement
    from pytest_sglhw.lanes.config import Lane
    from pytest_sglhw.registry.registry import Registry

Answer = Literal["met", "unmet", "open"]
Word = Literal["run", "skip", "raise", "not promised"]


def settle(requirement: Requirement, lane: Lane, registry: Registry) -> Word:
    """Say what becomes of a test on every machine that keeps the promise of ``lane``.

    An unmet need that skips decides before one that must raise. What the promise leaves open decides where the answer
    would change what becomes of the test.
    """
    answers = {"skip": set[Answer](), "raise": set[Answer]()}
    for need in requirement:
        answers[need.otherwise].add(answer(need, lane, registry))
    if "unmet" in answers["skip"]:
        return "skip"
    if "open" in answers["skip"]:
        return "not promised"
    if "unmet" in answers["raise"]:
        return "raise"
    return "not promised" if "open" in answers["raise"] else "run"


def answer(need: Need, lane: Lane, registry: Registry) -> Answer:
    """Say whether ``need`` holds on every machine of ``lane`` (met), on none (unmet), or on some (open)."""
    return _all([_platform(need, lane), *_devices(need, lane, registry), *_capabilities(need, lane, registry)])


def _all(answers: Iterable[Answer]) -> Answer:
    found = set(answers)
    return "unmet" if "unmet" in found else "open" if "open" in found else "met"


def _platform(need: Need, lane: Lane) -> Answer:
    if need.platforms is None:
        return "unmet" if lane.platform == "cpu" else "met"
    return "met" if need.platforms == () or lane.platform in need.platforms else "unmet"


def _devices(need: Need, lane: Lane, registry: Registry) -> Iterator[Answer]:
    if not need.asks_devices:
        return
    if lane.platform == "cpu":
        yield "unmet"
        return
    yield "met" if lane.min_devices >= (need.min_devices or 1) else "open"
    if need.archs:
        wanted = [name for name in need.archs if is_arch_of(lane.platform, name, registry)]
        yield _of_archs(lane, lambda name: name in wanted) if wanted else "unmet"
    if need.min_arch:
        least = sm_number(need.min_arch) or 0
        yield _of_archs(lane, lambda name: (sm_number(name) or 0) >= least) if lane.platform == "cuda" else "unmet"
    if need.min_memory or need.min_free_memory:
        yield "open"  # a lane promises no amount


def _of_archs(lane: Lane, fits: Callable[[str], bool]) -> Answer:
    """Say whether the promised archs fit: all, none, or some of them (or nobody knows which they are)."""
    found = {fits(arch(name)) for name in lane.archs}
    return "open" if len(found) != 1 else "met" if found.pop() else "unmet"


def _capabilities(need: Need, lane: Lane, registry: Registry) -> Iterator[Answer]:
    for name in need.capabilities:
        row = registry.capabilities[name]
        accepted = row.archs.get(lane.platform)
        if name in lane.capabilities:
            yield "met"
        elif lane.platform not in row.platforms or (accepted and _of_archs(lane, accepted.__contains__) == "unmet"):
            yield "unmet"
        else:
            yield "open"
