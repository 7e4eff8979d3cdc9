"""Lane tables: what is read, and how each mistake is answered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.lanes.config import KEYS, allowed_skips, get_lane, load_lanes
from pytest_sglhw.registry.loading import built_in, load

if TYPE_CHECKING:
    from pytest_sglhw.registry.registry import Registry


@pytest.fixture(scope="module")
def registry() -> Registry:
    return built_in()


def write(folder: Path, text: str, name: str = "sglhw.toml") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def refused(folder: Path, registry: Registry) -> str:
    with pytest.raises(pytest.UsageError) as caught:
        load_lanes(folder, registry)
    return str(caught.value)


FULL = """
[tool.other]
x = 1

[tool.sglhw.lanes.big]
platform = "hip"
min_devices = 8
archs = ["gfx942"]
capabilities = ["kvcacheio"]
min_executed = 100
min_executed_by_mark = { requires_kvcacheio = 40, rocm_only = 20 }
allow_skips = ["cuda_only", "memory", "broken:kv4"]
vacuous = "fail"
"""


def test_every_key_is_read(tmp_path: Path, registry: Registry) -> None:
    """A lane of pyproject.toml has all its keys, its platform under the name that the project uses, and its line."""
    lane = load_lanes(write(tmp_path, FULL, "pyproject.toml"), registry)["big"]

    assert lane.to_json() == {
        "name": "big",
        "platform": "rocm",
        "source": "pyproject.toml:5 [tool.sglhw.lanes.big]",
        "min_devices": 8,
        "archs": ("gfx942",),
        "capabilities": ("kvcacheio",),
        "min_executed": 100,
        "min_executed_by_mark": {"requires_kvcacheio": 40, "rocm_only": 20},
        "allow_skips": ("cuda_only", "memory", "broken:kv4"),
        "vacuous": "fail",
    }


@pytest.mark.parametrize(("platform", "devices"), [("cpu", 0), ("xpu", 1)])
def test_a_lane_of_an_accelerator_promises_one(tmp_path: Path, registry: Registry, platform: str, devices: int) -> None:
    """Unstated, min_devices is 1, and 0 on the platform that has none."""
    lanes = load_lanes(write(tmp_path, f'[lanes.x]\nplatform = "{platform}"'), registry)

    assert lanes["x"].min_devices == devices


def test_lanes_of_a_folder_above_count(tmp_path: Path, registry: Registry) -> None:
    """A test suite in a folder of the repository finds the lanes of the repository, and names their file in full."""
    write(tmp_path, '[lanes.x]\nplatform = "cpu"')
    (tmp_path / "test" / "unit").mkdir(parents=True)

    lanes = load_lanes(tmp_path / "test" / "unit", registry)

    assert lanes["x"].source == f"{tmp_path / 'sglhw.toml'}:1 [lanes.x]"


def test_lanes_outside_of_the_repository_do_not_count(tmp_path: Path, registry: Registry) -> None:
    """The search ends at the repository's own folder."""
    write(tmp_path, '[lanes.x]\nplatform = "cpu"')
    (tmp_path / "repo" / ".git").mkdir(parents=True)

    assert load_lanes(tmp_path / "repo", registry) == {}


def test_the_nearest_lanes_count(tmp_path: Path, registry: Registry) -> None:
    """Lanes of a folder hide those of the folders above it."""
    write(tmp_path, '[lanes.x]\nplatform = "cpu"')
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub", '[lanes.y]\nplatform = "cpu"')

    assert list(load_lanes(tmp_path / "sub", registry)) == ["y"]


def test_a_family_allows_its_members(tmp_path: Path, registry: Registry) -> None:
    """``capability`` allows every ``capability:NAME``; a single code allows itself."""
    text = '[lanes.x]\nplatform = "cpu"\nallow_skips = ["capability", "unknown:platform", "cuda_only"]'
    allowed = allowed_skips(load_lanes(write(tmp_path, text), registry)["x"], registry)

    assert {"capability:kv4", "unknown:platform", "cuda_only"} <= allowed
    assert allowed.isdisjoint({"unknown:kv4", "broken:kv4", "platform"})


def test_a_capability_of_a_downstream_project_is_known(tmp_path: Path) -> None:
    """Names are those of the run's registry."""
    registry = load()
    registry.add_capability({"name": "mine", "summary": "mine", "platforms": {"cpu": ""}})
    text = '[lanes.x]\nplatform = "cpu"\ncapabilities = ["mine"]\nmin_executed_by_mark = { requires_mine = 1 }'

    assert load_lanes(write(tmp_path, text), registry)["x"].capabilities == ("mine",)


LANE = '[lanes.x]\nplatform = "cuda"\n'
AT = "sglhw.toml:1 [lanes.x]: "


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("min_device = 1", f"unknown key 'min_device'. Valid: {', '.join(KEYS)}."),
        ("min_devices = '1'", "min_devices = '1' is not valid. Valid: a whole number of at least 0."),
        ("min_devices = true", "min_devices = True is not valid. Valid: a whole number of at least 0."),
        ("min_executed = -1", "min_executed = -1 is not valid. Valid: a whole number of at least 0."),
        ("min_executed = 1.5", "min_executed = 1.5 is not valid. Valid: a whole number of at least 0."),
        ("archs = 'sm90'", "archs = 'sm90' is not valid. Valid: a list of strings."),
        ("capabilities = [1]", "capabilities = [1] is not valid. Valid: a list of strings."),
        ("vacuous = 'no'", 'vacuous = \'no\' is not valid. Valid: "off" or "warn" or "fail".'),
        (
            "min_executed_by_mark = { cuda_only = 'many' }",
            "min_executed_by_mark = {'cuda_only': 'many'} is not valid. Valid: a table of whole numbers of at least 0.",
        ),
        (
            "archs = ['gfx942']",
            "archs names 'gfx942', which is no arch of platform cuda. Valid: names like 'sm90'.",
        ),
    ],
)
def test_a_wrong_key_or_value_is_refused(tmp_path: Path, registry: Registry, line: str, message: str) -> None:
    """File, line, table, what was given and what is valid."""
    assert refused(write(tmp_path, LANE + line), registry) == AT + message


def test_a_wrong_platform_is_refused(tmp_path: Path, registry: Registry) -> None:
    """A platform has to be known."""
    text = "[lanes.x]\nplatform = 'nvidea'"
    valid = ", ".join(registry.platforms)

    message = f"{AT}platform = 'nvidea' is not known. Valid: {valid}."
    assert refused(write(tmp_path, text), registry) == message


def test_a_missing_platform_is_refused(tmp_path: Path, registry: Registry) -> None:
    """A lane promises at least its platform."""
    message = f"{AT}the key 'platform' is missing. A lane promises at least its platform."
    assert refused(write(tmp_path, "[lanes.x]"), registry) == message


@pytest.mark.parametrize(
    ("line", "start"),
    [
        ("capabilities = ['kvcachio']", "capabilities names 'kvcachio', which is not known. Valid: kvcacheio, "),
        (
            "min_executed_by_mark = { slow = 1 }",
            "min_executed_by_mark names 'slow', which is not known. Valid: cuda_only, ",
        ),
        (
            "allow_skips = ['capability:kvcachio']",
            "allow_skips names 'capability:kvcachio', which is neither a mark nor a reason code. Valid marks: ",
        ),
    ],
)
def test_an_unknown_name_is_refused(tmp_path: Path, registry: Registry, line: str, start: str) -> None:
    """A name that nothing will ever match is told which are known."""
    assert refused(write(tmp_path, LANE + line), registry).startswith(AT + start)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[lane.x]\nplatform = 'cpu'", "sglhw.toml: unknown key 'lane'. Valid: lanes."),
        ("lanes = 3", "sglhw.toml: lanes = 3 is not a table. Valid: [lanes.NAME] tables."),
        ("[lanes]\nx = 3", f"sglhw.toml [lanes.x]: 3 is not a lane. Valid: a table with {', '.join(KEYS)}."),
        (
            "[lanes.x",
            "sglhw.toml is not valid TOML: Expected ']' at the end of a table declaration (at end of document).",
        ),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, registry: Registry, text: str, message: str) -> None:
    """The file itself has to make sense."""
    assert refused(write(tmp_path, text), registry) == message


def test_lanes_in_both_files_are_refused(tmp_path: Path, registry: Registry) -> None:
    """Which of the two counts would be a guess."""
    write(tmp_path, LANE)
    write(tmp_path, "[tool.sglhw.lanes.x]\nplatform = 'cpu'", "pyproject.toml")

    message = "lanes are configured twice, in sglhw.toml and pyproject.toml. Keep one of them."
    assert refused(tmp_path, registry) == message


def test_a_file_in_another_encoding_is_refused(tmp_path: Path, registry: Registry) -> None:
    """No traceback for bytes that are not UTF-8."""
    (tmp_path / "sglhw.toml").write_bytes(b"# \xff")

    assert refused(tmp_path, registry).startswith("sglhw.toml can't be read: 'utf-8' codec can't decode byte 0xff")


@pytest.mark.parametrize(
    ("text", "known"), [(LANE, "Configured: x."), ("", "No lane is configured.")], ids=["some", "none"]
)
def test_a_lane_that_is_not_there(tmp_path: Path, registry: Registry, text: str, known: str) -> None:
    """The message names the lanes that are there, and where lanes stand."""
    with pytest.raises(pytest.UsageError) as caught:
        get_lane(write(tmp_path, text), registry, "y")

    assert str(caught.value) == (
        f"there is no lane 'y'. {known} Lanes stand in {tmp_path / 'pyproject.toml'} as [tool.sglhw.lanes.NAME], or in "
        "sglhw.toml beside it as [lanes.NAME]."
    )


def test_a_table_that_is_none_in_pyproject_is_refused(tmp_path: Path, registry: Registry) -> None:
    """A value where our tables should be is no absence of lanes."""
    (tmp_path / "pyproject.toml").write_text("[tool]\nsglhw = 3\n")
    message = "pyproject.toml: tool.sglhw = 3 is not a table. Valid: [tool.sglhw.lanes.NAME]."
    assert refused(tmp_path, registry) == message


def test_a_broken_pyproject_is_no_absence_of_lanes(tmp_path: Path, registry: Registry) -> None:
    """Also where what can be read of it is about something else."""
    (tmp_path / "pyproject.toml").write_text("[tool.pytest")
    with pytest.raises(pytest.UsageError) as caught:
        get_lane(tmp_path, registry, "x")

    assert str(caught.value) == (
        "pyproject.toml is not valid TOML: Expected ']' at the end of a table declaration (at end of document)."
    )
