"""``sglhw capabilities`` shows the registry, and the documentation shows what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.cli import main
from pytest_sglhw.registry import command
from pytest_sglhw.registry.builtin import BUILTIN_CAPABILITIES
from pytest_sglhw.registry.loading import built_in

if TYPE_CHECKING:
    from pytest_sglhw.registry.registry import Registry

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- sglhw capabilities: begin -->\n", "<!-- sglhw capabilities: end -->"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry with one row of a downstream project, which the command then loads."""
    registry = built_in()
    registry.capabilities.clear()
    registry.add_capability(
        {"name": "plain", "summary": "a | b", "platforms": {"cuda": "0.5.9", "rocm": ""}, "archs": {"cuda": ("sm90",)}}
    )
    registry.origin = "entry point 'mine' of my-project"
    signals = ({"exception": "ValueError", "match": "no (A|B)"}, {"exception": "RuntimeError", "match": "never"})
    registry.add_capability({"name": "mine", "summary": "mine", "platforms": {"cpu": ""}, "signals": signals})
    monkeypatch.setattr(command, "load", lambda: registry)
    return registry


def test_terminal(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    """A capability is shown with its mark, who added it, its platforms and its documented refusals."""
    assert main(["capabilities"]) == 0
    assert capsys.readouterr().out == (
        "requires_plain: a | b\n"
        "    on cuda (sm90, SGLang 0.5.9); rocm\n"
        "requires_mine: mine [entry point 'mine' of my-project]\n"
        "    on cpu\n"
        "    refused by ValueError: no (A|B)\n"
        "    refused by RuntimeError: never\n"
    )


def test_markdown(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    """The Markdown is one table, in which no text of a row ends a cell."""
    assert main(["capabilities", "--format", "markdown"]) == 0
    assert capsys.readouterr().out == (
        "| mark | what | platforms | documented refusal |\n"
        "|---|---|---|---|\n"
        "| `requires_plain` | a \\| b | cuda (sm90, SGLang 0.5.9)<br>rocm |  |\n"
        "| `requires_mine` | mine | cpu | `ValueError: no (A\\|B)`<br>`RuntimeError: never` |\n"
    )


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON has every column of every row."""
    assert main(["capabilities", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "1.0"
    names = [row["name"] for row in document["capabilities"] if row["origin"] == "built in"]
    assert names == [row["name"] for row in BUILTIN_CAPABILITIES]
    kv4 = next(row for row in document["capabilities"] if row["name"] == "kv4")
    assert kv4["mark"] == "requires_kv4"
    assert kv4["platforms"] == {"cuda": ""}
    assert kv4["signals"] == [
        {"exception": "RuntimeError", "match": "KV4 is not tested on non-CUDA platforms", "warning": False}
    ]


def test_check(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    """``--check`` lists what is wrong and exits 1 where there is anything."""
    assert main(["capabilities", "--check"]) == 1
    assert capsys.readouterr().out == (
        "plain (built in): it has no probe: nothing can find out whether it is there\n"
        "mine (entry point 'mine' of my-project): it has no probe: nothing can find out whether it is there\n"
    )


def test_check_of_the_built_in_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is wrong with the rows that we ship."""
    monkeypatch.setattr(command, "load", built_in)
    assert main(["capabilities", "--check"]) == 0
    assert capsys.readouterr().out == f"{len(BUILTIN_CAPABILITIES)} capabilities, nothing wrong with them\n"


@pytest.mark.parametrize("name", ["README.md", "docs/capabilities.md"])
def test_documentation_shows_the_table(name: str) -> None:
    """What stands between the markers is the output of ``sglhw capabilities --format markdown``."""
    text = (ROOT / name).read_text(encoding="utf-8")
    table = text.partition(BEGIN)[2].partition(END)[0]
    assert table == command.as_markdown(built_in().capabilities.values())
