"""The second implementation is a complete provider, and independent of the first."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from pathlib import Path

import pytest
import torch

from pytest_sglhw import kvcacheio

PATH = Path(__file__).with_name("second_kernels.py")
NAMES = [name for name in kvcacheio.__all__ if name.startswith("transfer_kv_")] + ["copy_all_layer_kv_cache_cpu"]


@pytest.fixture(scope="module")
def second():
    """Load the module from its file, wherever the tests were started."""
    spec = importlib.util.spec_from_file_location("second_kernels", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_complete():
    """There are thirteen transfer ops and one for host memory."""
    assert len(NAMES) == 14


@pytest.mark.parametrize("name", NAMES)
def test_signatures(second, name):
    """Both implementations are called in the same way."""
    both = [inspect.signature(getattr(module, name)).parameters.values() for module in (kvcacheio, second)]
    plain = [[str(parameter.replace(annotation=parameter.empty)) for parameter in one] for one in both]
    assert plain[0] == plain[1]


def test_independent():
    """A mistake in one can't be in the other by way of shared code."""
    names = set()
    for node in ast.walk(ast.parse(PATH.read_text(encoding="utf-8"))):
        names |= {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
        names |= {node.module} if isinstance(node, ast.ImportFrom) else set()
    assert names == {"__future__", "collections.abc", "ctypes", "functools", "inspect", "typing", "torch"}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("op", ["transfer_kv_per_layer_ph_lf", "transfer_kv_all_layer_lf_ph"])
def test_page_head_agrees(second, op, seed):
    """Both find the bytes of a page_head pool, whatever heads, pages and layers it has."""
    random = torch.Generator().manual_seed(seed)

    def between(low, high):
        return int(torch.randint(low, high + 1, (), generator=random))

    heads, page, layers, pages = between(1, 5), between(1, 6), between(1, 4), between(1, 4)
    item, slots = 8 * heads * between(1, 3), page * pages
    count = between(1, slots)
    src, dst = (torch.randperm(slots, generator=random)[:count] for _ in range(2))
    pool = torch.randint(0, 256, (slots * layers * item,), dtype=torch.uint8, generator=random)
    rows = torch.randint(0, 256, (layers, slots * item), dtype=torch.uint8, generator=random)
    images = []
    for module in (kvcacheio, second):
        one, other = pool.clone(), rows.clone()
        if op == "transfer_kv_all_layer_lf_ph":
            table = torch.tensor([row.data_ptr() for row in other], dtype=torch.uint64)
            tail = (item, layers * item, layers, page, heads)
            getattr(module, op)(table, one, table, one, src, dst, *tail)
        else:
            tail = (layers - 1, item, layers * item, page, heads)
            getattr(module, op)(one, other[0], one, other[-1], src, dst, *tail)
        images.append((one, other))
    assert torch.equal(images[0][0], images[1][0])
    assert torch.equal(images[0][1], images[1][1])
    assert not (torch.equal(images[0][0], pool) and torch.equal(images[0][1], rows))
