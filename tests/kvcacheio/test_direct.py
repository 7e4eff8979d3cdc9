"""The three direct ops against loops over tokens and pages."""

from __future__ import annotations

import pytest
import torch

from pytest_sglhw import kvcacheio

DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.uint8,
    torch.int8,
]


def pool(*shape, dtype=torch.uint8, seed=0):
    """Return random bytes seen as a tensor of the shape and dtype."""
    size = torch.empty(0, dtype=dtype).element_size()
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randint(0, 256, (*shape[:-1], shape[-1] * size), dtype=torch.uint8, generator=generator)
    return raw.view(dtype)


def same(one, other):
    """Compare as bytes: NaN equals itself, and 8-bit floats have no comparison on the CPU."""
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def token_loop(src_layers, dst_layers, src_indices, dst_indices):
    """Copy token after token."""
    for s, d in zip(src_indices.tolist(), dst_indices.tolist(), strict=True):
        for src, dst in zip(src_layers, dst_layers, strict=True):
            dst[d].copy_(src[s])


def check_direct(src_layers, dst_layers, src_indices, dst_indices, page_size=1, loop=token_loop):
    want, sources = [dst.clone() for dst in dst_layers], [src.clone() for src in src_layers]
    loop(src_layers, want, src_indices, dst_indices)
    kvcacheio.transfer_kv_direct(src_layers, dst_layers, src_indices, dst_indices, page_size)
    assert all(map(same, dst_layers, want))
    assert all(map(same, src_layers, sources))


PAGES = torch.tensor([8, 9, 10, 11, 0, 1, 2, 3, 20, 21, 22, 23])
SCATTERED = torch.tensor([5, 17, 6, 7, 23, 0, 2, 1, 12, 13, 14, 9])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dst_indices", [PAGES, SCATTERED], ids=["pages", "scattered"])
def test_direct(dtype, dst_indices):
    """Tokens are copied byte for byte, in whole pages or scattered, for several layers of several widths."""
    widths = [(2, 8), (2, 36), (1, 5)]
    src = [pool(24, *shape, dtype=dtype, seed=i) for i, shape in enumerate(widths)]
    dst = [pool(30, *shape, dtype=dtype, seed=9 + i) for i, shape in enumerate(widths)]
    check_direct(src, dst, PAGES, dst_indices, page_size=4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_direct_strided(dtype):
    """Layers may have any strides and offset: rows apart, heads apart, dimensions swapped."""
    base = pool(24, 3, 4, 8, dtype=dtype)
    target = pool(3, 30, 4, 16, dtype=dtype, seed=1)
    swapped = pool(4, 8, 30, dtype=dtype, seed=2).permute(2, 0, 1)
    src = [base[:, 1], base[:, 2], base[1:, 0]]
    dst = [target[1, :, :, 8:], target[2, ..., ::2], swapped]
    check_direct(src, dst, PAGES[:8], SCATTERED[:8])


def test_direct_long_runs_apart():
    """Long runs of wide rows leave what lies between rows alone, where both sides have the same gaps."""
    src, dst = pool(24, 4096), pool(30, 4096, seed=1)
    want = dst.clone()
    token_loop([src[:, 1024:2048]], [want[:, 1024:2048]], PAGES, PAGES)
    kvcacheio.transfer_kv_direct([src[:, 1024:2048]], [dst[:, 1024:2048]], PAGES, PAGES, 4)
    assert same(dst, want)


@pytest.mark.parametrize("strided", [False, True])
def test_direct_duplicates(strided):
    """Of several tokens for one slot the last one stays."""
    src, dst = pool(24, 2, 8), pool(30, 2, 16, seed=1)
    dst = dst[..., ::2] if strided else dst[..., :8].contiguous()
    generator = torch.Generator().manual_seed(3)
    src_indices = torch.randint(24, (500,), generator=generator)
    check_direct([src], [dst], src_indices, torch.randint(30, (500,), generator=generator))


@pytest.mark.parametrize(("tokens", "row"), [(300, 2057), (40_000, 8)])
def test_direct_duplicates_on_several_threads(tokens, row):
    """Torch writes rows in parallel where their elements are many, in no order."""
    src, dst = pool(tokens, row), pool(30, row, seed=1)
    generator = torch.Generator().manual_seed(4)
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        for _ in range(20):
            slots = torch.randint(30, (tokens,), generator=generator)
            kvcacheio.transfer_kv_direct([src], [dst], torch.arange(tokens), slots, 1)
            last = torch.zeros(30, dtype=torch.int64).scatter_reduce_(0, slots, torch.arange(tokens), "amax")
            assert same(dst, src[last])
    finally:
        torch.set_num_threads(threads)


def test_direct_conversion():
    """Between dtypes values are converted as ``Tensor.copy_`` does."""
    src = torch.linspace(-900, 900, 24 * 16).view(24, 2, 8)
    for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float64, torch.int32):
        check_direct([src], [torch.zeros(30, 2, 8, dtype=dtype)], PAGES, SCATTERED)


def test_direct_broadcast():
    """A source token is broadcast over the destination's as ``Tensor.copy_`` does."""
    check_direct([pool(24, 1, 8)], [pool(30, 3, 8, seed=1)], PAGES, SCATTERED)


@pytest.mark.parametrize("strided", [False, True])
def test_direct_same_pool(strided):
    """Within one pool the runs are copied in order: a later run reads what an earlier one wrote."""
    memory = pool(40, 2, 16)
    layer = memory[..., ::2] if strided else memory
    want = layer.clone()
    src_indices = torch.tensor([0, 1, 2, 10, 11, 30, 20])
    dst_indices = torch.tensor([10, 11, 12, 30, 31, 5, 0])
    token_loop([want], [want], src_indices, dst_indices)
    kvcacheio.transfer_kv_direct([layer], [layer], src_indices, dst_indices, 1)
    assert same(layer, want)


def test_direct_overlapping_run():
    """A run that overlaps itself is read before it is written."""
    layer = pool(40, 16)
    want = torch.cat([layer[:1], layer[:30], layer[31:]])
    rows = torch.arange(30)
    kvcacheio.transfer_kv_direct([layer], [layer], rows, rows + 1, 30)
    assert same(layer, want)


def test_direct_strided_indices():
    """Index tensors with gaps are read element by element, whatever their shape."""
    spaced = torch.full((24,), -1)
    spaced[::2] = PAGES
    src, dst = pool(24, 8), pool(30, 8, seed=1)
    want = dst.clone()
    token_loop([src], [want], PAGES, SCATTERED)
    kvcacheio.transfer_kv_direct([src], [dst], spaced[::2], SCATTERED.view(3, 4), 4)
    assert same(dst, want)


def test_direct_nothing():
    """Without indices, layers or bytes nothing happens."""
    none = torch.empty(0, dtype=torch.int64)
    dst = pool(30, 8, seed=1)
    want = dst.clone()
    kvcacheio.transfer_kv_direct([pool(24, 8)], [dst], none, none, 4)
    kvcacheio.transfer_kv_direct([], [], PAGES, PAGES, 4)
    kvcacheio.transfer_kv_direct([torch.empty(24, 0)], [torch.empty(30, 0)], PAGES, PAGES, 4)
    assert same(dst, want)


PAGE, LAYERS = 4, 3
PAGE_NUMBERS, STARTS = [5, 0, 3], [9, 2, 15]


def pages_of(numbers, offset=0):
    """Return an index of each token of pages; only the first of each page counts, so the rest is nonsense."""
    first = torch.tensor(numbers) * PAGE + offset
    return torch.stack([first, *[torch.full_like(first, 10**6)] * (PAGE - 1)], dim=1).flatten()


def starts_of(starts):
    return torch.stack([torch.tensor(starts), *[torch.full((len(starts),), -5)] * (PAGE - 1)], dim=1).flatten()


def page_first_scene(dtype, buffers, strided=False):
    """Return host pools ``[pages, L, P, H, D]`` and, for each, three layers ``[T, H, D]`` of the same width."""
    widths = [8, 12][:buffers]  # K and V may differ in width
    pools = [pool(6, LAYERS, PAGE, 2, width * 2, dtype=dtype, seed=i) for i, width in enumerate(widths)]
    pools = [p[..., ::2] if strided else p[..., : p.shape[-1] // 2].contiguous() for p in pools]
    layers = [pool(20, 2, w, dtype=dtype, seed=9 + j) for w in widths for j in range(LAYERS)]
    return pools, layers


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_page_first_to_layers(dtype, buffers, strided):
    """Whole pages go to any slots of the layers from ``layer_id`` on, K and V of different widths."""
    pools, layers = page_first_scene(dtype, buffers, strided)
    picked = [layers[b * LAYERS + j] for b in range(buffers) for j in range(2)]
    want, sources = [layer.clone() for layer in layers], [p.clone() for p in pools]
    for page, start in zip(PAGE_NUMBERS, STARTS, strict=True):
        for b in range(buffers):
            for j in range(2):
                want[b * LAYERS + j][start : start + PAGE].copy_(pools[b][page, 1 + j])
    kvcacheio.transfer_kv_per_layer_direct_pf_lf(pools, picked, pages_of(PAGE_NUMBERS, 3), starts_of(STARTS), 1, PAGE)
    assert all(map(same, layers, want))
    assert all(map(same, pools, sources))


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layers_to_page_first(dtype, buffers, strided):
    """Any run of slots of each layer goes to whole pages, from layer 0 on."""
    pools, layers = page_first_scene(dtype, buffers, strided)
    want, sources = [p.clone() for p in pools], [layer.clone() for layer in layers]
    for page, start in zip(PAGE_NUMBERS, STARTS, strict=True):
        for b in range(buffers):
            for j in range(LAYERS):
                want[b][page, j].copy_(layers[b * LAYERS + j][start : start + PAGE])
    kvcacheio.transfer_kv_all_layer_direct_lf_pf(layers, pools, starts_of(STARTS), pages_of(PAGE_NUMBERS, 1), PAGE)
    assert all(map(same, pools, want))
    assert all(map(same, layers, sources))


@pytest.mark.parametrize("strided", [False, True])
def test_pages_that_overlap(strided):
    """Pages to slots that overlap, or to one page, are copied in order: the last one stays."""
    pools, layers = page_first_scene(torch.uint8, 1, strided)
    want = layers[0].clone()
    for page, start in ((2, 4), (1, 6), (0, 4)):
        want[start : start + PAGE].copy_(pools[0][page, 0])
    kvcacheio.transfer_kv_per_layer_direct_pf_lf(pools, layers[:1], pages_of([2, 1, 0]), starts_of([4, 6, 4]), 0, PAGE)
    assert same(layers[0], want)

    want = pools[0].clone()
    want[3, 0].copy_(layers[0][8:12])
    kvcacheio.transfer_kv_all_layer_direct_lf_pf(layers[:1], pools, starts_of([1, 8]), pages_of([3, 3]), PAGE)
    assert same(pools[0], want)


def test_page_first_conversion():
    """Between dtypes values are converted as ``Tensor.copy_`` does."""
    layer = torch.linspace(-9, 9, 20 * 8).view(20, 8)
    host = torch.zeros(6, 1, PAGE, 8, dtype=torch.bfloat16)
    kvcacheio.transfer_kv_all_layer_direct_lf_pf([layer], [host], starts_of([3]), pages_of([2]), PAGE)
    assert same(host[2, 0], layer[3:7].to(torch.bfloat16))


@pytest.mark.parametrize("strided", [False, True])
def test_default_device(strided):
    """The device that torch creates tensors on by default does not matter."""
    pools, layers = page_first_scene(torch.uint8, 1, strided)
    pages, starts = pages_of([2]), starts_of([5])
    with torch.device("meta"):
        kvcacheio.transfer_kv_per_layer_direct_pf_lf(pools, layers[:1], pages, starts, 1, PAGE)
    assert same(layers[0][5:9], pools[0][2, 1])


def test_page_first_nothing():
    """Without indices or layers nothing happens."""
    none = torch.empty(0, dtype=torch.int64)
    pools, layers = page_first_scene(torch.uint8, 1)
    want = [t.clone() for t in pools + layers]
    kvcacheio.transfer_kv_per_layer_direct_pf_lf(pools, layers, none, none, 0, PAGE)
    kvcacheio.transfer_kv_all_layer_direct_lf_pf(layers, pools, none, none, PAGE)
    kvcacheio.transfer_kv_per_layer_direct_pf_lf(pools, [], pages_of([1]), starts_of([1]), 0, PAGE)
    assert all(map(same, pools + layers, want))
