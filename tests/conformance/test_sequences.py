"""Sequences of backups, loads, moves and evictions: right kernels keep the law, and what is said where one does not."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw import kvcacheio  # noqa: E402
from pytest_sglhw.conformance import covering  # noqa: E402
from pytest_sglhw.conformance.bench import Bench  # noqa: E402
from pytest_sglhw.conformance.devices import Place  # noqa: E402
from pytest_sglhw.conformance.failures import BrokenLawError, CellError  # noqa: E402
from pytest_sglhw.conformance.kernels import all_kernels  # noqa: E402
from pytest_sglhw.conformance.runner import CellRun, Effort  # noqa: E402
from pytest_sglhw.conformance.stateful.program import PAGES, VERBS, Author, Program, Step  # noqa: E402

ROWS = {name: kernel for name, kernel in all_kernels().items() if kernel.family == "host_pools"}
FEW = Effort(rows=2, draws=3, steps=10)
MLA = "host_pool_mla_kernel"
DIRECT = "host_pool_mha_direct"


def _load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROVIDERS = {
    "torch": kvcacheio,
    "second": _load(Path(__file__).with_name("second_kernels.py")),
    "models": _load(Path(__file__).parent / "families" / "model_kernels.py"),
}


def _cell(name, layout="page_first", page_size=3):
    return next(cell for cell in ROWS[name].cells() if (cell.layout, cell.page_size) == (layout, page_size))


def _bench(name, provider, **place):
    cell = _cell(name, **place)
    return Bench(ROWS[name], cell, provider, Place("cpu"), "faulty")


def _failure(bench, effort=FEW):
    with pytest.raises(CellError) as caught:
        CellRun(bench, effort).run()
    return caught.value


def _program(*steps, page_size=3, **changes):
    one = dict.fromkeys(("layers", "heads", "quota", "warps"), 1)
    zero = dict.fromkeys(("device_base", "host_base", "rotation", "seed"), 0)
    sizes = {"head_bytes": 8, "v_head_bytes": 8, "device_pages": 4, "host_pages": 4}
    return Program(**{**one, **zero, **sizes, "steps": steps, **changes})


def _can_run(kernel, cell, provider):
    return all(hasattr(provider, name) for name in kernel.workload.needs(cell))


RUNNABLE = [
    pytest.param(cell, provider, id=f"{name}-{cell.id}")
    for name, provider in PROVIDERS.items()
    for kernel in ROWS.values()
    for cell in kernel.cells()
    if cell.dtype == "bfloat16" and cell.page_size in {1, 3} and _can_run(kernel, cell, provider)
]


def test_every_row_is_run_here():
    """The three providers of this test have the kernels of all rows."""
    assert {param.values[0].kernel for param in RUNNABLE} == set(ROWS)


@pytest.mark.parametrize(("cell", "provider"), RUNNABLE)
def test_right_kernels_keep_the_law(cell, provider):
    """Each layout and page size, by the kernels of one implementation together."""
    bench = Bench(ROWS[cell.kernel], cell, provider, Place("cpu"))

    tally = CellRun(bench, FEW).run()

    rows = covering.rows(ROWS[cell.kernel], FEW.rows)[cell]
    assert (tally.examples, tally.rejected) == (len(rows) + FEW.draws, 0)
    assert bench.calls >= 5


def _loads_once():
    """A load kernel that takes every page it loaded before to be there still."""
    seen = set()

    def load(src, dst, reads, writes, *numbers):
        pairs = list(zip(reads.tolist(), writes.tolist(), strict=True))
        kept = [pair for pair in pairs if (dst.data_ptr(), *pair) not in seen]
        seen.update((dst.data_ptr(), *pair) for pair in kept)
        sides = (torch.tensor([pair[side] for pair in kept], dtype=torch.int64) for side in (0, 1))
        kvcacheio.transfer_kv_per_layer_mla_pf_lf(src, dst, *sides, *numbers)

    return SimpleNamespace(**{**vars(kvcacheio), "transfer_kv_per_layer_mla_pf_lf": load})


def test_a_failure_says_step_kernel_place_and_where_the_bytes_were_written():
    """Reduced to the three steps that matter; the bytes that stand there are followed to the step that wrote them."""
    error = _failure(_bench(MLA, _loads_once()))
    case, lines = error.case, str(error).splitlines()

    assert [step.verb for step in case.steps][::2] == ["load", "load"]
    assert len(case.steps) == 3
    assert (case.layers, case.heads, case.head_bytes, case.quota, case.warps) == (1, 1, 8, 1, 1)
    assert lines[0] == f"{error.bench.cell.id} of provider faulty: law 'sequence' is broken"
    assert lines[1].startswith("  step 3 of the sequence: load host ")
    assert lines[1].endswith(" by transfer_kv_per_layer_mla_pf_lf")
    assert lines[2].startswith("  device KV: first wrong byte at layer 0, page ")
    assert lines[3].startswith("  got  ")
    assert lines[4].startswith("  expected ")
    assert lines[5].startswith("  the bytes that stand there are those of KV, layer 0, token ")


def _loads(right):
    """The load kernel is right that many times and idle from then on."""
    calls = []

    def load(*arguments):
        calls.append(1)
        if len(calls) <= right:
            kvcacheio.transfer_kv_per_layer_mla_pf_lf(*arguments)

    return SimpleNamespace(**{**vars(kvcacheio), "transfer_kv_per_layer_mla_pf_lf": load})


LOAD, LOAD_OTHER = ("load", "page", (0,), (1,)), ("load", "page", (3,), (1,))
WRITE, EVICT = ("write", "page", (), (1,)), ("evict", "page", (), (1,))


@pytest.mark.parametrize(
    ("right", "steps", "words"),
    [
        (0, [LOAD], "token 3 of the rows that stood in the device pool at first"),
        (0, [WRITE, LOAD], "token 0 of the rows written to device page 1 in step 1"),
        (1, [LOAD, EVICT, LOAD_OTHER], "token 0 of the rows scribbled over device page 1 in step 2"),
        (1, [LOAD, LOAD_OTHER], "token 0 of the rows that stood in the host pool at first"),
    ],
)
def test_bytes_are_followed_to_the_step_that_wrote_them(right, steps, words):
    """A load that does nothing leaves what stood there, wherever that came from."""
    with pytest.raises(BrokenLawError) as caught:
        ROWS[MLA].workload.play(_bench(MLA, _loads(right)), _program(*steps))

    assert caught.value.lines[-1] == f"the bytes that stand there are those of KV, layer 0, {words}"


def test_the_dictionary_reads_everything_before_it_writes():
    """A move along a run of slots: a kernel that writes before it has read all is caught at once."""

    def one_by_one(table, strides, targets, sources):
        for target, source in zip(targets.split(1), sources.split(1), strict=True):
            kvcacheio.copy_all_layer_kv_cache_cpu(table, strides, target, source)

    move = ("move", "token", (0, 1, 2), (1, 2, 3))
    right = _bench(MLA, kvcacheio)
    wrong = _bench(MLA, SimpleNamespace(**{**vars(kvcacheio), "copy_all_layer_kv_cache_cpu": one_by_one}))

    ROWS[MLA].workload.play(right, _program(move))
    with pytest.raises(BrokenLawError, match="move device tokens 0, 1, 2 to device tokens 1, 2, 3 by copy_all_layer"):
        ROWS[MLA].workload.play(wrong, _program(move))


def test_a_kernel_that_raises_is_named_with_its_step():
    """The error of a valid call is the law's failure, with the class and the text."""

    def refuse(*arguments):
        raise ValueError("no pages today")

    bench = _bench(MLA, SimpleNamespace(**{**vars(kvcacheio), "transfer_kv_all_layer_mla_lf_pf": refuse}))
    with pytest.raises(BrokenLawError) as caught:
        ROWS[MLA].workload.play(bench, _program(("load", "page", (0,), (1,)), ("backup", "page", (1, 2), (0, 3))))

    assert caught.value.lines == (
        "step 2 of the sequence: backup device pages 1, 2 to host pages 0, 3",
        "transfer_kv_all_layer_mla_lf_pf raised ValueError: no pages today",
    )


def test_a_byte_outside_the_selection_breaks_the_law_too():
    """Both pools are compared whole, guards included, the source as well as the target."""

    def backup(table, host, reads, writes, item, *numbers):
        kvcacheio.transfer_kv_all_layer_mla_lf_pf(table, host, reads, writes, item, *numbers)
        host.view(torch.uint8).flatten()[-1] ^= 1

    bench = _bench(MLA, SimpleNamespace(**{**vars(kvcacheio), "transfer_kv_all_layer_mla_lf_pf": backup}))
    with pytest.raises(BrokenLawError, match="host KV: first wrong byte at layer 0, page 3, token 11, head 0, byte 7"):
        ROWS[MLA].workload.play(bench, _program(("backup", "page", (1,), (0,))))


def test_nothing_is_reduced_once_the_device_is_lost():
    """After a sticky error the sequence is given as it was drawn, and no kernel is called again."""
    calls = []

    def load(*arguments):
        calls.append(len(calls))
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    bench = _bench(MLA, SimpleNamespace(**{**vars(kvcacheio), "transfer_kv_per_layer_mla_pf_lf": load}))
    error = _failure(bench, Effort(rows=0, draws=20, steps=10))

    assert error.steps == 0
    assert calls == [0]


def _played(run_seed, effort):
    """The programs that a run plays, in order."""
    programs = []
    run = CellRun(_bench(MLA, kvcacheio), effort, run_seed)
    run.announce = lambda law, case, word: programs.append(case)
    run.run()
    return programs


def test_programs_follow_the_seed_and_their_length_the_profile():
    """One seed, one run; another seed, another one; no sequence has more steps than its profile says."""
    effort = Effort(rows=1, draws=4, steps=8)

    first, again, other = (_played(seed, effort) for seed in (7, 7, 8))

    assert first == again
    assert first != other
    assert max(len(program.steps) for program in first[1:]) == 7  # making the pools is a step of its own


def test_a_provider_without_kernels_for_moves_makes_none():
    """Backups and loads are enough for an item; moves are left out."""
    names = ROWS[MLA].workload.needs(_cell(MLA))
    provider = SimpleNamespace(**{name: getattr(kvcacheio, name) for name in names})
    programs = []
    run = CellRun(_bench(MLA, provider), Effort(rows=0, draws=10, steps=20))
    run.announce = lambda law, case, word: programs.append(case)

    run.run()

    rows = len(covering.rows(ROWS[MLA], 0)[_cell(MLA)])  # what is drawn without a machine knows no provider
    assert {step.verb for program in programs[rows:] for step in program.steps} == set(VERBS) - {"move"}


def test_whole_pages_are_moved_where_kernels_take_nothing_else():
    """An author for direct kernels counts pages in all transfers; another one tokens too."""
    units = {}
    for by_page in (True, False):
        author, rng = Author(_program(), 3, by_page=by_page), random.Random(1)
        steps = [author.step(verb, rng) for verb in ("backup", "load") for _ in range(40)]
        units[by_page] = {step.unit for step in steps}
        assert all(len(set(step.targets)) == len(step.targets) for step in steps)
    assert units == {True: {"page"}, False: {"page", "token"}}


def test_authors_go_where_they_went_before():
    """A third of the transfers repeats an earlier one: that is what shows a kernel that remembers."""
    author, rng = Author(_program(device_pages=PAGES[-1], host_pages=PAGES[-1]), 16, by_page=False), random.Random(0)
    steps = [author.step("load", rng) for _ in range(60)]

    assert len(steps) - len(set(steps)) > 12


def test_a_step_says_itself_and_is_a_plain_tuple():
    """Its words are the field's; its repr can be pasted."""
    step = Step("backup", "page", (2, 0), (1, 3))

    assert step.words() == "backup device pages 2, 0 to host pages 1, 3"
    assert Step("evict", "page", (), (4,), "host").words() == "evict host page 4"
    assert repr(step) == "('backup', 'page', (2, 0), (1, 3), 'device')"
    assert _program(tuple(step)) == _program(step)


FAULTY = """
import torch
from pytest_sglhw import kvcacheio
sglhw_device = "cpu"
transfer_kv_all_layer_direct_lf_pf = kvcacheio.transfer_kv_all_layer_direct_lf_pf
seen = set()
def transfer_kv_per_layer_direct_pf_lf(sources, targets, reads, writes, *numbers):
    key = (targets[0].data_ptr(), *reads.tolist(), *writes.tolist())
    if key not in seen:
        kvcacheio.transfer_kv_per_layer_direct_pf_lf(sources, targets, reads, writes, *numbers)
    seen.add(key)
"""
COMMAND = [sys.executable, "-m", "pytest_sglhw", "conformance", "--kernels", "remembering", "--profile", "quick"]


@pytest.mark.parametrize("isolation", [[], ["--isolate"]])
def test_an_item_of_its_own_fails_and_its_snippet_plays_the_sequence_again(tmp_path, monkeypatch, isolation):
    """The items are named by pool and layout; what is printed fails by itself in the same way."""
    (tmp_path / "remembering.py").write_text(FAULTY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 300}

    result = subprocess.run([*COMMAND, "--kernel", DIRECT, "--page-size", "3", *isolation], check=False, **options)

    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{DIRECT}-page_first_direct-bfloat16-p3 of provider remembering: law 'sequence' is broken" in result.stdout
    snippet = result.stdout.partition("to see it again:\n")[2].partition("\n\n")[0]
    lines = [line.removeprefix("    ") for line in snippet.splitlines() if line.startswith("    ")]
    again = subprocess.run([sys.executable, "-c", "\n".join(lines)], check=False, **options)
    assert again.returncode == 1
    assert "law 'sequence' is broken\n  step 3 of the sequence: load host page" in again.stderr
