"""``kvcacheio_on_cpu``: code that bound the kernels at import runs on a CPU, for one test."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

POOL = """
import torch
try:
    from sgl_kernel.kvcacheio import transfer_kv_direct
except ImportError:
    transfer_kv_direct = None

class Pool:
    def __init__(self):
        self.host = torch.zeros(8, 4)
        self.device = torch.arange(32.0).reshape(8, 4)
    def backup(self, pages):
        transfer_kv_direct([self.device], [self.host], pages, pages, 2)
    def all_layers(self, **arguments):
        return transfer_kv_all_layer(**arguments)
"""
SOURCE = """
import torch
import pools
from pytest_sglhw import kvcacheio

def test_bound(kvcacheio_on_cpu):
    kvcacheio_on_cpu("pools")
    assert pools.transfer_kv_direct is kvcacheio.transfer_kv_direct
    assert pools.transfer_kv_all_layer is kvcacheio.transfer_kv_all_layer
    assert not hasattr(pools, "transfer_kv_per_layer")
    pool = pools.Pool()
    pool.backup(torch.tensor([2, 3, 6, 7]))
    assert torch.equal(pool.host[[2, 3, 6, 7]], pool.device[[2, 3, 6, 7]])
    assert not pool.host[[0, 1, 4, 5]].any()

def test_undone():
    assert pools.transfer_kv_direct is None
    assert not hasattr(pools, "transfer_kv_all_layer")

def test_twice(kvcacheio_on_cpu):
    kvcacheio_on_cpu("pools")
    kvcacheio_on_cpu("pools", "pools")

test_undone_again = test_undone

def test_nothing_to_bind(kvcacheio_on_cpu):
    kvcacheio_on_cpu("json")

def test_no_name(kvcacheio_on_cpu):
    kvcacheio_on_cpu()

def test_no_module(kvcacheio_on_cpu):
    kvcacheio_on_cpu("nothing.of.this.name")
"""


def test_kernels_are_bound_for_one_test(pytester, outcomes):
    """Names that a module imported, and names that its code merely looks up; all as before afterwards."""
    from pytest_sglhw import kvcacheio

    pytester.makepyfile(pools=POOL, test_it=SOURCE)
    result = pytester.runpytest_subprocess("-p", "no:asyncio", "-v", "-p", "no:randomly")
    words = outcomes(result)
    failed = {"test_nothing_to_bind", "test_no_name", "test_no_module"}
    assert {name for name, word in words.items() if word == "FAILED"} == failed
    assert len(words) == 7
    text = (
        "E       ValueError: no kernel of kvcacheio is used in module 'json', so there is nothing to bind. "
        f"Name the module whose code calls one of: {', '.join(kvcacheio.__all__)}."
    )
    assert any(line.strip() == text.strip() or line.endswith(text.removeprefix("E       ")) for line in result.outlines)
    result.stdout.fnmatch_lines(["E *TypeError: kvcacheio_on_cpu takes names of modules, but was given ()"])
    result.stdout.fnmatch_lines(["E *ModuleNotFoundError: No module named 'nothing'"])
