"""The matrix as one JSON document, for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_sglhw.report.matrix import Cell, Column, Matrix, group_of, label_of
from pytest_sglhw.report.merge import MATRIX_KEYS, Row, Run, TestKey
from pytest_sglhw.report.recorder import SCHEMA

if TYPE_CHECKING:
    from pytest_sglhw.report.findings import Findings


def render(matrix: Matrix, findings: Findings) -> str:
    """Render everything: columns with their runs, tests with their cells, lists."""
    document = {
        "schema": SCHEMA,
        "columns": [_column(column) for column in matrix.columns],
        "tests": [_test(matrix, test) for test in matrix.tests],
        "findings": {word: [finding._asdict() for finding in found] for word, found in findings.items()},
    }
    return json.dumps(document, separators=(",", ":")) + "\n"


def _column(column: Column) -> dict[str, Any]:
    return {
        "label": column.label,
        "lane": column.lane,
        "missing": column.missing,
        **column.signature._asdict(),
        "fake": column.fake,
        "counts": column.counts(),
        "runs": [_run(run) for run in column.runs],
        "files": [file._asdict() for file in column.files.values()],
    }


def _run(run: Run) -> dict[str, Any]:
    keys = ("run_id", "shard", "attempt", "time", "fake", "ended", "exit_status", "environment", "promise")
    return {key: getattr(run, key) for key in keys} | {"files": sorted(run.paths)}


def _test(matrix: Matrix, test: TestKey) -> dict[str, Any]:
    named = {} if isinstance(test, str) else dict(zip(MATRIX_KEYS, test, strict=True))
    cells = {column.label: _cell(column.cells[test]) for column in matrix.columns if test in column.cells}
    return {"id": label_of(test), "group": group_of(test), **named, "cells": cells}


def _cell(cell: Cell) -> dict[str, Any]:
    shown = _row(cell.row)
    if cell.beside:
        shown["beside"] = [_row(row) for row in cell.beside]
    if cell.earlier:
        shown["earlier"] = [_row(row) for row in cell.earlier]
    return shown


def _row(row: Row) -> dict[str, Any]:
    """A result without what its test says already and without what it does not know."""
    return {
        key: value for key, value in row._asdict().items() if key not in ("seq", "key") and value not in (None, "", ())
    }
