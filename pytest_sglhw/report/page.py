"""The matrix as one self-contained HTML page.

Everything is in the file; nothing is fetched, and a content policy forbids it. The lists and small tables are plain
HTML; the matrix itself is drawn by ``assets/page.js`` from embedded data, row by row as it comes into sight, and stands
as plain HTML in ``<noscript>`` for readers without scripts.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pytest_sglhw.report.findings import FAIL_ON, Finding, Findings
from pytest_sglhw.report.matrix import Column, Matrix, label_of, name_of
from pytest_sglhw.report.outcomes import OUTCOMES
from pytest_sglhw.report.page_data import page_data
from pytest_sglhw.report.summary import MISSING, NOTHING, fakes, heading, headline, shown, status_of
from pytest_sglhw.report.transfer import TransferTable, transfer_tables

_ASSETS = Path(__file__).with_name("assets")

#: Items of one list that stand in the page; the matrix can be filtered by any list.
ITEMS_SHOWN = 200

#: A list up to this length is open from the start if it is one that a run can fail on.
OPEN_UP_TO = 20


def render(matrix: Matrix, findings: Findings) -> str:
    """Render the page."""
    style, script = ((_ASSETS / name).read_text("utf-8") for name in ("page.css", "page.js"))
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">\n',
            f"<title>Hardware matrix</title>\n<style>{style}</style>\n</head>\n",
            "<body>\n<header>\n<h1>Hardware matrix</h1>\n",
            f"<p>{text(headline(matrix, findings))}</p>\n",
            *(f'<p class="warning">{text(fake)}</p>\n' for fake in fakes(matrix)),
            "</header>\n<main>\n",
            *_lanes(matrix),
            *_lists(matrix, findings),
            *_matrix(matrix, findings),
            *_transfers(matrix),
            "</main>\n",
            f'<script type="application/json" id="data">{embedded(page_data(matrix, findings))}</script>\n',
            f"<script>{script}</script>\n</body>\n</html>\n",
        ]
    )


def text(value: str) -> str:
    """Escape text for HTML, in an element or in a quoted attribute; control characters are shown, not sent."""
    return html.escape("".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in value))


def embedded(data: Any) -> str:
    """Encode data for a ``script`` element: nothing in it can end the element or begin a comment."""
    encoded = json.dumps(data, separators=(",", ":"))
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(style: str, script: str) -> str:
    hashes = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (style, script))
    styles, scripts = (f"'sha256-{digest}'" for digest in hashes)
    return f"default-src 'none'; style-src {styles}; script-src {scripts}; base-uri 'none'; form-action 'none'"


def _lanes(matrix: Matrix) -> Iterator[str]:
    words = [word for word in OUTCOMES if any(word in column.counts() for column in matrix.columns)]
    yield '<section aria-labelledby="lanes">\n<h2 id="lanes">Lanes</h2>\n'
    yield '<div class="scroll"><table class="plain">\n<thead><tr>'
    yield "".join(f'<th scope="col">{head}</th>' for head in ("lane", "machine", "status", "", *map(_spoken, words)))
    yield "</tr></thead>\n<tbody>\n"
    for column in matrix.columns:
        counts = column.counts()
        machine = text(("faked " if column.fake else "") + column.machine)
        status = f'<span class="missing">{MISSING}</span>' if column.missing else text(status_of(column))
        numbers = "".join(
            f'<td class="number {word}">{counts[word]}</td>' if counts[word] else f'<td class="number">{NOTHING}</td>'
            for word in words
        )
        yield f'<tr><th scope="row">{text(column.lane)}</th><td>{machine}</td><td>{status}</td>'
        yield f"<td>{_bar(column)}</td>{numbers}</tr>\n"
    yield "</tbody></table></div>\n</section>\n"


def _bar(column: Column) -> str:
    """The counts as a bar; the numbers beside it say the same."""
    counts = column.counts()
    words = [word for word in OUTCOMES if counts[word]]
    starts = accumulate((counts[word] for word in words), initial=0)
    parts = (
        f'<rect class="{word}" x="{at}" width="{counts[word]}" height="1"/>'
        for word, at in zip(words, starts, strict=False)
    )
    box = f'viewBox="0 0 {counts.total() or 1} 1" preserveAspectRatio="none"'
    return f'<svg class="bar" {box} aria-hidden="true">{"".join(parts)}</svg>'


def _lists(matrix: Matrix, findings: Findings) -> Iterator[str]:
    if not findings:
        return
    tests = {label_of(test) for test in matrix.tests}
    yield '<section aria-labelledby="lists">\n<h2 id="lists">To look at</h2>\n'
    for word, found in findings.items():
        opened = " open" if word in FAIL_ON and len(found) <= OPEN_UP_TO else ""
        yield f'<details{opened} id="list-{word}"><summary>{text(heading(word, len(found)))}</summary>\n<ul>\n'
        yield from (_item(finding, tests) for finding in found[:ITEMS_SHOWN])
        if len(found) > ITEMS_SHOWN:
            rest = f"and {len(found) - ITEMS_SHOWN} more"
            yield f'<li><a href="#list={word}">{rest}: show them all in the matrix</a></li>\n'
        yield "</ul>\n</details>\n"
    yield "</section>\n"


def _item(finding: Finding, tests: set[str]) -> str:
    what = f'<span class="id">{text(finding.what)}</span>'
    if finding.what in tests:
        lane = f"&amp;lane={_query(finding.where)}" if finding.where else ""
        what = f'<a href="#test={_query(finding.what)}{lane}">{what}</a>'
    where = f" ({text(finding.where)})" if finding.where else ""
    return f"<li>{what}{where}: {text(finding.why)}</li>\n"


def _query(value: str) -> str:
    return quote(value, safe="", errors="replace")


def _matrix(matrix: Matrix, findings: Findings) -> Iterator[str]:
    lanes = "".join(f'<option value="{text(lane)}">{text(lane)}</option>' for lane in matrix.lanes())
    lists = "".join(f'<option value="{word}">{word}</option>' for word in findings if word not in ("files", "problems"))
    words = [word for word in OUTCOMES if any(word in column.counts() for column in matrix.columns)]
    chip = '<button type="button" class="chip {0}" value="{0}" aria-pressed="false"><span>{1}</span></button>'
    chips = "".join(chip.format(word, _spoken(word)) for word in words)
    yield '<section aria-labelledby="matrix">\n<h2 id="matrix">Tests</h2>\n<div id="tools" hidden>\n'
    yield '<input id="q" type="search" placeholder="Filter by name" aria-label="Filter by name" autocomplete="off">\n'
    yield f'<label>Lane <select id="lane"><option value="">all</option>{lanes}</select></label>\n'
    yield f'<label>List <select id="list"><option value="">all tests</option>{lists}</select></label>\n'
    yield f'<span class="chips" role="group" aria-label="Outcomes">{chips}</span>\n'
    yield '<span><button type="button" id="fold">Fold all</button> '
    yield '<button type="button" id="unfold">Unfold all</button></span>\n'
    yield '<span id="count" class="soft" role="status"></span>\n</div>\n'
    yield '<div id="grid" hidden><table role="grid" aria-labelledby="matrix">'
    yield "<colgroup></colgroup><thead><tr></tr></thead><tbody></tbody></table></div>\n"
    yield '<aside id="detail" role="dialog" aria-labelledby="detail-title" hidden>'
    yield '<button type="button" class="close" id="detail-close">Close</button><div id="detail-body"></div></aside>\n'
    yield from _plain_matrix(matrix)
    yield "</section>\n"


def _plain_matrix(matrix: Matrix) -> Iterator[str]:
    """The whole matrix without scripts. With scripts a browser takes ``noscript`` for text and builds nothing.

    It is most of a large page, so it does without the end tags that HTML lets one leave out.
    """
    yield '<noscript>\n<div class="scroll"><table class="plain">\n<thead><tr><th scope="col">test</th>'
    yield "".join(f'<th scope="col">{text(column.label)}</th>' for column in matrix.columns)
    yield "</tr></thead>\n"
    for group, tests in matrix.groups():
        yield f'<tbody>\n<tr><th scope="rowgroup" colspan="{len(matrix.columns) + 1}">{text(group)}</th></tr>\n'
        for test in tests:
            cells = "".join(_plain_cell(column, shown(column.cells.get(test))) for column in matrix.columns)
            yield f'<tr><th scope="row" class="id">{text(name_of(test))}{cells}\n'
        yield "</tbody>\n"
    yield "</table></div>\n</noscript>\n"


def _plain_cell(column: Column, word: str) -> str:
    word = MISSING if column.missing else word
    plain = word in (NOTHING, "passed")
    return f"<td>{word}" if plain else f'<td class="{word.rstrip("*")}">{_spoken(word)}'


def _transfers(matrix: Matrix) -> Iterator[str]:
    found = transfer_tables(matrix)
    if not found:
        return
    yield '<section aria-labelledby="transfers">\n<h2 id="transfers">Transfer matrix</h2>\n'
    yield '<p class="soft">Kernel, layout and dtype by page size, for each provider and lane.</p>\n'
    for table in found:
        yield from _transfer(table)
    yield "</section>\n"


def _transfer(table: TransferTable) -> Iterator[str]:
    yield f'<h3>{text(table.title)}</h3>\n<div class="scroll"><table class="plain">\n<thead><tr>'
    yield '<th scope="col">kernel</th><th scope="col">layout</th><th scope="col">dtype</th>'
    yield "".join(f'<th scope="col">page {text(page_size)}</th>' for page_size in table.heads)
    yield "</tr></thead>\n<tbody>\n"
    for row in table.rows:
        kernel, layout, dtype = map(text, row)
        yield f'<tr><th scope="row" class="id">{kernel}</th><td>{layout}</td><td>{dtype}</td>'
        for page_size in table.heads:
            cell = table.cells.get((*row, page_size))
            if cell is None:
                yield f"<td>{NOTHING}</td>"
            else:
                link = (
                    f"#test={_query(label_of((table.provider, *row, page_size)))}&amp;lane={_query(table.column.label)}"
                )
                yield f'<td><a class="{cell.row.outcome}" href="{link}">{_spoken(shown(cell))}</a></td>'
        yield "</tr>\n"
    yield "</tbody></table></div>\n"


def _spoken(word: str) -> str:
    return word.replace("_", " ")
