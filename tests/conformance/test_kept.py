"""What a caller hands over beside its pools stays as it was, and a kernel that changes it is told what it changed."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw import kvcacheio  # noqa: E402
from pytest_sglhw.conformance.bench import Bench  # noqa: E402
from pytest_sglhw.conformance.checks import check_errors  # noqa: E402
from pytest_sglhw.conformance.devices import Place  # noqa: E402
from pytest_sglhw.conformance.failures import BrokenLawError  # noqa: E402
from pytest_sglhw.conformance.kept import Kept  # noqa: E402
from pytest_sglhw.conformance.kernels import all_kernels  # noqa: E402
from pytest_sglhw.conformance.strategies import PinnedDraw  # noqa: E402


def _view():
    """Every other element of a larger tensor."""
    return torch.arange(10, 18)[::2]


def _overwritten(indices):
    indices[1] = 77


def _sorted(indices):
    indices.copy_(indices.flip(0))


def _between(indices):
    indices.as_strided((1,), (1,), 3)[0] = -5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_overwritten, "dst_indices, a tensor of torch.int64: element 2 of its memory is 77, not 12"),
        (_sorted, "dst_indices, a tensor of torch.int64: element 0 of its memory is 16, not 10"),
        (_between, "dst_indices, a tensor of torch.int64: element 3 of its memory is -5, not 13"),
        (lambda indices: indices.resize_(2), "dst_indices, a tensor of shape [4], has shape [2] now, or other memory"),
        (lambda indices: indices.set_(torch.arange(4)), "dst_indices, a tensor of shape [4], has shape [4] now, or"),
    ],
)
def test_a_changed_tensor_is_found_between_the_elements_of_a_view_too(change, words):
    """The failure names the argument, the element of its memory, and both values."""
    indices = _view()
    kept = Kept({"page_size": 4, "dst_indices": indices})
    kept.check("source")

    change(indices)

    with pytest.raises(BrokenLawError, match=re.escape(words)):
        kept.check("source")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (list.pop, "src_layers, a list of 2: it has 1 entries now"),
        (list.clear, "src_layers, a list of 2: it has 0 entries now"),
        (list.reverse, "src_layers, a list of 2: its entry 0 is another one now"),
        (lambda entries: entries.append(None), "src_layers, a list of 2: it has 3 entries now"),
    ],
)
def test_a_changed_list_is_found(change, words):
    """Its entries are compared one by one, not by their values: they are pools."""
    entries = [torch.zeros(2), torch.zeros(2)]
    kept = Kept({"src_layers": entries})
    kept.check("source")

    change(entries)

    with pytest.raises(BrokenLawError, match=re.escape(words)):
        kept.check("source")


def test_an_empty_tensor_has_nothing_to_change():
    """An empty index set has no memory to compare."""
    Kept({"src_indices": torch.empty(0, dtype=torch.int64)}).check("source")


@pytest.mark.parametrize("name", [name for name, kernel in all_kernels().items() if kernel.family == "kvcacheio"])
def test_all_but_pools_and_numbers_is_kept(name):
    """Of the 13 transfer kernels it is the index tensors, and every pointer table or list there is."""
    kernel = all_kernels()[name]
    cell = kernel.cells()[0]
    trial = kernel.workload.build(cell, kernel.workload.draw(cell, PinnedDraw(3, {})), Place("cpu"))

    kept = trial.kept(trial.arguments())

    containers = {name for name, value in kept.items() if isinstance(value, (torch.Tensor, list))}
    tables = {each for each in trial.names() if each.endswith(("_layers", "_ptrs"))} - {"num_layers"}
    assert containers == {"src_indices", "dst_indices"} | tables


def test_a_refused_call_keeps_them_too():
    """A kernel may not spoil the indices of a call that it then refuses."""
    kernel = all_kernels()["transfer_kv_per_layer_mla"]
    cell = kernel.cells()[0]

    class Spoiling:
        @staticmethod
        def transfer_kv_per_layer_mla(src, dst, src_indices, dst_indices, item_size, *launch):
            if item_size % 8:
                dst_indices.zero_()
            kvcacheio.transfer_kv_per_layer_mla(src, dst, src_indices, dst_indices, item_size, *launch)

    bench = Bench(kernel, cell, Spoiling, Place("cpu"))
    trial = bench.trial(kernel.workload.draw(cell, PinnedDraw(3, {"pattern": "pages"})))

    with pytest.raises(BrokenLawError, match=r"'errors' is broken\n  dst_indices, a tensor of torch\.int64: element"):
        check_errors(bench, trial)
