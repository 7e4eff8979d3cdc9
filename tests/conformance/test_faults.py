"""Faults planted in kernels that are right: each must be caught, by the law that is meant for it, and said in words."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw.conformance.bench import Bench  # noqa: E402
from pytest_sglhw.conformance.devices import Place  # noqa: E402
from pytest_sglhw.conformance.failures import CellError  # noqa: E402
from pytest_sglhw.conformance.kernels import all_kernels  # noqa: E402
from pytest_sglhw.conformance.runner import CellRun, Effort  # noqa: E402


def _right():
    spec = importlib.util.spec_from_file_location("second_kernels", Path(__file__).with_name("second_kernels.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RIGHT = {name: kernel for name, kernel in vars(_right()).items() if name.startswith("transfer_kv_")}
IDX_KV, IDX_ONE = 4, 2  # where the indices stand: after K and V of both sides, or after one pool of each


def _with(arguments, position, value):
    return [*arguments[:position], value, *arguments[position + 1 :]]


def layer_ignored(kernel, *args):
    kernel(*_with(args, IDX_KV + 2, 0))


def layer_off_by_one(kernel, *args):
    kernel(*_with(args, IDX_KV + 2, max(0, args[IDX_KV + 2] - 1)))


def v_gets_k(kernel, *args):
    kernel(*_with(args, 2, args[0]))


def indices_crossed(kernel, *args):
    kernel(*args[:IDX_KV], args[IDX_KV + 1], args[IDX_KV], *args[IDX_KV + 2 :])


def last_layer_left_out(kernel, *args):
    tables = [table[:-1] for table in args[:IDX_KV]]
    kernel(*tables, *args[IDX_KV : IDX_KV + 3], args[IDX_KV + 3] - 1, *args[IDX_KV + 4 :])


def tail_left_out(kernel, *args):
    size = args[IDX_ONE + 2]
    kernel(*_with(args, IDX_ONE + 2, size - 8 if size % 8 == 0 and size > 8 else size))


def beyond_launch_left_out(kernel, *args):
    quota, warps = args[-2:]
    limit = quota * warps
    reads, writes = args[IDX_KV], args[IDX_KV + 1]
    right_length = reads.shape == writes.shape
    kernel(*args[:IDX_KV], *((reads[:limit], writes[:limit]) if right_length else (reads, writes)), *args[IDX_KV + 2 :])


def first_page_size_fixed(kernel, *args):
    kernel(*_with(args, IDX_KV + 5, 16))


def writes_nothing(kernel, *args):
    return None


def empty_copies_row_0(kernel, *args):
    kernel(*args)
    if args[IDX_KV].numel() == 0 == args[IDX_KV + 1].numel():
        zero = torch.zeros(1, dtype=torch.int64)
        kernel(*args[:IDX_KV], zero, zero, *args[IDX_KV + 2 :])


def source_cleared(kernel, *args):
    kernel(*args)
    args[0].view(torch.uint8)[..., :1].fill_(0)


def int32_taken(kernel, *args):
    kernel(*args[:IDX_KV], args[IDX_KV].long(), args[IDX_KV + 1].long(), *args[IDX_KV + 2 :])


def refuses_too_late(kernel, *args):
    if args[IDX_KV].shape != args[IDX_KV + 1].shape:
        reads, writes = args[IDX_KV : IDX_KV + 2]
        kernel(*args[:IDX_KV], reads, writes[: len(reads)], *args[IDX_KV + 2 :])
    kernel(*args)


def rest_of_page_read(kernel, *args):
    sources, destinations, reads, writes, *rest = args
    size = rest[-1]
    broken = reads.view(-1, size).flip(1).flatten() if size > 0 and reads.numel() % size == 0 else reads
    kernel(sources, destinations, broken, writes, *rest)


def value_conversion(kernel, sources, destinations, *rest):
    kernel(
        [tensor.float().to(tensor.dtype) if tensor.is_floating_point() else tensor for tensor in sources],
        destinations,
        *rest,
    )


def row_after_the_last(kernel, *args):
    kernel(*args)
    pool, size = args[1].view(torch.uint8).flatten(), args[IDX_KV + 2]
    after = (int(args[IDX_KV + 1].max()) + 1) * size if args[IDX_KV].numel() else len(pool)
    if after < len(pool):
        pool[after] ^= 1


class _Twice:
    """A kernel that is right in odd calls only."""

    def __init__(self):
        self.calls = 0

    def __call__(self, kernel, *args):
        self.calls += 1
        if self.calls % 2:
            kernel(*args)


FAULTS = [
    (
        "transfer_kv_per_layer_pf_lf",
        layer_ignored,
        {"reference"},
        "the bytes that stand there are those of K source: layer 0",
    ),
    ("transfer_kv_per_layer_ph_lf", layer_off_by_one, {"reference"}, "K source: layer"),
    ("transfer_kv_per_layer", v_gets_k, {"reference"}, "the bytes that stand there are those of K source"),
    ("transfer_kv_all_layer_lf_pf", indices_crossed, {"reference", "IndexError", "untouched"}, ""),
    ("transfer_kv_all_layer", last_layer_left_out, {"reference", "vacuous"}, ""),
    ("transfer_kv_per_layer_mla", tail_left_out, {"reference"}, "KV destination: first wrong byte at layer"),
    ("transfer_kv_per_layer", beyond_launch_left_out, {"reference", "quota"}, "this place before the call"),
    ("transfer_kv_per_layer_ph_lf", first_page_size_fixed, {"reference", "IndexError"}, ""),
    ("transfer_kv_all_layer_mla", writes_nothing, {"vacuous"}, "the kernel wrote nothing at all"),
    ("transfer_kv_per_layer", empty_copies_row_0, {"untouched"}, "token 0"),
    ("transfer_kv_per_layer", source_cleared, {"source"}, "K source"),
    ("transfer_kv_per_layer", int32_taken, {"errors"}, "source indices of type int32"),
    ("transfer_kv_per_layer", refuses_too_late, {"errors"}, "refused, but only after it had written"),
    ("transfer_kv_all_layer_direct_lf_pf", rest_of_page_read, {"reference"}, "source"),
    ("transfer_kv_direct", value_conversion, {"reference"}, "destination"),
    ("transfer_kv_per_layer", row_after_the_last, {"untouched"}, "K destination"),
    ("transfer_kv_per_layer_mla", _Twice(), {"repeat", "quota", "split", "vacuous"}, ""),
]


def _caught(name, fault):
    """Run the cells of a kernel until one fails."""
    kernel = all_kernels()[name]
    signature = inspect.signature(RIGHT[name])

    def faulty(*args, **keywords):
        given = signature.bind(*args, **keywords)
        given.apply_defaults()
        return fault(RIGHT[name], *given.args)

    wrapped = SimpleNamespace(**{**RIGHT, name: faulty})
    for cell in kernel.cells():
        if cell.dtype in {"bfloat16", "uint8"} and cell.page_size in {3, 4, 16}:
            try:
                CellRun(Bench(kernel, cell, wrapped, Place("cpu"), "faulty"), Effort(rows=8, draws=10)).run()
            except CellError as error:
                return error
    return None


@pytest.mark.parametrize(
    ("name", "fault", "laws", "words"), FAULTS, ids=[getattr(row[1], "__name__", "twice") for row in FAULTS]
)
def test_a_planted_fault_is_caught_by_its_law_and_said_in_words(name, fault, laws, words):
    """Each fault ends in a failure that names one of the laws meant for it, the place, and an example to run again."""
    error = _caught(name, fault)

    assert error is not None, "the fault survived"
    assert getattr(error.error, "law", type(error.error).__name__) in laws
    assert words in str(error)
    assert "to see it again:\n    from pytest_sglhw.conformance.transfer_cases import TransferCase\n" in str(error)


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_the_second_implementation_keeps_every_law(name):
    """Kernels that share nothing with ours pass, so nothing in the matrix depends on ours."""
    assert _caught(name, lambda kernel, *args: kernel(*args)) is None


def test_a_failure_is_reduced_to_the_least_that_fails():
    """A kernel that ignores the layer fails with one token, one head, one word, two layers."""
    error = _caught("transfer_kv_per_layer_pf_lf", layer_ignored)
    case = error.case

    assert (case.layers, case.layer_id, case.heads, len(case.source_indices)) == (2, 1, 1, 1)
    assert case.head_bytes == 8
    assert (case.source_base, case.destination_base, case.rotation, case.quota, case.warps) == (0, 0, 0, 1, 1)
