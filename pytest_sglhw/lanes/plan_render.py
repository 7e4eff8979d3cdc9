"""The plan as a table for the terminal, as markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from pytest_sglhw.record import printable
from pytest_sglhw.report.markdown import inline

if TYPE_CHECKING:
    from pytest_sglhw.lanes.plan import Plan, Row
    from pytest_sglhw.lanes.promise import Word

#: Major and minor version of the JSON document.
SCHEMA = "1.0"

WORDS: tuple[Word, ...] = ("run", "raise", "skip", "not promised")


def _asks(row: Row) -> str:
    return row.requirement or "asks nothing"


def problems(plan: Plan) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Give the lists that make a plan fail, and last the files that this machine skips whole: heading, entries."""
    yield "executed in no lane", [(row.nodeid, _asks(row)) for row in plan.nowhere]
    yield "contradictory requirements", [(row.nodeid, row.contradiction or "") for row in plan.contradictory]
    yield "files that can't be collected", plan.failed
    yield "files that are skipped whole on this machine, so that their tests are not planned", plan.skipped


def table(plan: Plan) -> str:
    """Render for the terminal: one line for each test, its words first, then the lists."""
    return "".join(f"{line}\n" for line in _lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    widths = [max(len(name), *map(len, WORDS)) for name in plan.columns]
    yield "  ".join((*map(str.ljust, plan.columns, widths), "test"))
    for row in plan.rows:
        asks = f"  ({row.requirement})" if row.requirement else ""
        yield "  ".join((*map(str.ljust, row.words, widths), printable(row.nodeid + asks)))
    yield ""
    for name, counts in zip(plan.columns, plan.counts(), strict=True):
        yield f"{name}: {', '.join(f'{counts[word]} {word}' for word in WORDS)}"
    for heading, entries in problems(plan):
        if entries:
            yield f"\n{heading}: {len(entries)}"
            yield from (f"  {printable(what)}: {printable(why)}" for what, why in entries)


def markdown(plan: Plan) -> str:
    """Render as GitHub markdown: the lists first, then the table."""
    return "".join(f"{line}\n" for line in _markdown_lines(plan))


def _markdown_lines(plan: Plan) -> Iterator[str]:
    yield "# Plan"
    for heading, entries in problems(plan):
        if entries:
            yield f"\n## {heading[0].upper()}{heading[1:]}: {len(entries)}\n"
            yield from (f"- {inline(what)}: {inline(why)}" for what, why in entries)
    yield "\n## Tests\n"
    yield _row(("test", "requirement", *map(inline, plan.columns)))
    yield _row(("---",) * (len(plan.columns) + 2))
    for row in plan.rows:
        yield _row((inline(row.nodeid), inline(row.requirement), *row.words))


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def as_json(plan: Plan) -> str:
    """Render as one JSON document; its keys are in docs/lanes.md."""
    tests = [
        {"nodeid": row.nodeid, "requirement": row.requirement, "lanes": dict(zip(plan.columns, row.words, strict=True))}
        for row in plan.rows
    ]
    document = {
        "schema": SCHEMA,
        "lanes": {
            name: {word: counts[word] for word in WORDS}
            for name, counts in zip(plan.columns, plan.counts(), strict=True)
        },
        "tests": tests,
        "nowhere": [row.nodeid for row in plan.nowhere],
        "contradictory": {row.nodeid: row.contradiction for row in plan.contradictory},
        "failed_files": dict(plan.failed),
        "skipped_files": dict(plan.skipped),
    }
    return json.dumps(document, indent=1) + "\n"


RENDERERS: Mapping[str, Callable[[Plan], str]] = {"table": table, "markdown": markdown, "json": as_json}
