"""The page-unified byte order: this project's formula against SGLang's ``PageUnifiedLayout``."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_sglhw.conformance import providers_sglang
from pytest_sglhw.conformance.cells import Cell
from pytest_sglhw.conformance.families.pages import PageUnifiedLoad
from pytest_sglhw.conformance.families.runs import Rows


@pytest.fixture(scope="module")
def layout_class():
    """SGLang's layout; importing it needs the same care as its kernels."""
    assert providers_sglang.prepare_sglang() is None
    from sglang.srt.mem_cache.pool_host.page_unified import PageUnifiedLayout

    return PageUnifiedLayout


def _case(layers, groups, width):
    return Rows(layers, 0, (width, width), (), 0, 0, "int64", str(groups), 0, 0)


@settings(deadline=None, database=None, derandomize=True)
@given(
    layers=st.integers(1, 7),
    groups=st.sampled_from((1, 2, 4)),
    page_size=st.sampled_from((1, 3, 16, 64)),
    dim=st.sampled_from((16, 24, 64)),
    data=st.data(),
)
@pytest.mark.parametrize("parts", [("K", "V"), ("latent",)])
def test_offsets(layout_class, parts, layers, groups, page_size, dim, data):
    """Every row of a head group stands where SGLang's shape puts it."""
    mla = len(parts) == 1
    groups = 1 if mla else groups
    layout = layout_class(
        page_size=page_size,
        layer_num=layers,
        head_num=groups,
        head_group_num=groups,
        head_dim=dim,
        itemsize=2,
        is_mla=mla,
    )
    workload, cell = PageUnifiedLoad(parts), Cell("", "page_unified", "bfloat16", page_size)
    case = _case(layers, groups, layout.group_bytes * groups)
    token, layer = data.draw(st.integers(0, 3 * page_size - 1)), data.draw(st.integers(0, layers - 1))
    group, part = data.draw(st.integers(0, groups - 1)), data.draw(st.integers(0, len(parts) - 1))

    strides = torch.empty(layout.page_dims(3), device="meta").stride()
    page, at = divmod(token, page_size)
    index = (page, layer, at) if mla else (page, group, layer, part, at)
    want = sum(number * stride for number, stride in zip(index, strides, strict=False)) * 2
    assert workload.host_offset(cell, case, token, group, layer, part) == want
    assert workload.host_bytes(cell, case, 3) == 3 * layout.bytes_per_page
    assert (3, *workload.shape(cell, case)) == layout.page_dims(3)


def test_chunk_is_one_run(layout_class):
    """A range of layers of a head group is the run from its first row to its last."""
    layout = layout_class(page_size=4, layer_num=5, head_num=4, head_group_num=2, head_dim=16, itemsize=2)
    workload, cell, case = PageUnifiedLoad(("K", "V")), Cell("", "page_unified", "bfloat16", 4), _case(5, 2, 128)
    offset, length = layout.chunk_span((1, 4), head_group=1)
    assert offset == workload.host_offset(cell, case, 0, 1, 1, 0)
    assert offset + length == workload.host_offset(cell, case, 3, 1, 3, 1) + 64
