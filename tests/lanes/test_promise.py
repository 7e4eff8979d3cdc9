"""A requirement against a lane's promise: run, skip, raise, or what the promise does not settle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_sglhw.environment.fakes import fake_environment
from pytest_sglhw.gates.contradiction import contradiction
from pytest_sglhw.gates.marks import MarkReader
from pytest_sglhw.gates.verdict import decide
from pytest_sglhw.lanes.config import Lane
from pytest_sglhw.lanes.plan import Columns, plan_columns
from pytest_sglhw.lanes.promise import settle
from pytest_sglhw.registry.loading import built_in

if TYPE_CHECKING:
    from pytest_sglhw.gates.requirement import Requirement

REGISTRY = built_in()
READER = MarkReader(REGISTRY)

CPU = Lane("cpu", "cpu", "")
BARE = Lane("cuda", "cuda", "", min_devices=1)
HOPPERS = Lane("h", "cuda", "", min_devices=4, archs=("sm90",), capabilities=("kvcacheio",))
MIXED = Lane("m", "cuda", "", min_devices=1, archs=("sm90", "sm100"))
ROCM = Lane("rocm", "rocm", "", min_devices=8, archs=("gfx942",))


def asks(*marks: pytest.MarkDecorator) -> Requirement:
    return tuple(READER.need(mark.mark) for mark in marks)


def mark(name: str, *args: Any, **kwargs: Any) -> pytest.MarkDecorator:
    decorator: pytest.MarkDecorator = getattr(pytest.mark, name)
    return decorator.with_args(*args, **kwargs) if args or kwargs else decorator


RAISES = {"otherwise": "raise", "raises": RuntimeError}


@pytest.mark.parametrize(
    ("marks", "lane", "word"),
    [
        ((), CPU, "run"),
        ((mark("cuda_only"),), BARE, "run"),
        ((mark("cuda_only"),), CPU, "skip"),
        ((mark("gpu_only"),), ROCM, "run"),
        ((mark("gpu_only"),), CPU, "skip"),
        ((mark("sglhw", platforms=("cuda", "rocm")),), ROCM, "run"),
        ((mark("requires_kvcacheio"),), HOPPERS, "run"),
        ((mark("requires_kvcacheio"),), BARE, "not promised"),
        ((mark("requires_kvcacheio"),), CPU, "skip"),
        ((mark("requires_kv4", otherwise="raise"),), CPU, "raise"),
        ((mark("requires_kv4", otherwise="raise"),), ROCM, "raise"),
        ((mark("requires_kv4", otherwise="raise"),), BARE, "not promised"),
        ((mark("requires_nvfp4_kv"),), HOPPERS, "skip"),
        ((mark("requires_nvfp4_kv"),), MIXED, "not promised"),
        ((mark("sglhw", min_devices=4),), HOPPERS, "run"),
        ((mark("sglhw", min_devices=4),), BARE, "not promised"),
        ((mark("sglhw", min_devices=1),), CPU, "skip"),
        ((mark("sglhw", min_memory="40GiB"),), HOPPERS, "not promised"),
        ((mark("sglhw", min_memory="40GiB"),), CPU, "skip"),
        ((mark("sglhw", archs=("sm90",)),), HOPPERS, "run"),
        ((mark("sglhw", archs=("sm90", "gfx942")),), ROCM, "run"),
        ((mark("sglhw", archs=("sm90",)),), MIXED, "not promised"),
        ((mark("sglhw", archs=("sm80",)),), MIXED, "skip"),
        ((mark("sglhw", archs=("sm90",)),), BARE, "not promised"),
        ((mark("sglhw", archs=("gfx942",)),), BARE, "skip"),
        ((mark("sglhw", min_arch="sm90"),), MIXED, "run"),
        ((mark("sglhw", min_arch="sm100"),), MIXED, "not promised"),
        ((mark("sglhw", min_arch="sm120"),), MIXED, "skip"),
        ((mark("sglhw", min_arch="sm90"),), BARE, "not promised"),
        ((mark("sglhw", min_arch="sm90"),), ROCM, "skip"),
        # An unmet need that skips decides before one that must raise, and before what is open.
        ((mark("cuda_only"), mark("requires_kv4", otherwise="raise")), CPU, "skip"),
        ((mark("rocm_only"), mark("sglhw", min_devices=99)), CPU, "skip"),
        # What is open and would skip decides before what must raise.
        ((mark("sglhw", min_devices=9), mark("cuda_only", **RAISES)), ROCM, "not promised"),
        # Several that must raise: one that is unmet settles it.
        ((mark("cuda_only", **RAISES), mark("sglhw", min_devices=9, **RAISES)), ROCM, "raise"),
    ],
)
def test_what_a_lane_promises(marks: tuple[pytest.MarkDecorator, ...], lane: Lane, word: str) -> None:
    """Each kind of need, met, unmet and open, alone and together."""
    assert settle(asks(*marks), lane, REGISTRY) == word


@pytest.mark.parametrize("name", [row.mark for row in REGISTRY.capabilities.values()])
@pytest.mark.parametrize(
    ("lane", "specs"),
    [
        (CPU, ["cpu"]),
        (BARE, ["cuda:sm90", "cuda:sm80*8", "cuda:sm120*2", "cuda:sm100,-kvcacheio,-kv4"]),
        (HOPPERS, ["cuda:sm90*4", "cuda:sm90*8,-kv4"]),
        (ROCM, ["rocm:gfx942*8", "rocm:gfx942*9,-kvcacheio"]),
    ],
)
def test_a_settled_word_holds_on_every_machine_of_the_lane(name: str, lane: Lane, specs: list[str]) -> None:
    """Whatever machine keeps the promise, the gates come to the word of the plan where the plan has one."""
    requirement = asks(mark(name))
    word = settle(requirement, lane, REGISTRY)

    actions = {decide(requirement, fake_environment(spec, REGISTRY)).action for spec in specs}

    assert word == "not promised" or actions == {word}


@pytest.mark.parametrize(
    ("marks", "why"),
    [
        ((mark("cuda_only"),), None),
        ((mark("cuda_only"), mark("gpu_only")), None),
        ((mark("cpu_only"), mark("cuda_only", **RAISES)), None),
        ((mark("cuda_only"), mark("rocm_only")), "cuda_only holds on cuda and rocm_only holds on rocm"),
        ((mark("cpu_only"), mark("requires_kv4")), "cpu_only holds on cpu and requires_kv4 holds on cuda"),
        (
            (mark("sglhw", platforms=("rocm",), archs=("sm90",)),),
            "sglhw(platforms=('rocm',), archs=('sm90',)) holds on no platform",
        ),
        (
            (mark("rocm_only"), mark("sglhw", min_arch="sm90")),
            "rocm_only holds on rocm and sglhw(min_arch='sm90') holds on cuda",
        ),
        (
            (mark("sglhw", archs="sm90"), mark("sglhw", archs=("sm100", "gfx942"))),
            (
                "sglhw(archs='sm90') holds on cuda with sm90 and sglhw(archs=('sm100', 'gfx942')) holds on cuda, rocm "
                "with sm100 or gfx942"
            ),
        ),
        (
            (mark("sglhw", archs="sm90"), mark("sglhw", min_arch="sm100")),
            "sglhw(archs='sm90') holds on cuda with sm90 and sglhw(min_arch='sm100') holds on cuda with sm100 or above",
        ),
        (
            (mark("sglhw", archs="sm90", min_arch="sm100"),),
            "sglhw(archs='sm90', min_arch='sm100') holds on cuda with sm90 and sm100 or above",
        ),
        (
            (mark("xpu_only"), mark("sglhw", archs="sm90")),
            "xpu_only holds on xpu and sglhw(archs='sm90') holds on cuda",
        ),
        ((mark("cpu_only", reason="x"), mark("sglhw", platforms=("cpu",), min_devices=1)),
         "cpu_only(reason='x') holds on cpu and sglhw(platforms=('cpu',), min_devices=1) holds on no platform"),
    ],
)  # fmt: skip
def test_a_contradiction_is_explained(marks: tuple[pytest.MarkDecorator, ...], why: str | None) -> None:
    """Needs that no machine can meet together; one that must raise is meant to be unmet."""
    assert contradiction(asks(*marks), REGISTRY) == why


def refused(wanted: list[str], lanes: dict[str, Lane]) -> str:
    with pytest.raises(pytest.UsageError) as caught:
        plan_columns(wanted, lanes, REGISTRY)
    return str(caught.value)


def test_a_plan_needs_a_lane() -> None:
    """Without one it says how to get one."""
    assert refused([], {}) == (
        "--sglhw-plan needs lanes, and none is configured. Configure some as [tool.sglhw.lanes.NAME] in pyproject.toml "
        "or [lanes.NAME] in sglhw.toml, or give a machine: --sglhw-plan-for cuda:sm90*2."
    )


@pytest.mark.parametrize(("lanes", "known"), [({}, "No lane is configured."), ({"cpu": CPU}, "Lanes: cpu.")])
def test_a_column_that_is_nothing_is_refused(lanes: dict[str, Lane], known: str) -> None:
    """The message names the lanes, and what a machine looks like."""
    start = f"--sglhw-plan-for 'cud' is neither a lane nor a machine. {known} 'cud' is not a machine: "
    assert refused(["cud"], lanes).startswith(start)


def words(columns: Columns, *marks: pytest.MarkDecorator) -> tuple[str, ...]:
    return columns.row("t", asks(*marks)).words


def test_columns_are_lanes_and_machines() -> None:
    """A lane's name wins over a platform's; a machine settles everything but what its SPEC leaves unsaid."""
    columns = plan_columns(["cuda", "cuda:sm90*2", "cuda"], {"cuda": BARE}, REGISTRY)

    assert columns.names == ("cuda", "cuda:sm90*2")
    assert words(columns, mark("sglhw", min_devices=2)) == ("not promised", "run")
    assert words(columns, mark("sglhw", min_devices=3)) == ("not promised", "skip")
    assert words(columns, mark("sglhw", min_memory="1GiB")) == ("not promised", "not promised")
    assert words(columns) == ("run", "run")
