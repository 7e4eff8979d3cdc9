"""The ten kernel ops against a loop over tokens, layers and heads."""

from __future__ import annotations

import math

import pytest
import torch

from pytest_sglhw import kvcacheio

#: op -> source layout, destination layout, buffers, all layers at once.
OPS = {
    "transfer_kv_per_layer": ("layer_first", "layer_first", 2, False),
    "transfer_kv_per_layer_pf_lf": ("page_first", "layer_first", 2, False),
    "transfer_kv_per_layer_ph_lf": ("page_head", "layer_first", 2, False),
    "transfer_kv_all_layer": ("layer_first", "layer_first", 2, True),
    "transfer_kv_all_layer_lf_pf": ("layer_first", "page_first", 2, True),
    "transfer_kv_all_layer_lf_ph": ("layer_first", "page_head", 2, True),
    "transfer_kv_per_layer_mla": ("layer_first", "layer_first", 1, False),
    "transfer_kv_per_layer_mla_pf_lf": ("page_first", "layer_first", 1, False),
    "transfer_kv_all_layer_mla": ("layer_first", "layer_first", 1, True),
    "transfer_kv_all_layer_mla_lf_pf": ("layer_first", "page_first", 1, True),
}

#: heads, bytes of a head, dtype: items of 8 to 1152 bytes, among them heads whose bytes are not a multiple of 8.
ITEMS = [
    (1, 8, torch.uint8),
    (2, 8, torch.float16),
    (3, 8, torch.int8),
    (9, 8, torch.float32),
    (4, 20, torch.bfloat16),
    (8, 9, torch.float8_e5m2),
    (3, 16, torch.float8_e4m3fn),
    (1, 576, torch.bfloat16),
    (2, 328, torch.uint8),
    (8, 144, torch.float32),
]

LAYERS = 3


class Pool:
    """The bytes of one buffer between guards, and where the logical ``(layer, token, head)`` lies in them."""

    def __init__(self, layout, tokens, item, page_size, seed, guard=48):
        heads, head_bytes, self.dtype = item
        self.layout, self.page_size, self.item_size = layout, page_size, heads * head_bytes
        self.order = [2, 0, 1]  # layer l of a layer_first buffer is the order[l]-th in memory
        shape = {
            "layer_first": (LAYERS, tokens, heads, head_bytes),
            "page_first": (tokens, LAYERS, heads, head_bytes),
            "page_head": (tokens // page_size, heads, page_size, LAYERS, head_bytes),
        }[layout]
        size = math.prod(shape)
        generator = torch.Generator().manual_seed(seed)
        self.image = torch.randint(0, 256, (guard + size + 40,), dtype=torch.uint8, generator=generator)
        self.bytes = self.image[guard : guard + size].view(shape)

    def at(self, layer, token, head):
        if self.layout == "layer_first":
            return self.bytes[self.order[layer], token, head]
        if self.layout == "page_first":
            return self.bytes[token, layer, head]
        return self.bytes[token // self.page_size, head, token % self.page_size, layer]

    def argument(self, all_layers, layer):
        """What the op takes for this buffer."""
        if self.layout != "layer_first":
            return self.bytes.view(self.dtype)
        if all_layers:
            return torch.tensor([self.bytes[i].data_ptr() for i in self.order], dtype=torch.uint64)
        return self.bytes[self.order[layer]].view(self.dtype)


class Scene:
    """Source and destination buffers of one call."""

    def __init__(self, op, item, page_size=4, src_tokens=24, dst_tokens=32, guard=48):
        self.op = op
        self.src_layout, self.dst_layout, buffers, self.all_layers = OPS[op]
        self.item, self.page_size = item, page_size
        self.src = [Pool(self.src_layout, src_tokens, item, page_size, 10 + i, guard) for i in range(buffers)]
        self.dst = [Pool(self.dst_layout, dst_tokens, item, page_size, 20 + i, guard + 16) for i in range(buffers)]

    def arguments(self, src_indices, dst_indices, layer):
        pools = [pool for pair in zip(self.src, self.dst, strict=True) for pool in pair]
        arguments = [pool.argument(self.all_layers, layer) for pool in pools] + [src_indices, dst_indices]
        item_size = self.item[0] * self.item[1]
        pooled = {self.src_layout, self.dst_layout} - {"layer_first"}
        if pooled and not self.all_layers:
            arguments.append(layer)
        arguments.append(item_size)
        if pooled:
            arguments.append(LAYERS * item_size)
        if self.all_layers:
            arguments.append(LAYERS)
        if "page_head" in pooled:
            arguments += [self.page_size, self.item[0]]
        return arguments

    def expect(self, src_indices, dst_indices, layer):
        """Return what the images must be afterwards: copies in the order of the indices."""
        before = [pool.image.clone() for pool in self.dst]
        for source, destination in zip(self.src, self.dst, strict=True):
            for s, d in zip(src_indices.flatten().tolist(), dst_indices.flatten().tolist(), strict=True):
                for one in range(LAYERS) if self.all_layers else [layer]:
                    for head in range(self.item[0]):
                        destination.at(one, d, head).copy_(source.at(one, s, head))
        want = [pool.image.clone() for pool in self.dst]
        for pool, image in zip(self.dst, before, strict=True):
            pool.image.copy_(image)
        return want + [pool.image.clone() for pool in self.src]

    def run(self, src_indices, dst_indices, layer=1, **options):
        want = self.expect(src_indices, dst_indices, layer)
        getattr(kvcacheio, self.op)(*self.arguments(src_indices, dst_indices, layer), **options)
        for pool, image in zip([*self.dst, *self.src], want, strict=True):
            assert torch.equal(pool.image, image)


SRC = torch.tensor([5, 0, 23, 7, 6, 5, 12])
DST = torch.tensor([31, 2, 0, 9, 30, 17, 1])


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: f"{item[0]}x{item[1]}-{str(item[2])[6:]}")
@pytest.mark.parametrize("op", OPS)
def test_bytes(op, item):
    """Every selected byte arrives, no other byte changes, whatever the dtype and the size of a head."""
    Scene(op, item).run(SRC, DST)


@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize("op", [op for op in OPS if "per_layer" in op])
def test_each_layer(op, layer):
    """A per-layer op reads the layer that it is given."""
    Scene(op, (2, 24, torch.bfloat16)).run(SRC, DST, layer)


@pytest.mark.parametrize("page_size", [1, 2, 3, 4, 8, 24])
@pytest.mark.parametrize("op", ["transfer_kv_per_layer_ph_lf", "transfer_kv_all_layer_lf_ph"])
def test_page_sizes(op, page_size):
    """A page_head pool is found by any page size, a power of two or not."""
    Scene(op, (3, 16, torch.int8), page_size, src_tokens=24, dst_tokens=48).run(SRC, DST)


@pytest.mark.parametrize("op", OPS)
def test_whole_pool_permuted(op):
    """A permutation of all slots, in a two-dimensional index tensor on one side, is copied slot by slot."""
    generator = torch.Generator().manual_seed(1)
    src, dst = torch.randperm(24, generator=generator), torch.randperm(32, generator=generator)[:24]
    Scene(op, (2, 8, torch.float16)).run(src.view(4, 6), dst)


@pytest.mark.parametrize("op", OPS)
def test_duplicates(op):
    """A source slot may occur twice; of a destination slot that occurs twice the last one stays."""
    Scene(op, (2, 40, torch.float32)).run(torch.tensor([3, 3, 4, 9, 2]), torch.tensor([7, 8, 7, 30, 7]))


@pytest.mark.parametrize("op", OPS)
def test_duplicates_many(op):
    """The last one stays also where there is work for many threads and several chunks."""
    generator = torch.Generator().manual_seed(2)
    scene = Scene(op, (2, 576, torch.uint8))
    scene.run(torch.randint(24, (600,), generator=generator), torch.randint(32, (600,), generator=generator))


@pytest.mark.parametrize("op", OPS)
def test_strided_indices(op):
    """Index tensors that are views with gaps or in reverse are read element by element."""
    src, dst = torch.full((14,), 999), torch.full((3, 7), -999)
    src[::2], dst[1] = SRC, DST
    Scene(op, (2, 8, torch.uint8)).run(src[::2], dst.t()[:, 1])


@pytest.mark.parametrize("op", OPS)
def test_empty(op):
    """Without indices nothing happens."""
    none = torch.empty(0, dtype=torch.int64)
    Scene(op, (2, 8, torch.uint8)).run(none, none)


@pytest.mark.parametrize("guard", [40, 44, 45])
@pytest.mark.parametrize("op", OPS)
def test_unaligned(op, guard):
    """Buffers may start at any address."""
    Scene(op, (2, 8, torch.uint8), guard=guard).run(SRC, DST)


@pytest.mark.parametrize("options", [{"block_quota": 1}, {"block_quota": 132, "num_warps_per_block": 1}])
@pytest.mark.parametrize("op", OPS)
def test_launch_shape(op, options):
    """The shape of upstream's launch grid changes no byte."""
    Scene(op, (2, 8, torch.uint8)).run(SRC, DST, **options)


@pytest.mark.parametrize("op", OPS)
def test_long_runs(op):
    """Runs of wide rows are copied whole, in order: of those that write the same slots the last one stays."""
    src = torch.cat([torch.arange(8, 24), torch.arange(0, 12)])
    dst = torch.cat([torch.arange(3, 19), torch.arange(12, 24)])
    Scene(op, (8, 144, torch.float32)).run(src, dst)


@pytest.mark.parametrize("op", OPS)
def test_default_device(op):
    """The device that torch creates tensors on by default does not matter."""
    scene = Scene(op, (4, 8, torch.uint8))
    want = scene.expect(SRC, DST, 1)
    arguments = scene.arguments(SRC, DST, 1)
    with torch.device("meta"):
        getattr(kvcacheio, op)(*arguments)
    assert all(torch.equal(pool.image, image) for pool, image in zip([*scene.dst, *scene.src], want, strict=True))


def test_nan_patterns():
    """Every bit pattern survives: the 65536 of a 16-bit float, in rows wide enough for the widest element."""
    src = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(-1, 8)
    dst = torch.zeros_like(src)
    rows = torch.arange(len(src))
    kvcacheio.transfer_kv_per_layer_mla(src.view(torch.float16), dst.view(torch.float16), rows, rows.flip(0), 16)
    assert torch.equal(dst.flip(0), src)


def test_overlap():
    """Within one pool all rows of a layer are read before any is written, in any number of chunks."""
    pool = torch.randint(0, 256, (2001, 1024), dtype=torch.uint8)
    want = torch.cat([pool[:1], pool[:-1]])
    rows = torch.arange(2000)
    kvcacheio.transfer_kv_per_layer_mla(pool, pool, rows, rows + 1, 1024)
    assert torch.equal(pool, want)


def test_part_of_a_page_first_pool():
    """A page_first pool may be a slice of layers of a larger one: the layout dim gives the distance of tokens."""
    pool = torch.randint(0, 256, (6, 5, 2, 8), dtype=torch.uint8)
    dst = torch.zeros(6, 2, 8, dtype=torch.uint8)
    rows = torch.arange(6)
    kvcacheio.transfer_kv_per_layer_mla_pf_lf(pool[:, 2:], dst, rows, rows, 1, 16, 80)
    assert torch.equal(dst, pool[:, 3])


def test_longer_tables():
    """Tables other than the first may have more layers than are copied."""
    src, dst = torch.randint(0, 256, (2, 4, 8), dtype=torch.uint8), torch.zeros(3, 4, 8, dtype=torch.uint8)
    tables = [torch.tensor([layer.data_ptr() for layer in pool], dtype=torch.uint64) for pool in (src, dst)]
    rows = torch.arange(4)
    kvcacheio.transfer_kv_all_layer_mla(*tables, rows, rows, 8, 2)
    assert torch.equal(dst[:2], src)
    assert not dst[2].any()


def test_tables_of_any_shape():
    """Tables are read element by element: they may have gaps, or a second dimension."""
    src, dst = torch.randint(0, 256, (2, 4, 8), dtype=torch.uint8), torch.zeros(2, 4, 8, dtype=torch.uint8)
    pairs = [[s.data_ptr(), d.data_ptr()] for s, d in zip(src, dst, strict=True)]
    both = torch.tensor(pairs, dtype=torch.uint64)
    rows = torch.arange(4)
    kvcacheio.transfer_kv_all_layer_mla(both[:, 0], both[:, 1:], rows, rows.flip(0), 8, 2)
    assert torch.equal(dst.flip(1), src)


@pytest.mark.parametrize("op", [op for op in OPS if "all_layer" in op])
def test_no_layers(op):
    """Tables without layers copy nothing."""
    scene = Scene(op, (2, 8, torch.uint8))
    before = [pool.image.clone() for pool in scene.dst]
    arguments = scene.arguments(SRC, DST, 0)
    tables = [a[:0] if isinstance(a, torch.Tensor) and a.dtype == torch.uint64 else a for a in arguments]
    num_layers = len(tables) - (3 if "ph" in op else 1)
    tables[num_layers] = 0
    getattr(kvcacheio, op)(*tables)
    assert all(torch.equal(pool.image, image) for pool, image in zip(scene.dst, before, strict=True))
