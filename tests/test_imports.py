"""The architecture holds: imports go one way, and heavy packages stay where they belong."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_sglhw

PACKAGE = Path(pytest_sglhw.__file__).parent
ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"

#: Where a package that costs seconds to import, or that a machine may lack, may be named in an import at all.
HEAVY = {
    "torch": {
        "conformance", "kvcacheio",
        "environment/smoke", "environment/smoke_triton", "asking/child",  # the probe's child process
        "gates/kernel_watch",  # only where the tests have imported it
    },
    "triton": {"conformance", "environment/smoke_triton"},
    "sglang": {"conformance", "asking/child"},
    "sgl_kernel": {"conformance", "environment/smoke"},
    "hypothesis": {"conformance"},
    "numpy": {"conformance"},
}  # fmt: skip

#: Modules of commands, which `cli` runs: they may use everything.
COMMANDS = re.compile(r"(\w+/command|environment/doctor\w*)")


def layers() -> list[list[str]]:
    """Read the rows of the architecture's table, top first: the packages and modules of each."""
    rows = re.findall(r"^\| (`.+?) \|", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    tables = [[name.rstrip("/") for name in re.findall(r"`([\w/]+)`", row)] for row in rows]
    return tables[: next(at for at, row in enumerate(tables) if "plugin" in row) + 1]


LAYERS = layers()
HEIGHT = {name: at for at, row in enumerate(LAYERS) for name in row}


def modules() -> list[str]:
    """Name every module below the package, as ``gates/marks``."""
    paths = (path.relative_to(PACKAGE).with_suffix("").as_posix() for path in PACKAGE.rglob("*.py"))
    return sorted(path for path in paths if not path.endswith("__init__") and path != "__main__")


def imports(module: str) -> Iterator[str]:
    """Name what a module imports, also inside functions; what only a type checker imports costs nothing."""
    tree = ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def height(module: str) -> int:
    if COMMANDS.fullmatch(module):
        return len(LAYERS)
    return HEIGHT[module.partition("/")[0]]


def test_every_module_has_a_place() -> None:
    """The table names every package and every module beside them."""
    assert {module.partition("/")[0] for module in modules()} <= HEIGHT.keys()


@pytest.mark.parametrize("module", modules())
def test_imports_go_one_way(module: str) -> None:
    """A module imports from its own package and from those above it in the table."""
    ours = [name.split(".")[1] for name in imports(module) if name.startswith("pytest_sglhw.")]
    below = {name for name in ours if name in HEIGHT and HEIGHT[name] > height(module)}

    assert below == set()


@pytest.mark.parametrize("module", modules())
def test_heavy_packages_stay_where_they_belong(module: str) -> None:
    """The process that runs pytest never imports torch on our account, whatever the machine has."""
    heavy = {name.partition(".")[0] for name in imports(module)} & HEAVY.keys()

    assert {name for name in heavy if HEAVY[name].isdisjoint({module, module.partition("/")[0]})} == set()


def test_the_walk_sees_imports_inside_functions() -> None:
    """A lazy import is still an import: the lanes' hooks import the recorder where they need it."""
    assert "pytest_sglhw.report.recorder.LANE_FACTS" in set(imports("lanes/hooks"))
