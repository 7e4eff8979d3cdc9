"""Fakes: SPECs, records of real machines, the shipped records, and every way to get them wrong."""

from __future__ import annotations

import json

import pytest

from pytest_sglhw.environment.fakes import MACHINES, fake_environment, from_spec, shipped_machines
from pytest_sglhw.environment.records import Environment
from pytest_sglhw.errors import RecordError
from pytest_sglhw.registry.loading import built_in

GRAMMAR = (
    "A SPEC is platform[:arch][*count][,+capability|-capability...], e.g. rocm:gfx942*8 or cuda:sm90*2,-kvcacheio."
)


def test_a_spec_gives_what_it_states_and_what_the_registry_gives_the_platform():
    """Unstated: one device, no memory; a minus takes a capability away."""
    fake = fake_environment("cuda:sm_90*2,-kvcacheio", built_in())

    assert (fake.platform, fake.device_type, fake.archs, len(fake.devices)) == ("cuda", "cuda", ("sm90",), 2)
    assert (fake.available("kvcacheio"), fake.available("kv4"), fake.fake) == (False, True, "cuda:sm_90*2,-kvcacheio")
    assert fake.devices[0].memory is None


@pytest.mark.parametrize(("spec", "platform"), [("hip", "rocm"), ("AMD", "rocm"), ("ascend*8", "npu"), ("cpu", "cpu")])
def test_other_names_of_a_platform_are_understood(spec, platform):
    """The names that the field uses beside ours."""
    assert fake_environment(spec, built_in()).platform == platform


WRONG = {
    "cuda:gfx942": "cuda has no arch 'gfx942'. Valid: an arch such as sm90. ",
    "cuda:sm\N{ARABIC-INDIC DIGIT NINE}\N{ARABIC-INDIC DIGIT ONE}": (
        "cuda has no arch 'sm\N{ARABIC-INDIC DIGIT NINE}\N{ARABIC-INDIC DIGIT ONE}'. Valid: an arch such as sm90. "
    ),
    "cuda*0": "'0' is not a number of devices. Valid: a whole number from 1 to 9999. ",
    "cuda*x": "'x' is not a number of devices. Valid: a whole number from 1 to 9999. ",
    "cpu*2": "cpu has no devices to count. Valid: cpu. ",
    "cpu:x86": "cpu has no arch 'x86'. Valid: no arch. ",
    "cuda,+kv4,-kv4": "it has both +kv4 and -kv4. Valid: one of them. ",
}


@pytest.mark.parametrize("spec", WRONG)
def test_a_wrong_part_of_a_spec_is_refused_with_what_is_valid(spec):
    """The whole message."""
    with pytest.raises(RecordError) as raised:
        fake_environment(spec, built_in())

    assert str(raised.value) == f"{spec!r} is not a machine: {WRONG[spec]}{GRAMMAR}"


@pytest.mark.parametrize("spec", ["cudx", "", "cuda,+nope", "cuda,kv4"])
def test_an_unknown_name_in_a_spec_lists_the_valid_ones(pytester, spec):
    """A usage error, exit status 4, before anything runs."""
    result = pytester.runpytest_subprocess("-p", "sglhw", f"--sglhw-fake={spec or ' '}")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --sglhw-fake: * is not a machine: *Valid: *A SPEC is platform*"])


@pytest.mark.parametrize("name", shipped_machines())
def test_a_shipped_record_replays_and_gives_its_sources(name):
    """At least the facts of a fake by SPEC, each with where it was published."""
    data = json.loads((MACHINES / f"{name}.json").read_text())
    fake = fake_environment(name, built_in())

    assert data["sources"]
    assert set(fake.capabilities) == set(built_in().capabilities)
    assert Environment.from_json(json.loads(json.dumps(fake.to_json()))) == fake


def test_there_are_records_of_many_machines():
    """One for each kind of accelerator, and more for those that are common."""
    platforms = {fake_environment(name, built_in()).platform for name in shipped_machines()}

    assert len(shipped_machines()) >= 12
    assert platforms >= {"cuda", "rocm", "xpu", "npu", "musa", "mps", "cpu"}


def record(**changes):
    """A whole record with some values changed."""
    return fake_environment("cuda", built_in()).to_json() | changes


REMEDY = "Write it again with: sglhw doctor --json"
STATES = "available, unavailable, broken, unknown"
BAD_VALUES = [
    ({"schema": "2.0"}, "schema is '2.0'. Valid: a schema 1.x, which is what this release reads"),
    ({"schema": 1}, "schema is 1. Valid: a schema 1.x, which is what this release reads"),
    ({"platform": 7}, "platform is 7. Valid: a string"),
    ({"devices": {}}, "devices is {}. Valid: a list"),
    ({"devices": [{"index": -1}]}, "devices[0].index is -1. Valid: a whole number of at least 0"),
    ({"devices": [{"index": 0, "state": "ok"}]}, f"devices[0].state is 'ok'. Valid: {STATES}"),
    ({"capabilities": {"kv4": {"state": "yes"}}}, f"capabilities.kv4.state is 'yes'. Valid: {STATES}"),
    ({"capabilities": {"kv4": {}}}, "capabilities.kv4 is {}. Valid: an object with state, reason, evidence, remedy"),
    ({"probe": {"status": "fine"}}, "probe.status is 'fine'. Valid: ok, hung, crashed, garbled, skipped"),
    ({"probe": {"seconds": "1"}}, "probe.seconds is '1'. Valid: a number of seconds of at least 0"),
    ({"masks": {"A": None}}, "masks.A is None. Valid: a string"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "text"), BAD_VALUES)
def test_a_bad_value_in_a_record_is_named(changes, text):
    """File, key, value, and what is valid."""
    with pytest.raises(RecordError) as raised:
        Environment.from_json(record(**changes), "machine.json")

    assert str(raised.value) == f"machine.json: {text}. {REMEDY}"


def test_a_record_without_a_needed_key_is_refused():
    """The keys that every record has are listed."""
    data = record()
    del data["devices"]

    with pytest.raises(RecordError) as raised:
        Environment.from_json(data, "machine.json")

    needed = "schema, platform, device_type, devices, capabilities"
    assert str(raised.value) == f"machine.json: no 'devices'. An environment record has {needed}. {REMEDY}"


def test_a_truncated_file_is_a_usage_error(pytester):
    """The file is named, and that it may be cut off."""
    pytester.path.joinpath("machine.json").write_text(json.dumps(record())[:-9])
    result = pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-fake", "machine.json")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: --sglhw-fake: machine.json: not a whole JSON document (*); it may be truncated. {REMEDY}"]
    )


def test_keys_of_a_later_release_are_ignored():
    """A reader of schema 1.x reads every 1.x."""
    assert Environment.from_json(record(schema="1.9", novelty=[1])) == Environment.from_json(record())


def test_an_empty_spec_is_a_usage_error(pytester):
    """An unset variable on the command line must not make a faked run a live one."""
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess("-p", "sglhw", "--sglhw-fake", "")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert (
        "ERROR: --sglhw-fake: '' names no machine. Valid: platform[:arch][*count][,+capability...] or a FILE."
        in result.stderr.lines
    )


@pytest.mark.parametrize("spec", ["cuda", "nvidia", "cuda:sm90*2"])
def test_a_file_does_not_shadow_a_spec(tmp_path, monkeypatch, spec):
    """Only its path makes it a machine."""
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath(spec).write_text("{}")

    assert fake_environment(spec, built_in()).platform == "cuda"
    with pytest.raises(RecordError, match="no 'schema'"):
        fake_environment(f"./{spec}", built_in())


def test_a_file_may_have_any_name_that_is_no_spec(tmp_path, monkeypatch):
    """The end ``.json`` is not needed."""
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("runner-3").write_text(json.dumps(from_spec("rocm", built_in()).to_json()))

    assert fake_environment("runner-3", built_in()).platform == "rocm"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (f"cuda{',-kvcacheio' * 500}", None),
        (f"cuda,-{'x' * 5000}", "is not a capability"),
        ("x" * 5000, "no platform"),
        (f"{'x' * 5000}.json", "File name too long"),
        ("cuda\0", "no platform"),
        ("cuda\0.json", "embedded null byte"),
    ],
    ids=["valid", "capability", "platform", "file", "null", "null in a file"],
)
def test_a_spec_that_is_no_name_of_a_file_is_read_or_refused(spec, words):
    """However long it is, and whatever is in it."""
    if words is None:
        assert fake_environment(spec, built_in()).capability("kvcacheio").state == "unavailable"
        return
    with pytest.raises(RecordError, match=words):
        fake_environment(spec, built_in())
