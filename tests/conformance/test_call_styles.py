"""Other ways to make the same call, and which signatures say that they take them."""

from __future__ import annotations

import functools

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from pytest_sglhw import kvcacheio  # noqa: E402
from pytest_sglhw.conformance.bench import Bench  # noqa: E402
from pytest_sglhw.conformance.call_styles import OnThreads, Written  # noqa: E402
from pytest_sglhw.conformance.checks import LAWS, examine  # noqa: E402
from pytest_sglhw.conformance.devices import Place  # noqa: E402
from pytest_sglhw.conformance.failures import BrokenLawError, RejectedError  # noqa: E402
from pytest_sglhw.conformance.kernels import all_kernels  # noqa: E402
from pytest_sglhw.conformance.strategies import PinnedDraw  # noqa: E402

NAMES = ("src", "dst", "quota", "warps")
ALL, DEFAULTS, SHORT = Written(NAMES), Written(NAMES, left_out=2), Written(NAMES, by_name=False, left_out=2)


def released(src, dst, quota=2, warps=32):
    return src, dst, quota, warps


def renamed(src, dst, block_quota=2, sgs_per_wg=32):
    return src, dst, block_quota, sgs_per_wg


def all_renamed(source, destination, quota=2, warps=32):
    return source, destination, quota, warps


def without_defaults(src, dst, quota, warps):
    return src, dst, quota, warps


def with_one_more(src, dst, quota=2, warps=32, stream=None):
    return src, dst, quota, warps


def by_position(src, dst, quota=2, warps=32, /):
    return src, dst, quota, warps


def whatever(*values):
    return (released if len(values) < 5 else kvcacheio.transfer_kv_per_layer_mla)(*values)


def whatever_named(*values, **named):
    return released(*values, **named)


@functools.wraps(released)
def narrowed(*values):
    return released(*values)


@functools.wraps(released)
def handed_on(*values, **named):
    return released(*values, **named)


@pytest.mark.parametrize(
    ("function", "fitting"),
    [
        (released, [ALL, DEFAULTS, SHORT]),
        (with_one_more, [ALL, DEFAULTS, SHORT]),
        (handed_on, [ALL, DEFAULTS, SHORT]),
        (renamed, [DEFAULTS, SHORT]),
        (all_renamed, [SHORT]),
        (by_position, [SHORT]),
        (without_defaults, [ALL]),
        (narrowed, [SHORT]),
        (whatever, []),
        (whatever_named, []),
        (max, []),
        (torch.ops.aten.add.Tensor, []),
    ],
)
def test_a_call_is_made_as_the_signature_says(function, fitting):
    """Nothing is asked of a function that does not say that it takes it; what fits can be called."""
    styles = [style for style in (ALL, DEFAULTS, SHORT) if style.fits(function)]

    assert styles == fitting
    for style in styles:
        launch = (7, 8) if style == ALL else (2, 32)
        assert style(function)("source", "destination", 7, 8) == ("source", "destination", *launch)


def test_a_style_reads_in_a_failure_as_what_it_does():
    """It stands behind ``style=`` there."""
    assert repr(ALL) == "by name"
    assert repr(DEFAULTS) == "by name, without quota and warps"
    assert repr(SHORT) == "without quota and warps"
    assert repr(OnThreads(2)) == "on 2 threads"


def test_threads_are_given_back_whatever_happens():
    """The kernel alone runs on them."""
    before = torch.get_num_threads()
    assert OnThreads(before + 1)(torch.get_num_threads)() == before + 1
    with pytest.raises(ZeroDivisionError):
        OnThreads(before + 1)(lambda: 1 / 0)()
    assert torch.get_num_threads() == before


def _examine(name, function):
    kernel = all_kernels()[name]
    cell = kernel.cells()[0]
    provider = type("Provider", (), {name: staticmethod(function)})
    bench = Bench(kernel, cell, provider, Place("cpu"))
    examine(bench, LAWS["keywords"], kernel.workload.draw(cell, PinnedDraw(3, {"pattern": "pages"})))


@pytest.mark.parametrize("name", [name for name, kernel in all_kernels().items() if kernel.family == "kvcacheio"])
def test_released_names_and_defaults_are_those_of_our_own_kernels(name):
    """No other law takes the place of this one for a provider of the released signature."""
    _examine(name, getattr(kvcacheio, name))


def test_a_kernel_without_the_names_is_asked_for_something_else():
    """Wrappers of ``*args`` are held to no names, and it is not counted as if they had been."""
    with pytest.raises(RejectedError, match="keywords: the kernel's signature does not say that it takes the released"):
        _examine("transfer_kv_per_layer_mla", whatever)


def test_a_default_that_moves_nothing_is_found_under_another_name():
    """A provider that renames the number of warps still has a default for it."""

    def kernel(src, dst, src_indices, dst_indices, item_size, block_quota=2, sgs_per_wg=0):
        if sgs_per_wg:
            kvcacheio.transfer_kv_per_layer_mla(src, dst, src_indices, dst_indices, item_size, block_quota, sgs_per_wg)

    words = "the call with style=by name, without block_quota and num_warps_per_block gave other bytes"
    with pytest.raises(BrokenLawError, match=words):
        _examine("transfer_kv_per_layer_mla", kernel)
