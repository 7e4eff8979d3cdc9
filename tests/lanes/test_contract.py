"""The promise against the machine, and against the results: values in, values out."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sglhw.environment.records import CapabilityState, Device, Environment
from pytest_sglhw.gates.policy import LanePolicy
from pytest_sglhw.lanes.config import Lane
from pytest_sglhw.lanes.contract import Results, named, terms, unmet_table
from pytest_sglhw.lanes.shard import Shard, read_shard
from pytest_sglhw.report.results import FileResult, TestResult

LANE = Lane(
    "cuda",
    "cuda",
    "sglhw.toml:3 [lanes.cuda]",
    min_devices=2,
    archs=("sm90",),
    capabilities=("kvcacheio",),
    min_executed=2,
    min_executed_by_mark={"cuda_only": 1},
    allow_skips=("rocm_only", "memory"),
)
POLICY = LanePolicy("cuda", frozenset(LANE.allow_skips))
KERNELS = {"kvcacheio": CapabilityState("available", "13 kernels")}
GOOD = Environment("cuda", "cuda", (Device(0, arch="sm90"), Device(1, arch="sm90")), capabilities=KERNELS)


def broken(environment: Environment) -> list[str]:
    return [term.what for term in terms(LANE, environment) if not term.kept]


def test_the_promised_machine_is_accepted() -> None:
    """Every term is kept."""
    assert broken(GOOD) == []


@pytest.mark.parametrize(
    ("environment", "unmet"),
    [
        (Environment("rocm", "cuda", GOOD.devices, capabilities=KERNELS), ["platform"]),
        (Environment("unknown", "cpu", GOOD.devices, capabilities=KERNELS), ["platform"]),
        (Environment("cuda", "cuda", GOOD.devices, capabilities=KERNELS, fake="cuda*2"), ["machine"]),
        (Environment("cuda", "cuda", GOOD.devices[:1], capabilities=KERNELS), ["devices"]),
        (Environment("cuda", "cuda", (), capabilities=KERNELS), ["devices", "archs"]),
        (
            Environment("cuda", "cuda", (*GOOD.devices, Device(2, arch="sm100")), capabilities=KERNELS),
            ["archs"],
        ),
        (Environment("cuda", "cuda", (Device(0), Device(1)), capabilities=KERNELS), ["archs"]),
        (Environment("cuda", "cuda", GOOD.devices), ["kvcacheio"]),
        (
            Environment("cuda", "cuda", GOOD.devices, capabilities={"kvcacheio": CapabilityState("broken")}),
            ["kvcacheio"],
        ),
    ],
)
def test_each_term_can_be_unmet(environment: Environment, unmet: list[str]) -> None:
    """A wrong platform, a fake, too few devices, an arch that was not promised (or is unknown), a broken capability."""
    assert broken(environment) == unmet


def test_a_device_that_is_broken_does_not_count() -> None:
    """Only devices that work are devices; the table says what is wrong with the other."""
    bad = Device(1, arch="sm90", state="broken", reason="out of memory")
    environment = Environment("cuda", "cuda", (GOOD.devices[0], bad), capabilities=KERNELS)
    (devices,) = [term for term in terms(LANE, environment) if term.what == "devices"]

    assert (devices.promised, devices.found, devices.kept) == ("at least 2", "1", False)
    assert devices.evidence == "device 1 is broken: out of memory"


def test_the_table_shows_promise_finding_and_evidence() -> None:
    """The whole message of a machine that is not what the lane promises."""
    missing = CapabilityState("unavailable", "no distribution", ("sglang-kernel is not installed",))
    environment = Environment(
        "cpu",
        "cpu",
        reason="no device node",
        masks={"CUDA_VISIBLE_DEVICES": ""},
        capabilities={"kvcacheio": missing},
    )

    assert unmet_table(LANE, terms(LANE, environment)) == (
        "this machine is not what lane cuda (sglhw.toml:3 [lanes.cuda]) promises:\n"
        "\n"
        "               promised    found        evidence\n"
        "    machine    live        live\n"
        "  x platform   cuda        cpu          no device node\n"
        "  x devices    at least 2  0            CUDA_VISIBLE_DEVICES=''\n"
        "  x archs      sm90        no device\n"
        "  x kvcacheio  available   unavailable  no distribution; sglang-kernel is not installed\n"
        "\n"
        "Nothing was run. See: sglhw doctor --lane cuda. Run the lane on a machine that keeps the promise, "
        "or change the promise."
    )


def result(nodeid: str, outcome: str = "passed", rerun: bool = False, **facts: Any) -> TestResult:
    reason = facts.get("reason", "")
    return TestResult(nodeid, outcome, "call", 0.1, reason, None, 1, rerun, {"marks": ["cuda_only"], **facts})


def skip(nodeid: str, code: str, mark: str, reason: str) -> TestResult:
    return result(nodeid, "skipped", reason_code=code, mark=mark, reason=reason)


def findings(*tests: TestResult, shard: Shard | None = None) -> list[tuple[bool, str, tuple[str, ...]]]:
    results = Results(LANE, POLICY, shard)
    for test in tests:
        results.add_test(test)
    return [(found.breach, found.heading, found.lines) for found in results.findings()]


ENOUGH = (result("t.py::a"), result("t.py::b", "failed"))


def test_a_kept_promise_says_nothing() -> None:
    """Passed and failed tests are executed; allowed skips, by mark or by code, break nothing."""
    by_mark = skip("t.py::c", "platform", "rocm_only", "needs rocm")
    by_code = skip("t.py::d", "memory", "sglhw", "needs 80 GiB")

    assert findings(*ENOUGH, by_mark, by_code) == []


def test_contradicting_skips_are_named() -> None:
    """Test, code and reason of each; a mark that is on the test but did not decide does not excuse it."""
    devices = skip("t.py::c", "devices", "sglhw", "4 devices needed, 2 found")
    other = result(
        "t.py::d", "skipped", marks=["rocm_only", "requires_kv4"], mark="requires_kv4", reason_code="capability:kv4",
        reason="kv4 is unavailable",
    )  # fmt: skip

    assert findings(*ENOUGH, devices, other) == [
        (
            True,
            "2 skips contradict the promise (allow_skips: rocm_only, memory)",
            (
                "t.py::c [devices]: 4 devices needed, 2 found",
                "t.py::d [capability:kv4]: kv4 is unavailable",
            ),
        )
    ]


def test_too_few_executed_is_a_breach() -> None:
    """What skipped, crashed, xfailed or was not run is not executed; the last attempt of a test counts once."""
    tests = [
        result("t.py::a", "raised", marks=["requires_kv4"]),
        result("t.py::a", "raised", marks=["requires_kv4"]),
        result("t.py::b", "passed", rerun=True),
        *(result(f"t.py::{word}", word) for word in ("crashed", "xfailed", "xpassed", "not_run", "error")),
    ]

    assert findings(*tests) == [
        (True, "tests that were not run: 1", ("1 x no reason given: t.py::not_run",)),
        (True, "too few tests were executed: min_executed = 2, executed 1", ()),
        (True, "too few tests were executed: min_executed_by_mark.cuda_only = 1, executed 0", ()),
    ]


def test_a_shard_leaves_the_minima_to_the_merge() -> None:
    """One part of the run can't know what the others ran; it says so."""
    assert findings(shard=Shard(2, 4)) == [
        (False, "this is shard 2/4: sglhw merge checks the minima of the lane", ()),
    ]


def test_skips_of_others_are_listed_with_their_reasons() -> None:
    """They break nothing and are seen, also those of a test with a mark of ours."""
    plain = [result(f"t.py::s{i}", "skipped", reason="could not import 'x'\nmore") for i in range(5)]

    assert findings(*ENOUGH, *plain) == [
        (
            False,
            "skips that this plugin did not cause: 5",
            ("5 x could not import 'x': t.py::s0, t.py::s1, t.py::s2, ... and 2 more",),
        )
    ]


def test_files_that_gave_no_test_are_counted_and_named() -> None:
    """Collection errors, files skipped whole and empty files."""
    results = Results(LANE, POLICY, None)
    for test in ENOUGH:
        results.add_test(test)
    results.add_file(FileResult("a.py", "failed", "ImportError: libcuda.so.1\nat ..."))
    results.add_file(FileResult("b.py", "skipped", ""))

    (found,) = results.findings()

    assert (found.breach, found.heading) == (False, "files that gave no test: 2")
    assert found.lines == ("a.py (failed): ImportError: libcuda.so.1", "b.py (skipped): no reason given")


@pytest.mark.parametrize(
    ("capability", "state", "breach"),
    [("kv4", "unavailable", True), ("hisparse", "unavailable", False), ("hisparse", "broken", True)],
)
def test_a_file_that_we_skipped_is_a_skip_of_ours(capability: str, state: str, breach: bool) -> None:
    """What ``import_or_skip`` left out contradicts the promise as a test would."""
    results = Results(LANE, LanePolicy("cuda", frozenset({"capability:hisparse"})), None)
    for test in ENOUGH:
        results.add_test(test)
    reason = f"import_or_skip('a.b', '{capability}'): {capability} is {state}: not here"
    results.add_file(FileResult("a.py", "skipped", reason))

    code = f"{'capability' if state == 'unavailable' else state}:{capability}"
    assert results.contradictions() == ([f"a.py [{code}]: {reason}"] if breach else [])


def test_a_long_list_says_how_much_it_leaves_out() -> None:
    """A list is cut with a count, never in silence."""
    assert named(["a", "b", "c"], 2) == ("a", "b", "... and 1 more")
    assert named(["a", "b"], 2) == ("a", "b")


@pytest.mark.parametrize(("text", "shard"), [(None, None), ("1/1", Shard(1, 1)), ("2/4", Shard(2, 4))])
def test_a_shard_is_part_of_parts(text: str | None, shard: Shard | None) -> None:
    """Counted from 1."""
    assert read_shard(text) == shard


@pytest.mark.parametrize("text", ["", "2", "0/4", "5/4", "a/b", "1/2/3", "-1/4", "1/0"])
def test_a_wrong_shard_is_refused(text: str) -> None:
    """The minima would be checked by nobody."""
    with pytest.raises(pytest.UsageError) as caught:
        read_shard(text)

    assert str(caught.value) == f"SGLHW_SHARD is {text!r}. Valid: PART/PARTS, such as 2/4."
