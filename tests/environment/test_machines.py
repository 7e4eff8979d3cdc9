"""The shipped records of machines agree with themselves, with the platforms' table and with what a probe would say."""

from __future__ import annotations

import json
import re

import pytest

from pytest_sglhw.environment.fakes import MACHINES, fake_environment, shipped_machines
from pytest_sglhw.environment.reading import read_environment
from pytest_sglhw.registry.loading import built_in

each_machine = pytest.mark.parametrize("name", shipped_machines())

#: The local version of a wheel of torch -> the version string that goes with it.
LOCAL = {"cu": "cuda", "rocm": "hip", "xpu": "xpu"}


def data(name):
    """The file as it is."""
    return json.loads((MACHINES / f"{name}.json").read_text())


def platform(name):
    """The row of a machine's platform."""
    return built_in().platforms[data(name)["platform"]]


def facts(record):
    """Names of the facts that a record states."""
    devices = {"name", "arch", "memory", "count"} if record["devices"] else set()
    stated = {"torch", *record["versions"], *record["capabilities"], *devices}
    return stated | {"capabilities"}


@each_machine
def test_every_fact_has_a_source(name):
    """Each is named once, by an address or by a sentence that says why there is none."""
    record = data(name)
    named = [fact for names in record["sources"] for fact in names.split(", ")]

    assert sorted(named) == sorted(facts(record))
    assert all(re.match(r"https://\S+( \(.+\))?$|[a-z][^:]+", source) for source in record["sources"].values())


@each_machine
def test_the_record_fits_the_platform(name):
    """Device type, archs as the platform spells them, and devices numbered as the runtime does."""
    record, row = data(name), platform(name)

    assert record["device_type"] == row.device_type
    assert [device["index"] for device in record["devices"]] == list(range(len(record["devices"])))
    assert bool(record["devices"]) == bool(row.api)
    for device in record["devices"]:
        assert re.fullmatch(row.arch_pattern, device["arch"])
        assert device["memory"] is None or 2**33 < device["memory"] < 2**39
        assert device["state"] == "available"


@each_machine
def test_a_probe_would_read_the_same_arch(name):
    """Where the arch is read off the device's name, the name gives it."""
    for device in data(name)["devices"]:
        rules = [rule for rule in platform(name).archs if rule.source == "name"]
        matches = [
            match.expand(rule.arch).lower() for rule in rules if (match := re.search(rule.pattern, device["name"]))
        ]
        assert matches[:1] == ([device["arch"]] if rules else [])


@each_machine
def test_the_build_is_what_torch_says(name):
    """The version string of the build is set and no other, the wheel's name agrees, and it is the runtime's version."""
    record = data(name)
    build = built_in().platforms[record["build"]]
    strings = {key: text for key, text in record["torch"].items() if key != "version"}
    local = re.match(r"[\d.]+(?:\.dev\d+)?\+?([a-z]*)", record["torch"]["version"])[1]

    assert set(strings) == ({build.build} if build.build else set())
    assert record["versions"].get("runtime") == strings.get(build.build)
    assert LOCAL.get(local) in (None, build.build)


@each_machine
def test_the_driver_is_new_enough_for_the_runtime(name):
    """A machine whose driver offers less than the runtime asks for would have no device."""
    versions = data(name)["versions"]
    api, runtime = versions.get("driver_api"), versions.get("runtime")

    assert api is None or [int(part) for part in api.split(".")] >= [int(part) for part in runtime.split(".")]


@each_machine
def test_nothing_in_the_file_is_lost(name):
    """A key that the reader does not know would be a fact that no fake has."""
    record = data(name)
    read = read_environment(record, name).to_json()

    assert set(record) - set(read) == {"capabilities_from", "sources"}
    assert {key: record[key] for key in record if key not in ("devices", "capabilities_from", "sources")} == {
        key: json.loads(json.dumps(read[key])) for key in record if key in read and key != "devices"
    }


def test_the_memory_is_what_a_program_sees():
    """Less than the number on the box: a test that needs 80 GiB does not run on an H100 of 80 GB."""
    seen = {name: fake_environment(name, built_in()).devices[0].memory / 2**30 for name in ("h100", "h200", "mi300x")}

    assert [round(memory, 2) for memory in seen.values()] == [79.11, 139.8, 191.98]
