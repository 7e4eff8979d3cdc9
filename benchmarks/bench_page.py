"""The page of 10 lanes of 20,000 tests in headless Chromium: seconds to open it and to filter it."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_sglhw.report import page
from pytest_sglhw.report.findings import find
from pytest_sglhw.report.matrix import build
from pytest_sglhw.report.merge import merge
from pytest_sglhw.report.reader import read_file

if TYPE_CHECKING:
    from types import ModuleType

BOUND = 2.0
ROUNDS = 3

FILTER = """
const box = document.getElementById("q"), begun = performance.now();
box.value = arguments[0];
box.dispatchEvent(new Event("input"));
document.body.offsetHeight;
return (performance.now() - begun) / 1000;
"""


OPENED = """
if (document.documentElement.dataset.ready !== "true") return null;
document.body.offsetHeight;
return performance.now() / 1000;
"""


def load(path: Path) -> ModuleType:
    """Import a file that is not in a package: the browser is the tests', the lanes are another benchmark's."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seconds_to_open(window: Any, target: Path) -> float:
    """Seconds from the request for the page until it is drawn and answers."""
    window.open(target)
    seconds = window.run(OPENED)
    assert seconds is not None, "the page did not become ready"
    return float(seconds)


def main() -> int:
    """Measure and print; exit 1 if a bound is missed."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        print("not measured: needs chromium and chromedriver on PATH")
        return 1
    here = Path(__file__).resolve().parent
    lanes = load(here / "bench_merge.py")
    browsers = load(here.parent / "tests" / "report" / "browser.py")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [lanes.write_lane(folder, lane, lanes.TESTS) for lane in range(lanes.LANES)]
        matrix = build(merge(*(read_file(path).runs for path in paths)))
        target = folder / "matrix.html"
        target.write_text(page.render(matrix, find(matrix)))
        window = browsers.Browser(folder / "profile")
        try:
            opened = min(seconds_to_open(window, target) for _ in range(ROUNDS))
            filtered = max(window.run(FILTER, text) for text in ("module_7", "float16-1", "nothing like it", ""))
        finally:
            window.close()
    what = f"{lanes.LANES} x {lanes.TESTS} tests"
    print(f"{what}: opens in {opened:.2f} s, filters in {filtered:.2f} s (bound {BOUND} s each)")
    return int(opened > BOUND or filtered > BOUND)


if __name__ == "__main__":
    sys.exit(main())
