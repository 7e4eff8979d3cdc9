"""``sglhw merge``: lists, exit statuses, bad input, and that nothing in a report can be more than text."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_sglhw.cli import main
from pytest_sglhw.record import printable
from pytest_sglhw.report import markdown
from pytest_sglhw.report.findings import find
from pytest_sglhw.report.markdown import inline
from pytest_sglhw.report.matrix import build
from pytest_sglhw.report.merge import merge
from pytest_sglhw.report.reader import read_file

from .helpers import collect, end, lane, result, session, start, write


def _merge(capsys, *arguments):
    """Run the command; return the exit status, the findings and what it said on standard error."""
    status = main(["merge", *map(str, arguments), "--format", "json"])
    said = capsys.readouterr()
    document = json.loads(said.out) if said.out else {"findings": {}}
    found = {
        word: [(finding["what"], finding["where"], finding["why"]) for finding in findings]
        for word, findings in document["findings"].items()
    }
    return status, found, said.err


RECORDED = Path(__file__).with_name("recorded")


def test_recorded_lanes(capsys):
    """Three recorded reports give the matrix that is known of their suite."""
    paths = [RECORDED / f"{name}.jsonl" for name in ("cuda", "rocm", "cpu")]

    status, found, said = _merge(capsys, *paths, "--expect", "xpu", "--fail-on", "missing,nowhere")

    assert (status, said) == (1, "sglhw merge: failed on missing (1), nowhere (3)\n")
    assert [what for what, _, _ in found["nowhere"]] == [
        "test_kv.py::test_later", "test_kv.py::test_needs_two_platforms", "test_whole.py",
    ]  # fmt: skip
    assert found["failed"] == [
        ("test_kv.py::test_refuses_elsewhere", "cuda", "failed: RuntimeError: this path needs CUDA"),
        ("test_kv.py::test_rocm_path", "rocm", "failed: AssertionError: fell back to the slow path"),
    ]
    assert sorted(found) == ["failed", "files", "missing", "nowhere"]


def test_nothing_to_report(tmp_path, capsys):
    """Lanes without a finding give none, and exit 0 whatever is to fail on."""
    paths = lane(tmp_path, "cuda", result("t.py::a")), lane(tmp_path, "rocm", result("t.py::a", "raised"))

    everything = "failed,crashed,missing,nowhere,lost,contract"
    merged = _merge(capsys, *paths, "--fail-on", everything, "--expect", "cuda,rocm", "--baseline", paths[0])

    assert merged == (0, {}, "")


FAILING = {
    "failed": [result("t.py::a", "failed", reason="AssertionError: no\nmore")],
    "failed-error": [result("t.py::a", "error", phase="setup", reason="RuntimeError: no")],
    "failed-file": [collect("u.py", "failed", "ImportError: no"), result("t.py::a")],
    "crashed": [result("t.py::a", "crashed", reason="worker 'gw0' crashed")],
    "nowhere": [result("t.py::a", "skipped", reason="needs rocm")],
    "nowhere-file": [collect("u.py", "skipped", "no module x"), result("t.py::a")],
}


@pytest.mark.parametrize(("case", "finding"), [
    ("failed", ("t.py::a", "cuda", "failed: AssertionError: no")),
    ("failed-error", ("t.py::a", "cuda", "error in setup: RuntimeError: no")),
    ("failed-file", ("u.py", "cuda", "failed, collected 0, executed 0: ImportError: no")),
    ("crashed", ("t.py::a", "cuda", "crashed: worker 'gw0' crashed")),
    ("nowhere", ("t.py::a", "", "cuda: skipped: needs rocm")),
    ("nowhere-file", ("u.py", "", "the whole file: skipped")),
])  # fmt: skip
def test_fail_on(tmp_path, capsys, case, finding):
    """Each list fails the command only where it is asked for, and says on what."""
    word = case.partition("-")[0]
    path = lane(tmp_path, "cuda", *FAILING[case], exit_status=1)

    asked = _merge(capsys, path, "--fail-on", word)
    not_asked = _merge(capsys, path, "--fail-on", "missing")

    assert asked[0] == 1
    assert asked[1][word] == [finding]
    assert asked[2] == f"sglhw merge: failed on {word} (1)\n"
    assert (not_asked[0], not_asked[2]) == (0, "")


def test_executed_somewhere_is_not_nowhere(tmp_path, capsys):
    """A test that one lane executes is not nowhere, whatever the others did."""
    paths = lane(tmp_path, "cuda", result("t.py::a", "skipped")), lane(tmp_path, "rocm", result("t.py::a", "failed"))

    assert "nowhere" not in _merge(capsys, *paths)[1]


def test_cut_off_report(tmp_path, capsys):
    """A report without an end counts as crashed, and the test in which it ends is named."""
    path = write(tmp_path / "r.jsonl", [session(), start("t.py::a"), result("t.py::a"), start("t.py::b")])

    status, found, _ = _merge(capsys, path, "--fail-on", "crashed")

    assert status == 1
    assert found["crashed"] == [
        ("cuda", "", "the report is cut off after 1 tests"),
        ("t.py::b", "cuda", "crashed: the report ends in this test: its process was killed or died"),
    ]


def test_later_attempt_replaces_a_cut_off_one(tmp_path, capsys):
    """A cut-off attempt that a whole one replaced does not fail the merge; it stays visible."""
    cut = write(tmp_path / "r.jsonl", [session(run_id="r1"), start("t.py::a")])
    again = lane(tmp_path, "cuda", result("t.py::a"), run_id="r2", attempt=2)

    status, found, _ = _merge(capsys, cut, again, "--fail-on", "crashed,failed,nowhere")

    assert (status, found) == (0, {"changed": [("t.py::a", "cuda", "crashed then passed")]})


def test_missing_lane_and_shard(tmp_path, capsys):
    """An expected lane that sent nothing is missing; so is a shard whose brothers are there."""
    path = lane(tmp_path, "cuda", result("t.py::a"), shard="1/3")

    status, found, _ = _merge(capsys, path, "--expect", "cuda,rocm", "--expect", "xpu", "--fail-on", "missing")

    assert status == 1
    assert found["missing"] == [
        ("cuda, shard 2/3", "", "the lane's other shards are here"),
        ("cuda, shard 3/3", "", "the lane's other shards are here"),
        ("rocm", "", "expected, and sent nothing"),
        ("xpu", "", "expected, and sent nothing"),
    ]


def test_contract_over_shards(tmp_path, capsys):
    """The minima of a lane hold for its shards together, in all and by mark."""
    promise = {"platform": "cuda", "min_executed": 3, "min_executed_by_mark": {"requires_kv4": 2, "cuda_only": 1}}
    shards = [
        lane(tmp_path, "cuda", result("t.py::a", marks=["requires_kv4"]), run_id="r1", shard="1/2", promise=promise),
        lane(tmp_path, "cuda", result("t.py::b", marks=["cuda_only"]),
             result("t.py::c", "skipped", marks=["requires_kv4"]), run_id="r2", shard="2/2", promise=promise),
    ]  # fmt: skip

    status, found, _ = _merge(capsys, *shards, "--fail-on", "contract")

    assert status == 1
    assert found["contract"] == [
        ("cuda", "", "min_executed = 3, executed 2"),
        ("cuda", "", "min_executed_by_mark.requires_kv4 = 2, executed 1"),
    ]


def test_contract_that_the_run_found_broken(tmp_path, capsys):
    """What the run itself found broken, and a lane that was refused before any test, are in the list."""
    path = write(tmp_path / "a.jsonl", [session(), end(1, broken_promises=["t.py::a skipped: platform"])])
    refused = write(tmp_path / "b.jsonl", [session("rocm"), end(4)])

    _, found, _ = _merge(capsys, path, refused)

    assert found["contract"] == [
        ("cuda", "", "t.py::a skipped: platform"),
        ("rocm", "", "the run ended with exit status 4 before any test"),
    ]


def test_lost(tmp_path, capsys):
    """Executed in the baseline and not any more: skipped now, or in no report; what still runs is not lost."""
    for name in ("before", "now"):
        (tmp_path / name).mkdir()
    before = lane(tmp_path / "before", "cuda", *(result(f"t.py::{name}") for name in "abc"))
    now = lane(tmp_path / "now", "cuda", result("t.py::a"), result("t.py::b", "skipped", reason="needs rocm"))

    status, found, _ = _merge(capsys, now, "--baseline", before, "--fail-on", "lost")

    assert status == 1
    assert found["lost"] == [
        ("t.py::b", "cuda", "now skipped: needs rocm"),
        ("t.py::c", "cuda", "now in no report"),
    ]


def test_lost_in_one_lane(tmp_path, capsys):
    """A test that one lane lost is lost there, though another lane executes it; a renamed lane loses nothing."""
    for name in ("before", "now"):
        (tmp_path / name).mkdir()
    before = [lane(tmp_path / "before", name, result("t.py::a")) for name in ("cuda", "old-name")]
    now = [
        lane(tmp_path / "now", "cuda", result("t.py::a", "skipped")),
        lane(tmp_path / "now", "new-name", result("t.py::a")),
    ]

    _, found, _ = _merge(capsys, *now, "--baseline", *before)

    assert found["lost"] == [("t.py::a", "cuda", "now skipped; still executed in another lane")]


def test_unnamed_lanes_lose_nothing_by_their_file_names(tmp_path, capsys):
    """Reports that name no lane are compared as one, whatever their files are called."""
    old = write(tmp_path / "monday.jsonl", [session(None, run_id="r1"), result("t.py::a"), end()])
    new = write(tmp_path / "tuesday.jsonl", [session(None, run_id="r2"), result("t.py::a"), end()])

    assert _merge(capsys, new, "--baseline", old, "--fail-on", "lost") == (0, {}, "")


def test_contradictions(tmp_path, capsys):
    """Raised here and passed there on one platform, and passed and failed on one kind of machine, are listed."""
    machine = {"platform": "cuda", "devices": [{"arch": "sm90"}], "versions": {"runtime": "12.8"}}
    one = lane(tmp_path, "one", result("t.py::a", "raised"), result("t.py::b"), environment=machine)
    two = lane(tmp_path, "two", result("t.py::a"), result("t.py::b", "failed"), environment=machine)
    other = lane(tmp_path, "rocm", result("t.py::a"), result("t.py::b", "failed"))

    _, found, _ = _merge(capsys, one, two, other)

    assert found["contradictions"] == [
        ("t.py::a", "one, two", "raised and passed, all on cuda"),
        ("t.py::b", "one, two", "passed and failed, all on cuda sm90 12.8"),
    ]


def test_files_that_gave_no_test(tmp_path, capsys):
    """A file that collected nothing is listed with its zeros (no test of it can fail)."""
    path = lane(tmp_path, "cuda", result("t.py::a"), collect("u.py", "empty", "holds no test"))

    _, found, _ = _merge(capsys, path)

    assert found == {"files": [("u.py", "cuda", "empty, collected 0, executed 0: holds no test")]}


def test_bad_files_are_named_and_the_rest_is_merged(tmp_path, capsys):
    """Broken, foreign and repeated files are named, on standard error and in the output; nothing else is lost."""
    good = lane(tmp_path, "cuda", result("t.py::a"))
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes((tmp_path / "cuda.jsonl").read_bytes())
    (tmp_path / "noise").write_bytes(b"\x00\xff")
    (tmp_path / "empty").write_bytes(b"")

    status, found, said = _merge(capsys, good, good, copy, tmp_path / "noise", tmp_path / "empty", tmp_path / "no")

    noise = (
        "is neither a report of pytest-sglhw nor JUnit XML: it begins with b'\\x00\\xff'. "
        "Give files that --sglhw-report or --junitxml wrote."
    )
    assert status == 0
    assert found == {
        "problems": [
            (str(tmp_path / "noise"), "", noise),
            (str(tmp_path / "empty"), "", "is empty: the run that was to write it never began"),
            (str(tmp_path / "no"), "", "can't be read: No such file or directory"),
            (good, "", f"the same run as {copy}: counted once"),
        ]
    }
    assert said.count("sglhw merge: ") == 3


@pytest.mark.parametrize(("arguments", "said"), [
    (["no.jsonl"], ["no.jsonl: can't be read: No such file or directory",
                    "none of the files could be read as a report: there is nothing to merge."]),
    (["r.jsonl", "--fail-on", "lost"],
     ["--fail-on lost compares with a baseline, and there is none that can be read: give --baseline FILE."]),
    (["r.jsonl", "-o", "r.jsonl/x"], ["'r.jsonl/x' (-o) can't be written: File exists."]),
])  # fmt: skip
def test_wrong_use(tmp_path, capsys, monkeypatch, arguments, said):
    """Nothing readable, no baseline and an impossible output exit with 2 and say what to do."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "r.jsonl", [session(), result("t.py::a"), end()])

    assert main(["merge", *arguments]) == 2
    assert capsys.readouterr().err == "".join(f"sglhw merge: {line}\n" for line in said)


def test_unknown_fail_on(capsys):
    """A word that is no list is refused with those that are."""
    with pytest.raises(SystemExit) as exit_:
        main(["merge", "r.jsonl", "--fail-on", "failed,slow"])

    assert exit_.value.code == 2
    assert capsys.readouterr().err.endswith(
        "error: argument --fail-on: 'slow' is not a list to fail on. "
        "Valid: missing, crashed, contract, failed, lost, nowhere.\n"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
SESSION_KEYS = ["run_id", "lane", "shard", "attempt", "time", "fake", "promise", "environment"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.dictionaries(st.sampled_from(SESSION_KEYS), JSON),
    st.dictionaries(st.sampled_from(["devices", "versions", "platform"]), JSON),
    st.dictionaries(st.sampled_from(["exit_status", "broken_promises", "counts"]), JSON),
)
def test_any_facts(tmp_path, facts, environment, last):
    """Whatever the facts of a run hold, the merge renders it in each format and loses no test."""
    records = [session(environment=environment) | facts, result("t.py::a"), end() | last]
    path = write(tmp_path / "r.jsonl", records)

    for format_ in ("terminal", "markdown", "html", "json"):
        assert main(["merge", path, "--format", format_, "-o", str(tmp_path / "out")]) == 0
        assert "t.py" in (tmp_path / "out").read_text()


def test_deep_nesting(tmp_path, capsys):
    """An environment nested so deep that no program wrote it is left out, and the rest is merged."""
    deep: dict[str, object] = {}
    for _ in range(400):
        deep = {"a": deep}

    status, found, _ = _merge(capsys, lane(tmp_path, "cuda", result("t.py::a"), environment=deep))

    assert (status, found) == (0, {})


@pytest.mark.parametrize("format_", ["terminal", "markdown", "html", "json"])
def test_formats(tmp_path, format_):
    """Each format goes to a file or, as a command of its own, to standard output, the same."""
    path = lane(tmp_path, "cuda", result("t.py::a", "failed"), result("t.py::b", reason="\ud800"))

    assert main(["merge", path, "--format", format_, "-o", str(tmp_path / "deep" / "out")]) == 0
    command = [sys.executable, "-m", "pytest_sglhw", "merge", path, "--format", format_]
    printed = subprocess.run(command, capture_output=True, check=True, timeout=60)

    assert printed.stdout == (tmp_path / "deep" / "out").read_bytes()
    assert b"t.py" in printed.stdout


def test_fake_is_shown(tmp_path):
    """A faked environment is said in every format."""
    path = lane(tmp_path, None, result("t.py::a"), run_id="r", fake="rocm:gfx942")
    for format_ in ("terminal", "markdown", "html", "json"):
        main(["merge", path, "--format", format_, "-o", str(tmp_path / format_)])

        assert "rocm:gfx942" in (tmp_path / format_).read_text(), format_


def test_terminal(tmp_path, capsys):
    """The terminal shows lists first, then lanes, then tests."""
    paths = [
        lane(tmp_path, "cuda", result("t.py::a"), result("t.py::b", "skipped", reason="needs rocm"), exit_status=0),
        lane(tmp_path, "rocm", result("t.py::a", "failed", reason="AssertionError: x"), exit_status=1),
    ]

    main(["merge", *paths, "--expect", "xpu"])

    assert capsys.readouterr().out == (
        "2 tests in 3 lanes: 1 missing, 1 failed, 1 nowhere\n"
        "\n"
        "Missing: lanes and shards that were expected and sent nothing (1)\n"
        "  xpu: expected, and sent nothing\n"
        "\n"
        "Failed (1)\n"
        "  t.py::a [rocm]: failed: AssertionError: x\n"
        "\n"
        "Nowhere: executed in no lane (1)\n"
        "  t.py::b: cuda: skipped: needs rocm\n"
        "\n"
        "Lanes\n"
        "  lane  machine         status   passed  failed  skipped\n"
        "  cuda  cuda sm90 12.8  exit 0   1       -       1\n"
        "  rocm  rocm sm90 12.8  exit 1   -       1       -\n"
        "  xpu                   missing  -       -       -\n"
        "\n"
        "Tests (-: not known in this lane)\n"
        "  test     cuda     rocm    xpu\n"
        "  t.py::a  passed   failed  missing\n"
        "  t.py::b  skipped  -       missing\n"
    )


def test_large_suites_are_folded_by_file(tmp_path, capsys):
    """A large suite is a line for each file, with what was executed and what did not go well."""
    results = [result(f"t.py::a{at}", "skipped" if at % 2 else "passed") for at in range(99)]

    main(["merge", lane(tmp_path, "cuda", *results, result("u.py::x", "failed"))])

    out = capsys.readouterr().out
    assert "  t.py  50/99\n" in out
    assert "  u.py  1/1, 1 failed\n" in out


def _rendered(tmp_path, results, limit=markdown.SIZE_LIMIT):
    matrix = build(merge(read_file(lane(tmp_path, "cuda", *results)).runs))
    return markdown.render(matrix, find(matrix), limit)


@pytest.mark.parametrize("limit", [1_000, 5_000, 50_000])
def test_markdown_stays_below_its_limit(tmp_path, limit):
    """Markdown that would be too large leaves out whole rows and says of what and how many."""
    results = [result(f"tests/test_{at}.py::test_é{at}", "failed", reason="x" * 80) for at in range(500)]

    page = _rendered(tmp_path, results, limit)

    assert len(page.encode()) <= limit
    assert "**Left out, since a job summary holds 1 MiB** (the HTML page has everything):" in page
    assert re.search(r"- `?Failed \(500\): (all|\d+ of) 500 rows", page)
    assert page.count("<details") == page.count("</details>")


def test_markdown_limit_holds_at_scale(tmp_path):
    """20,000 failures stay below the limit of GitHub."""
    results = [result(f"tests/test_{at}.py::test_{at}", "failed", reason="x" * 80) for at in range(20_000)]

    assert len(_rendered(tmp_path, results).encode()) < 1 << 20


HOSTILE = [
    "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "<!--", "]]>", "&lt;b&gt;",
    '"onmouseover="x',
    "|a|b|", "`code`", "``", "**bold**", "[link](http://x)", "![i](http://x)", "http://evil.example",
    "www.evil.example",
    "@team", "#1", "GH-1", ":smile:", "- item", "1. item", "# head", "> quote", "\\|", "a\nb", "a\r\nb", "\u2028",
    "\x1b[31mred", "\x1b]0;title\x07", "\x08\x08", "\u202eright to left", "\ud800", "\x00", "</noscript><b>",
    "$(id)", "%0a::error::x", "::set-output",
]  # fmt: skip


class _Tags(HTMLParser):
    """Gather what a browser would build: tags, their attributes, and the texts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


OUR_TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "h3", "p", "main", "section", "div",
    "table", "thead", "tbody", "tr", "th", "td", "svg", "rect", "details", "summary", "ul", "li", "a", "span", "input",
    "label",
    "select", "option", "button", "colgroup", "aside", "noscript", "script", "br",
}  # fmt: skip


def _hostile(text):
    return [
        result(f"t.py::{text}", "failed", reason=text, requirement=text, worker=text),
        result(f"{text}.py::a", "skipped", reason=text, reason_code=text),
        result("m.py::x", provider=text, kernel=text, layout=text, dtype=text, page_size=text),
        collect(text or "x", "skipped", text),
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.sampled_from(HOSTILE) | st.text(max_size=30))
def test_html_holds_text_only(tmp_path, text):
    """Whatever a report says, the page has our tags only, two scripts, and no handler."""
    from pytest_sglhw.report import page

    matrix = build(merge(read_file(lane(tmp_path, text, *_hostile(text), run_id="r")).runs), [text])
    parser = _Tags()
    parser.feed(page.render(matrix, find(matrix)))

    assert set(parser.tags) <= OUR_TAGS
    assert parser.tags.count("script") == 2
    assert parser.handlers == []


@settings(deadline=None)
@given(st.sampled_from(HOSTILE) | st.text(max_size=40))
def test_markdown_holds_text_only(text):
    """Text from a report is one line in a code span, or plain words: no markup, no cell, no line of its own."""
    cell = inline(text)

    assert "\n" not in cell
    assert "\r" not in cell
    if cell.startswith("<code>"):
        assert re.fullmatch(r"<code>(?:[A-Za-z0-9 ]|&#\d+;)*</code>", cell)
    elif cell.startswith("`"):
        assert not set("`|\\") & set(cell[1:-1])
    else:
        assert re.fullmatch(r"-|[A-Za-z0-9][A-Za-z0-9 ,/]*|", cell)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(st.sampled_from(HOSTILE) | st.text(max_size=30))
def test_markdown_tables_keep_their_columns(tmp_path, text):
    """No text adds a column to a table, or a row."""
    blocks = [block.splitlines() for block in _rendered(tmp_path, _hostile(text)).split("\n\n")]
    tables = [[line.count("|") for line in block] for block in blocks if block and block[0].startswith("| ")]

    assert [len(set(table)) for table in tables] == [1] * len(tables)
    assert sorted(map(len, tables)) == sorted((3, 5, 3))


@settings(deadline=None)
@given(st.sampled_from(HOSTILE) | st.text(max_size=40))
def test_terminal_holds_text_only(text):
    """Nothing that a report says reaches the terminal as a control character."""
    shown = printable(text)
    assert shown.isprintable()
    assert "##[" not in shown
    assert not shown.lstrip().startswith("::")
    assert not text.isprintable() or "##[" in text or "::" in text or shown == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("t[##[error]x]", r"t[#\x23[error]x]"),
        ("::error::x", r"\x3a:error::x"),
        ("  ::warning::y", r"  \x3a:warning::y"),
        ("test_a.py::test_b", "test_a.py::test_b"),
    ],
)
def test_a_ci_runner_reads_no_command_from_an_id(text, shown):
    """What a runner would take for a command is broken; ordinary ids stay as they are."""
    assert printable(text) == shown


def test_peak_memory_is_shown_where_it_was_measured(tmp_path, capsys):
    """In JSON in bytes, in the details of the page in MiB; what is no number of bytes is not known."""
    sizes = {"a": 3 << 20, "b": 0, "c": None, "d": "much", "e": -1, "f": True}
    path = lane(tmp_path, "cuda", *(result(f"t.py::{name}", peak_memory=size) for name, size in sizes.items()))

    main(["merge", str(path), "--format", "json"])
    cells = {test["id"]: test["cells"]["cuda"] for test in json.loads(capsys.readouterr().out)["tests"]}
    main(["merge", str(path), "--format", "html"])
    page = capsys.readouterr().out

    known = {name: cell["peak_memory"] for name, cell in cells.items() if "peak_memory" in cell}
    assert known == {"t.py::a": 3 << 20, "t.py::b": 0}
    assert page.count('["peak device memory","3.0 MiB"]') == 1
    assert page.count('["peak device memory","0.0 MiB"]') == 1
    assert page.count('"peak device memory"') == 2
