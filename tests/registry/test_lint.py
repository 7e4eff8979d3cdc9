"""The lint of a registry says what is wrong with a row, and nothing about a good one."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sglhw.registry.lint import problems
from pytest_sglhw.registry.loading import built_in

GOOD: dict[str, Any] = {
    "name": "mine",
    "summary": "my kernels",
    "platforms": {"cuda": "0.5.9"},
    "archs": {"cuda": ("sm90",)},
    "probe": {"module": "mine", "ops": ("mine::copy",), "check": "mine.probe:run"},
    "signals": ({"exception": "mine.Refused", "match": "no kernels"},),
}


def said_of(**columns: Any) -> list[str]:
    registry = built_in()
    registry.origin = "a test"
    registry.add_capability({**GOOD, **columns})
    return problems(registry)


def signal(exception: str, match: str, warning: bool = False) -> tuple[dict[str, Any], ...]:
    return ({"exception": exception, "match": match, "warning": warning},)


def test_the_built_in_rows_and_a_good_one_of_ours_pass() -> None:
    """Nothing is said of rows that are fine."""
    assert said_of() == []


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"platforms": {}, "archs": {}}, "no platform has it"),
        (
            {"platforms": {"cude": ""}, "archs": {}},
            "platform 'cude' is not known. Valid: cpu, cuda, hpu, mps, musa, npu, rocm, xpu.",
        ),
        (
            {"platforms": {"cuda": "next"}},
            "'next' is not a release since which cuda counts. Valid: '' or like '0.5.23'.",
        ),
        ({"archs": {"rocm": ("gfx942",)}}, "archs are given for 'rocm', which is not one of its platforms (cuda)"),
        ({"probe": None}, "it has no probe: nothing can find out whether it is there"),
        ({"probe": {}}, "its probe asks nothing"),
        (
            {"probe": {"module": "mine", "ops": ("copy",)}},
            "'copy' is not the name of an operator. Valid: like 'sgl_kernel::transfer_kv_direct'.",
        ),
        (
            {"probe": {"ops": ("mine::copy",)}},
            "its probe asks for operators, but imports no module that registers them",
        ),
        ({"probe": {"check": "m:f", "names": ("Pool",)}}, "its probe asks for the name 'Pool', but of no module"),
        ({"probe": {"check": "mine.run"}}, "'mine.run' is not a check. Valid: 'package.module:function'."),
        ({"signals": signal("Runtime Error", "no")}, "'Runtime Error' is not the dotted name of a class"),
        ({"signals": signal("RuntimeError", ".*")}, "the pattern '.*' of RuntimeError matches any text"),
        ({"signals": signal("UserWarning", "no")}, "UserWarning is a warning, and its row says otherwise"),
        ({"signals": signal("ValueError", "no", True)}, "ValueError is not a warning, and its row says otherwise"),
        (
            {"signals": signal("ValueError", "(")},
            "the pattern '(' of ValueError is not valid: missing ), unterminated subpattern at position 0",
        ),
    ],
)
def test_each_problem_is_said_with_name_and_origin(columns: dict[str, Any], expected: str) -> None:
    """A row that can't mean what it says is named with who added it, what was found and what is valid."""
    assert said_of(**columns) == [f"mine (a test): {expected}"]
