"""The page in a real browser: filter, fold, details, deep links, keyboard, colours, width, and no scripts."""

from __future__ import annotations

import pytest

from pytest_sglhw.report.findings import find
from pytest_sglhw.report.matrix import build
from pytest_sglhw.report.merge import merge
from pytest_sglhw.report.page import render
from pytest_sglhw.report.reader import read_file

from .browser import Browser
from .helpers import lane, result

pytestmark = pytest.mark.browser

ENTER, ESCAPE, DOWN, RIGHT, END = "\ue007", "\ue00c", "\ue015", "\ue014", "\ue010"

HOSTILE = "<img src=x onerror=\"document.title='taken'\"></script><script>document.title='taken'</script>"

CASE = {
    "provider": "torch",
    "kernel": "transfer_kv_direct",
    "layout": "page_first",
    "dtype": "float16",
    "page_size": 16,
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    window = Browser(tmp_path_factory.mktemp("profile"))
    yield window
    window.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Three lanes and one that sent nothing: two files, a transfer-matrix item and a hostile name."""
    path = tmp_path_factory.mktemp("page")
    lanes = [
        lane(
            path, "cuda",
            result("tests/test_a.py::test_one", requirement="requires_kv4", state="available"),
            result("tests/test_a.py::test_two", "failed", reason="AssertionError: bytes differ"),
            result("tests/test_b.py::test_three", "skipped", reason="needs rocm", reason_code="platform"),
            result("torch::case", **CASE), result(f"tests/test_b.py::{HOSTILE}", reason=HOSTILE),
        ),
        lane(path, "rocm", result("tests/test_a.py::test_one", "raised"), result("tests/test_b.py::test_three")),
        lane(path, "cpu", result("tests/test_a.py::test_one", "skipped", reason="needs an accelerator")),
    ]  # fmt: skip
    matrix = build(merge(*(read_file(one).runs for one in lanes)), ["xpu"])
    target = path / "matrix.html"
    target.write_text(render(matrix, find(matrix)))
    return target


def _names(browser):
    """The names in sight, files and tests."""
    return browser.run("return [...document.querySelectorAll('#grid tbody tr[data-row] th')].map(e => e.textContent)")


def _details(browser):
    """The details of the open cell by their names; ``None`` if none is open."""
    return browser.run(
        "const d = document.getElementById('detail'); if (d.hidden) return null;"
        "const pairs = [...d.querySelectorAll('dt')].map(t => [t.textContent, t.nextSibling.textContent]);"
        "return Object.assign(Object.fromEntries(pairs), {word: d.querySelector('h2').textContent,"
        " test: d.querySelector('.id').textContent})"
    )


def _set(browser, name, value, event="input"):
    browser.run(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event(arguments[2]))", name, value, event,
    )  # fmt: skip


ALL = [
    "tests/test_a.py (2)", "test_one", "test_two", "tests/test_b.py (2)", HOSTILE, "test_three",
    "transfer matrix: torch (1)", "transfer_kv_direct[page_first-float16-page16]",
]  # fmt: skip


def test_opens_whole(browser, page):
    """The page opens without a complaint, shows each lane and test, and fetches nothing."""
    browser.open(page)

    heads = browser.run("return [...document.querySelectorAll('#grid thead th')].map(e => e.textContent)")
    assert heads == ["test", "cpucpu sm90 12.8", "cudacuda sm90 12.8", "rocmrocm sm90 12.8", "xpumissing"]
    assert _names(browser) == ALL
    assert browser.run("return document.getElementById('count').textContent") == "5 of 5 tests"
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.complaints() == []


def test_hostile_names_are_text(browser, page):
    """Markup in a name or a reason is shown as text, in the matrix and in the details."""
    browser.open(page)
    _set(browser, "q", "onerror")
    browser.run("document.querySelector('#grid td.passed button').click()")

    assert _details(browser)["test"] == f"tests/test_b.py::{HOSTILE}"
    assert _details(browser)["reason"] == HOSTILE
    assert browser.run("return [document.title, document.images.length]") == ["Hardware matrix", 0]


@pytest.mark.parametrize(("control", "value", "names"), [
    ("q", "test_a ONE", ["tests/test_a.py (1)", "test_one"]),
    ("lane", "rocm", ["tests/test_a.py (1)", "test_one", "tests/test_b.py (1)", "test_three"]),
    ("list", "failed", ["tests/test_a.py (1)", "test_two"]),
    ("q", "no such test", []),
])  # fmt: skip
def test_filters(browser, page, control, value, names):
    """Text, lane and list each narrow the matrix to what fits."""
    browser.open(page)

    _set(browser, control, value, "input" if control == "q" else "change")

    assert _names(browser) == names


def test_outcome_filter_and_lane(browser, page):
    """Outcomes are asked of the lanes that are shown."""
    browser.open(page)
    browser.run("document.querySelector('.chip.skipped').click()")
    in_any = _names(browser)
    _set(browser, "lane", "cpu", "change")

    assert in_any == ["tests/test_a.py (1)", "test_one", "tests/test_b.py (1)", "test_three"]
    assert _names(browser) == ["tests/test_a.py (1)", "test_one"]


def test_fold_by_file(browser, page):
    """A file folds and unfolds, and says what was executed in each lane."""
    browser.open(page)
    browser.run("document.getElementById('fold').click()")
    folded = _names(browser)
    counts = browser.run("return [...document.querySelector('tr.group').cells].map(e => e.textContent)")
    browser.run("document.querySelector('tr.group button').click()")

    assert folded == ["tests/test_a.py (2)", "tests/test_b.py (2)", "transfer matrix: torch (1)"]
    assert counts == ["tests/test_a.py (2)", "0/1 executed", "2/2 executed", "1/1 executed", ""]
    assert _names(browser)[:3] == ["tests/test_a.py (2)", "test_one", "test_two"]


def test_details_of_a_cell(browser, page):
    """A click on a cell gives the reason and the evidence."""
    browser.open(page)
    browser.run("document.querySelector('#grid td.failed button').click()")

    details = _details(browser)
    assert (details["word"], details["test"]) == ("failed", "tests/test_a.py::test_two")
    assert details["reason"] == "AssertionError: bytes differ"
    assert (details["lane"], details["machine"], details["run"]) == ("cuda", "cuda sm90 12.8", "exit 0")
    assert details["report"].endswith("cuda.jsonl")


def test_deep_link(browser, page):
    """The address of an open cell opens it again, with the filters that were set."""
    browser.open(page)
    _set(browser, "q", "test_b")
    browser.run("document.querySelector('#grid td.skipped button').click()")
    address = browser.run("return location.hash")

    browser.open(page, address)

    assert _details(browser)["test"] == "tests/test_b.py::test_three"
    assert _details(browser)["lane"] == "cuda"
    assert _names(browser) == ["tests/test_b.py (2)", HOSTILE, "test_three"]


def test_links_of_the_lists(browser, page):
    """A test in a list links to its cell; so does a cell of the transfer matrix."""
    browser.open(page)
    browser.run("document.querySelector('#list-failed a').click()")
    assert _details(browser)["test"] == "tests/test_a.py::test_two"

    browser.run("document.querySelector('section[aria-labelledby=transfers] a').click()")
    assert _details(browser)["test"] == "torch transfer_kv_direct[page_first-float16-page16]"


def test_keyboard(browser, page):
    """Arrows move, Enter opens, Escape closes and gives the focus back to the cell."""
    browser.open(page)
    browser.run("document.querySelector('#grid tbody button[tabindex=\"0\"]').focus()")
    focused = "return [document.activeElement.textContent, document.activeElement.getAttribute('aria-label')]"

    browser.press(DOWN, RIGHT)
    assert browser.run(focused) == ["passed", "passed, cuda"]
    browser.press(ENTER)
    assert _details(browser)["lane"] == "cuda"
    browser.press(ESCAPE)
    assert _details(browser) is None
    assert browser.run(focused) == ["passed", "passed, cuda"]
    browser.press(END)
    assert browser.run("return document.activeElement.closest('tr').dataset.row") == str(len(ALL) - 1)


def test_screen_reader(browser, page):
    """Every control has a name, the grid says its size, and one cell of it takes part in the tab order."""
    browser.open(page)
    tree = browser.command("Accessibility.getFullAXTree")["nodes"]

    controls = [n for n in tree if n.get("role", {}).get("value") in ("button", "combobox", "searchbox", "link")]
    assert [n for n in controls if not n["name"]["value"]] == []
    grid = browser.run("const t = document.querySelector('#grid table'); return [t.ariaRowCount, t.ariaColCount]")
    assert grid == [str(len(ALL) + 1), "5"]
    assert browser.run("return document.querySelectorAll('#grid tbody [tabindex=\"0\"]').length") == 1


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_contrast(browser, page, dark):
    """Every text has a contrast of at least 4.5 to its background, in light and in dark."""
    browser.dark(dark)
    browser.open(page)

    low = browser.run("""
        const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
        const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
        const parse = text => text.match(/[\\d.]+/g).map(Number);
        const ground = node => {
            for (; node; node = node.parentElement) {
                const colour = parse(getComputedStyle(node).backgroundColor);
                if (colour.length < 4 || colour[3] > 0) return colour;
            }
            return [255, 255, 255];
        };
        const seen = node => node.offsetParent && !node.children.length && node.textContent.trim();
        const nodes = [...document.querySelectorAll('body *')].filter(node => seen(node) && !node.closest('script'));
        return nodes.map(node => {
            const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
            return [node.textContent.slice(0, 30), (a + 0.05) / (b + 0.05)]; }).filter(([, ratio]) => ratio < 4.5)
    """)

    browser.dark(False)
    assert low == []


def test_narrow(browser, page):
    """On a narrow screen nothing but the tables scrolls sideways, and their heads stay."""
    browser.open(page)
    browser.resize(380, 700)

    width, view = browser.run("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    browser.run("document.getElementById('grid').scrollTo(200, 60)")
    stays = browser.run(
        "const g = document.getElementById('grid').getBoundingClientRect();"
        "const h = document.querySelector('#grid thead th').getBoundingClientRect();"
        "return [Math.round(h.left - g.left), Math.round(h.top - g.top)]"
    )
    browser.command("Emulation.clearDeviceMetricsOverride")

    assert width <= view
    assert stays == [1, 1]


def test_without_scripts(browser, page):
    """Without scripts the whole matrix can be read, and nothing stands there that does not work."""
    browser.scripts(False)
    browser.open(page)
    text = browser.command("DOMSnapshot.captureSnapshot", computedStyles=[])
    browser.scripts(True)

    strings = text["strings"]
    shown = {strings[at].strip() for document in text["documents"] for at in document["layout"]["text"] if at >= 0}
    assert {"test_one", "test_two", "test_three", "raised", "missing", "transfer_kv_direct"} <= shown
    assert "Fold all" not in shown
