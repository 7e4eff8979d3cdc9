"""Compare the matrix with SGLang's own tests of its kernels: distinct cells verified in a second of CPU time.

    python benchmarks/bench_cells.py PATH/OF/sgl-kernel/tests/test_kvcacheio.py [pytest arguments]

Both run over the CPU kernels of this project, on one thread, under one recorder, which takes of each call: kernel,
dtype, page size, layers, bytes of a row, and the pattern that the indices make. SGLang's file is not part of this
project; a copy of it runs with the device ``"cpu"`` where it says ``"cuda"``. Of the matrix, a sample of the cells of
the 13 kernels runs as profile ``ci`` does.
"""

from __future__ import annotations

import inspect
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from pytest_sglhw import kvcacheio
from pytest_sglhw.conformance import runner
from pytest_sglhw.conformance.bench import Bench
from pytest_sglhw.conformance.devices import Place
from pytest_sglhw.conformance.families.kvcacheio import FACTS
from pytest_sglhw.conformance.kernels import all_kernels

CELLS, BOUND = 80, 20.0
VARIABLE = "SGLHW_UPSTREAM_TEST_KVCACHEIO"


class Verified(NamedTuple):
    """What one call was about."""

    kernel: str
    dtype: str
    page_size: int
    layers: int
    row_bytes: int
    pattern: str


class Recorder:
    """Kernels that note what they are called with; a test or a cell says how it ended."""

    def __init__(self) -> None:
        self.verified: set[Verified] = set()
        self._pending: set[Verified] = set()
        self._dtype, self._page_size = "", 1
        self.kernels = SimpleNamespace(**{name: self._recording(name, getattr(kvcacheio, name)) for name in FACTS})
        self.only: str | None = None
        """The kernel whose calls count (``None``: all of them)."""

    def begin(self, dtype: str, page_size: int) -> None:
        self._pending, self._dtype, self._page_size = set(), dtype, page_size

    def end(self) -> None:
        self.verified |= self._pending

    def _recording(self, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        names = tuple(inspect.signature(kernel).parameters)

        def recorded(*values: Any, **keywords: Any) -> None:
            kernel(*values, **keywords)
            if self.only in {None, name}:
                self._note(name, {**dict(zip(names, values, strict=False)), **keywords})

        return recorded

    def _note(self, name: str, given: dict[str, Any]) -> None:
        layers, row_bytes = geometry(given)
        pattern = pattern_of(given["src_indices"].tolist(), given["dst_indices"].tolist(), self._page_size)
        self._pending.add(Verified(name, self._dtype, self._page_size, layers, row_bytes, pattern))


def geometry(given: dict[str, Any]) -> tuple[int, int]:
    """Layers and bytes of a row, as the arguments of the call say them."""
    if "item_size" in given:
        size = given["item_size"]
        dim = given.get("src_layout_dim", given.get("dst_layout_dim", size))
        return given.get("num_layers", dim // size), size
    loads = "layer_id" in given
    layers = given["dst_layers"] if "dst_layers" in given else given["dst_ptrs" if loads else "src_ptrs"]
    return len(layers), layers[0][0].numel() * layers[0].element_size()


def pattern_of(reads: list[int], writes: list[int], page: int) -> str:
    """Name what the indices make, by looking at them alone."""
    if len(reads) < 2:
        return ("empty", "token")[len(reads)]
    for name, side in (("overwrites", writes), ("duplicates", reads)):
        if len(set(side)) < len(side):
            return name
    if is_run(reads) and is_run(writes):
        return "page" if len(reads) == page else "contiguous"
    return pattern_of_pages([*chunks_of(reads, page), *chunks_of(writes, page)], page)


def pattern_of_pages(chunks: list[list[int]], page: int) -> str:
    """Name what indices make that are no two runs, by their parts of a page."""
    if all(is_run(chunk) and len(chunk) == page for chunk in chunks):
        return "pages" if all(chunk[0] % page == 0 for chunk in chunks) else "unaligned"
    return "within_pages" if all(is_run(sorted(chunk)) for chunk in chunks) else "scattered"


def chunks_of(tokens: list[int], page: int) -> list[list[int]]:
    return [tokens[at : at + page] for at in range(0, len(tokens), page)]


def is_run(tokens: list[int]) -> bool:
    return tokens == list(range(tokens[0], tokens[0] + len(tokens)))


class Watch:
    """A plugin of pytest that hands dtype and page size of each test to the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.outcomes: dict[str, int] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Function) -> Iterator[None]:
        params = item.callspec.params
        self._recorder.begin(str(params["dtype"]).removeprefix("torch."), params["page_size"])
        yield
        self._recorder.end()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.outcomes[report.outcome] = self.outcomes.get(report.outcome, 0) + 1


@contextmanager
def upstream_names(recorder: Recorder) -> Iterator[None]:
    """Modules and functions that SGLang's file asks for, on a CPU."""
    modules = {
        "sgl_kernel": {},
        "sgl_kernel.kvcacheio": vars(recorder.kernels),
        "sglang": {},
        "sglang.srt": {},
        "sglang.srt.utils": {"is_hip": lambda: False},
    }
    stream = SimpleNamespace(synchronize=lambda: None)
    with pytest.MonkeyPatch.context() as patch:
        for name, contents in modules.items():
            module = ModuleType(name)
            vars(module).update(contents)
            patch.setitem(sys.modules, name, module)
        patch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
        patch.setattr(torch.cuda, "Stream", lambda: stream)
        patch.setattr(torch.cuda, "stream", lambda _: nullcontext())
        patch.setattr(torch.cuda, "synchronize", lambda: None)
        patch.setattr(torch.cuda, "manual_seed", torch.manual_seed)
        patch.setattr(torch.version, "cuda", None)
        yield


def upstream(path: Path, arguments: list[str]) -> tuple[Recorder, float]:
    """Run SGLang's tests."""
    recorder = Recorder()
    watch = Watch(recorder)
    with tempfile.TemporaryDirectory() as folder, upstream_names(recorder):
        copy = Path(folder, path.name)
        copy.write_text(path.read_text().replace('device = "cuda"', 'device = "cpu"'))
        options = ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:sglhw", f"--rootdir={folder}"]
        began = time.process_time()
        pytest.main([*options, *arguments, str(copy)], plugins=[watch])
        seconds = time.process_time() - began
    print(f"SGLang's tests: {watch.outcomes}")
    return recorder, seconds


def matrix() -> tuple[Recorder, float]:
    """Run a sample of the matrix's cells."""
    recorder = Recorder()
    cells = [cell for name in FACTS for cell in all_kernels()[name].cells()]
    began = time.process_time()
    for cell in random.Random(0).sample(cells, CELLS):
        recorder.only = cell.kernel
        recorder.begin(cell.dtype, cell.page_size)
        bench = Bench(all_kernels()[cell.kernel], cell, recorder.kernels, Place("cpu"))
        runner.CellRun(bench, runner.PROFILES["ci"]).run()
        recorder.end()
    return recorder, time.process_time() - began


def main(arguments: list[str]) -> int:
    path, *rest = arguments or [os.environ.get(VARIABLE, "")]
    if not path:
        print(f"not measured: give the path of SGLang's test_kvcacheio.py as argument, or in {VARIABLE}")
        return 0
    torch.set_num_threads(1)
    rates = []
    for name, (recorder, seconds) in (("SGLang's tests", upstream(Path(path), rest)), ("the matrix", matrix())):
        rates.append(len(recorder.verified) / seconds)
        print(
            f"{name}: {len(recorder.verified)} distinct cells in {seconds:.1f} s of CPU time, {rates[-1]:.2f} a second"
        )
    ratio = rates[1] / rates[0]
    print(f"the matrix verifies {ratio:.1f} times as many a second, bound {BOUND:g}: ", end="")
    print("ok" if ratio >= BOUND else "MISSED")
    return int(ratio < BOUND)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
