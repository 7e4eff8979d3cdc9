"""docs/kernels.md names every function and every text of an error."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from pytest_sglhw import kvcacheio

DOCUMENT = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text(encoding="utf-8")
RAISERS = {"require", "IndexError", "NotImplementedError", "_check_equal", "require_cpu"}


def texts(source):
    """Return the literal parts of the texts that a module raises."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RAISERS:
            for part in ast.walk(ast.Tuple(elts=node.args)):
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and len(part.value) > 4:
                    yield part.value.strip()


@pytest.mark.parametrize("path", sorted(Path(kvcacheio.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_texts(path):
    """A text that a user may see can be looked up."""
    flat = re.sub(r"\s+", " ", DOCUMENT)
    assert [text for text in texts(path.read_text(encoding="utf-8")) if text not in flat] == []


def test_functions():
    """Every public function has its line."""
    assert [name for name in kvcacheio.__all__ if f"`{name}`" not in DOCUMENT] == []
