"""``sglhw merge``: reports of several lanes as one hardware matrix."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from pytest_sglhw.record import printable
from pytest_sglhw.report.findings import FAIL_ON, Finding, Findings, find
from pytest_sglhw.report.matrix import Matrix, build
from pytest_sglhw.report.merge import Run, Runs, merge
from pytest_sglhw.report.reader import read_file
from pytest_sglhw.report.terminal import line_of

FORMATS = {
    "terminal": "pytest_sglhw.report.terminal",
    "markdown": "pytest_sglhw.report.markdown",
    "html": "pytest_sglhw.report.page",
    "json": "pytest_sglhw.report.as_json",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sglhw merge``."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="report of --sglhw-report, or JUnit XML")
    parser.add_argument(
        "--format", choices=tuple(FORMATS), default="terminal", help="what to write (default: terminal)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write to FILE (default: standard output)")
    parser.add_argument(
        "--expect", action="extend", type=_names, default=[], metavar="LANE,...",
        help="lanes that have to be there: one that sent nothing is a column 'missing'",
    )  # fmt: skip
    parser.add_argument(
        "--baseline", action="extend", nargs="+", default=[], metavar="FILE", help="earlier reports to compare with"
    )
    parser.add_argument(
        "--fail-on", action="extend", type=_fail_on, default=[], metavar="WORD,...",
        help=f"exit 1 if one of these lists is not empty: {', '.join(FAIL_ON)}",
    )  # fmt: skip


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _fail_on(text: str) -> list[str]:
    words = _names(text)
    for word in words:
        if word not in FAIL_ON:
            raise argparse.ArgumentTypeError(f"{word!r} is not a list to fail on. Valid: {', '.join(FAIL_ON)}.")
    return words


def run(args: argparse.Namespace) -> int:
    """Merge, render, and return the exit status."""
    seen: dict[Any, Any] = {}
    problems: list[Finding] = []
    runs = _read(args.files, seen, problems)
    if not runs:
        return _refused(problems, "none of the files could be read as a report: there is nothing to merge.")
    baseline = _read(args.baseline, seen, problems) if args.baseline else None
    if "lost" in args.fail_on and not baseline:
        missing = "--fail-on lost compares with a baseline, and there is none that can be read: give --baseline FILE."
        return _refused(problems, missing)
    matrix = build(runs, args.expect)
    findings = find(matrix, build(baseline) if baseline else None, problems)
    _say(problems)
    if not _write(args, matrix, findings):
        return 2
    return _exit_status(args.fail_on, findings)


def _read(paths: Sequence[str], seen: dict[Any, Any], problems: list[Finding]) -> Runs:
    runs: list[Run] = []
    for path in dict.fromkeys(paths):
        reading = read_file(path, seen)
        runs += reading.runs
        problems += [Finding(path, "", problem) for problem in reading.problems]
    return merge(runs)


def _write(args: argparse.Namespace, matrix: Matrix, findings: Findings) -> bool:
    text = import_module(FORMATS[args.format]).render(matrix, findings)
    # Ids may hold what no encoding takes (a lone surrogate): it is shown escaped.
    data = text.encode("utf-8", "backslashreplace")
    if args.output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return True
    try:
        os.makedirs(os.path.dirname(os.path.abspath(args.output)), exist_ok=True)
        with open(args.output, "wb") as file:
            file.write(data)
    except OSError as error:
        print(f"sglhw merge: {args.output!r} (-o) can't be written: {error.strerror or error}.", file=sys.stderr)
        return False
    return True


def _exit_status(words: Iterable[str], findings: Findings) -> int:
    hits = [f"{word} ({len(findings[word])})" for word in dict.fromkeys(words) if word in findings]
    if hits:
        print(f"sglhw merge: failed on {', '.join(hits)}", file=sys.stderr)
    return 1 if hits else 0


def _say(problems: Iterable[Finding]) -> None:
    for problem in problems:
        print(f"sglhw merge: {printable(line_of(problem))}", file=sys.stderr)


def _refused(problems: Iterable[Finding], why: str) -> int:
    _say(problems)
    print(f"sglhw merge: {why}", file=sys.stderr)
    return 2
