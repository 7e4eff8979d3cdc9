"""``sglhw capabilities``: the registry as a table."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pytest_sglhw.errors import RegistryError
from pytest_sglhw.record import as_dict
from pytest_sglhw.registry.lint import problems
from pytest_sglhw.registry.loading import load

if TYPE_CHECKING:
    import argparse

    from pytest_sglhw.registry.capabilities import Capability

#: Of the JSON form, as of every other record: a reader refuses another major one.
SCHEMA = "1.0"

_COLUMNS = ("mark", "what", "platforms", "documented refusal")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sglhw capabilities``."""
    parser.add_argument(
        "--format", choices=tuple(FORMATS), default="terminal", help="what to write (default: terminal)"
    )
    parser.add_argument(
        "--check", action="store_true", help="look for rows that can't mean what they say; exit 1 if there are any"
    )


def run(args: argparse.Namespace) -> int:
    """Print the table, or with ``--check`` what is wrong with it, and return the exit status."""
    try:
        registry = load()
    except RegistryError as error:
        print(f"sglhw capabilities: {error}", file=sys.stderr)
        return 2
    rows = list(registry.capabilities.values())
    if args.check:
        found = problems(registry)
        print("\n".join(found) if found else f"{len(rows)} capabilities, nothing wrong with them")
        return 1 if found else 0
    sys.stdout.write(FORMATS[args.format](rows))
    return 0


def as_terminal(rows: Iterable[Capability]) -> str:
    """Render a line for each capability and one below it for each documented refusal."""
    lines: list[str] = []
    for row in rows:
        added = "" if row.origin == "built in" else f" [{row.origin}]"
        lines += [f"{row.mark}: {row.summary}{added}", f"    on {'; '.join(_platforms(row))}"]
        lines += [f"    refused by {refusal}" for refusal in _refusals(row)]
    return "\n".join([*lines, ""])


def as_markdown(rows: Iterable[Capability]) -> str:
    """Render a table of GitHub's Markdown."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for row in rows:
        refusals = "<br>".join(_code(refusal) for refusal in _refusals(row))
        cells = (_code(row.mark), _cell(row.summary), "<br>".join(map(_cell, _platforms(row))), refusals)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def as_json(rows: Iterable[Capability]) -> str:
    """Render every column of every row, for programs."""
    return json.dumps({"schema": SCHEMA, "capabilities": [_record(row) for row in rows]}, indent=2) + "\n"


FORMATS: dict[str, Callable[[Iterable[Capability]], str]] = {
    "terminal": as_terminal,
    "markdown": as_markdown,
    "json": as_json,
}


def _platforms(row: Capability) -> list[str]:
    """Name each platform with what narrows it: ``xpu (SGLang 0.5.21)``, ``cuda (sm90, sm100)``."""
    named = []
    for platform, since in row.platforms.items():
        narrowing = [*row.archs.get(platform, ()), *([f"SGLang {since}"] if since else [])]
        named.append(f"{platform} ({', '.join(narrowing)})" if narrowing else platform)
    return named


def _refusals(row: Capability) -> list[str]:
    return [f"{signal.exception}: {signal.match}" for signal in row.signals]


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _record(row: Capability) -> dict[str, Any]:
    return {**as_dict(row), "mark": row.mark}
