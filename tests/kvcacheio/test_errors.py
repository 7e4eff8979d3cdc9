"""What the transfer ops refuse: upstream's texts in upstream's order, then our own; nothing is written."""

from __future__ import annotations

import inspect

import pytest
import torch

from pytest_sglhw import kvcacheio

T, L, H, P, ITEM = 8, 3, 2, 4, 16
KERNEL_OPS = [
    "transfer_kv_per_layer",
    "transfer_kv_per_layer_pf_lf",
    "transfer_kv_per_layer_ph_lf",
    "transfer_kv_all_layer",
    "transfer_kv_all_layer_lf_pf",
    "transfer_kv_all_layer_lf_ph",
    "transfer_kv_per_layer_mla",
    "transfer_kv_per_layer_mla_pf_lf",
    "transfer_kv_all_layer_mla",
    "transfer_kv_all_layer_mla_lf_pf",
]
ALL_LAYER = [op for op in KERNEL_OPS if "all_layer" in op]
POOLED = [op for op in KERNEL_OPS if op.endswith(("_pf_lf", "_ph_lf", "_lf_pf", "_lf_ph"))]
PAGE_HEAD = [op for op in KERNEL_OPS if "ph" in op]
DIRECT_OPS = ["transfer_kv_direct", "transfer_kv_per_layer_direct_pf_lf", "transfer_kv_all_layer_direct_lf_pf"]

#: Layer buffers behind the tables: they must outlive the calls.
MEMORY = torch.zeros(8, T * ITEM, dtype=torch.uint8)


def buffer(op, name):
    """Return a fresh tensor for an argument: a table, a pool of all layers, or one layer."""
    if name.endswith("layers"):
        return torch.tensor([row.data_ptr() for row in MEMORY[:L]], dtype=torch.uint64)
    whole = ("_pf_lf" in op or "_ph_lf" in op) if name.startswith("src") else ("_lf_p" in op)
    return torch.zeros(T, L, ITEM, dtype=torch.uint8) if whole else torch.zeros(T, ITEM, dtype=torch.uint8)


def arguments(op):
    """Return valid arguments for a kernel op by name."""
    sizes = {
        "src_indices": torch.tensor([1, 5]),
        "dst_indices": torch.tensor([2, 3]),
        "layer_id": 1,
        "item_size": ITEM,
        "src_layout_dim": L * ITEM,
        "dst_layout_dim": L * ITEM,
        "num_layers": L,
        "page_size": P,
        "head_num": H,
        "block_quota": 2,
        "num_warps_per_block": 4,
    }
    names = inspect.signature(getattr(kvcacheio, op)).parameters
    return {name: sizes[name] if name in sizes else buffer(op, name) for name in names}


def refuse(op, error, message, **changed):
    """Check that a call with these arguments changed raises exactly this, and that no byte has changed."""
    given = arguments(op) | changed
    before = MEMORY.clone()
    with pytest.raises(error) as caught:
        getattr(kvcacheio, op)(**given)
    assert type(caught.value) is error
    assert str(caught.value) == message
    assert torch.equal(MEMORY, before)
    pools = [given[name] for name in given if name.startswith("dst") and name != "dst_indices"]
    pools = [pool for pool in pools if isinstance(pool, torch.Tensor) and pool.dtype == torch.uint8]
    assert not any(pool.any() for pool in pools if pool.device.type == "cpu")


@pytest.mark.parametrize("op", KERNEL_OPS)
def test_valid(op):
    """The arguments that the tests of this file spoil are valid."""
    getattr(kvcacheio, op)(**arguments(op))


INDEX_ERRORS = {
    "src device": ({"src_indices": torch.empty(2, device="meta")}, "Source indices must be a CPU tensor"),
    "dst device": ({"dst_indices": torch.empty(2, device="meta")}, "Destination indices must be a CPU tensor"),
    "src int32": ({"src_indices": torch.tensor([1, 5]).int()}, "Source indices must be of type long"),
    "dst int32": ({"dst_indices": torch.tensor([1, 5]).int()}, "Destination indices must be of type long"),
    "length": ({"src_indices": torch.tensor([1])}, "Source and destination indices must have the same length"),
    "width": ({"item_size": 12}, "Item byte size must be divisible by 8"),
    "no width": ({"item_size": 0}, "Item byte size must be positive, got 0"),
    "quota": ({"block_quota": 0}, "block_quota must be positive, got 0"),
    "warps": ({"num_warps_per_block": 0}, "num_warps_per_block must be positive, got 0"),
}


@pytest.mark.parametrize("case", INDEX_ERRORS)
@pytest.mark.parametrize("op", KERNEL_OPS)
def test_launch(op, case):
    """Every kernel op checks its indices and item size."""
    changed, message = INDEX_ERRORS[case]
    refuse(op, RuntimeError, message, **changed)


@pytest.mark.parametrize("op", KERNEL_OPS)
def test_order_of_launch_checks(op):
    """Of several wrong arguments the one is named that upstream checks first."""
    cases = [{**changed} for changed, _ in INDEX_ERRORS.values()]
    for first, (case, (changed, message)) in enumerate(INDEX_ERRORS.items()):
        later = {}
        for other in cases[first + 1 :]:
            later.update({k: v for k, v in other.items() if k not in changed})
        if case in ("src int32", "dst int32"):
            later.pop("src_indices" if case == "src int32" else "dst_indices", None)
        refuse(op, RuntimeError, message, **later | changed)


@pytest.mark.parametrize("op", ALL_LAYER)
def test_layer_count(op):
    """The first table must have ``num_layers`` entries: checked before anything else."""
    name = "source tensor" if "mla" in op else "source k tensor"
    message = f"Number of layers in {name} does not match num_layers"
    refuse(op, RuntimeError, message, num_layers=L - 1, src_indices=torch.tensor([1]).int(), item_size=12)
    refuse(op, RuntimeError, message, num_layers=L + 1)


@pytest.mark.parametrize("op", ALL_LAYER)
def test_tables(op):
    """Tables must be of uint64, on the CPU, long enough and without null pointers."""
    for name in [name for name in arguments(op) if name.endswith("layers") and name != "num_layers"]:
        table = arguments(op)[name]
        refuse(op, RuntimeError, "expected scalar type UInt64 but found Long", **{name: table.long()})
        refuse(op, RuntimeError, f"{name} must be a CPU tensor", **{name: table.to("meta")})
        null = table.clone()
        null[1] = 0
        refuse(op, RuntimeError, f"{name} holds a null pointer", **{name: null})
        if name not in ("src_k_layers", "src_layers"):
            message = f"{name} has 2 layer addresses, fewer than num_layers 3"
            refuse(op, RuntimeError, message, **{name: table[:2]})


@pytest.mark.parametrize("op", KERNEL_OPS)
def test_pools(op):
    """Pools must be on the CPU, and a layer must be contiguous."""
    for name, pool in arguments(op).items():
        if not isinstance(pool, torch.Tensor) or pool.dtype != torch.uint8:
            continue
        refuse(op, RuntimeError, f"{name} must be a CPU tensor", **{name: pool.to("meta")})
        if pool.dim() == 2:
            message = f"{name} must be contiguous: its tokens are addressed every item_size bytes"
            refuse(op, RuntimeError, message, **{name: torch.zeros(T, 2 * ITEM, dtype=torch.uint8)[:, ::2]})


@pytest.mark.parametrize("op", KERNEL_OPS)
def test_negative_slots(op):
    """A negative slot lies before any buffer."""
    refuse(op, IndexError, "Source index -1 is negative", src_indices=torch.tensor([4, -1]))
    refuse(op, IndexError, "Destination index -3 is negative", dst_indices=torch.tensor([-3, 0]))


@pytest.mark.parametrize(
    ("op", "side"),
    [
        (op, side)
        for op in KERNEL_OPS
        for side in ("src", "dst")
        if op not in ALL_LAYER or (side == "dst" and op in POOLED)
    ],
)
def test_slots_beyond_a_tensor(op, side):
    """A slot is refused if its bytes do not lie within the tensor; behind a table of addresses nothing can be known."""
    given = arguments(op)
    name = next(name for name in given if name.startswith(side) and name != f"{side}_indices")
    pool = given[name]
    held = pool.numel()
    layers = 1 if pool.dim() == 2 else L
    layer = (1 if "per_layer" in op else L - 1) if layers > 1 else 0
    heads = H if "ph" in op and layers > 1 else 1
    last_page = (T // P * P * layers * ITEM) if heads > 1 else T * layers * ITEM
    end = last_page + ((heads - 1) * P * layers * ITEM // heads) + (layer + 1) * ITEM // heads
    message = f" index {T} is out of range: it ends at byte {end}, beyond the {held} bytes of {name}"
    word = "Source" if side == "src" else "Destination"
    refuse(op, IndexError, word + message, **{f"{side}_indices": torch.tensor([1, T])})


@pytest.mark.parametrize("op", KERNEL_OPS)
def test_last_slot(op):
    """The last slot of a pool is within reach."""
    last = torch.tensor([T - 1])
    getattr(kvcacheio, op)(**arguments(op) | {"src_indices": last, "dst_indices": last})


@pytest.mark.parametrize("op", [op for op in POOLED if "per_layer" in op])
@pytest.mark.parametrize("layer_id", [-1, L])
def test_layer_out_of_range(op, layer_id):
    """A layer that a token's bytes do not hold is refused: upstream reads those of another token."""
    message = f"layer {layer_id} of 16 bytes out of range: a layout dim of 48 bytes holds 3 layers"
    refuse(op, IndexError, message, layer_id=layer_id)


@pytest.mark.parametrize("op", [op for op in POOLED if "all_layer" in op])
def test_layout_dim_too_small(op):
    """All layers must fit into a token's bytes: upstream writes those of the next token."""
    message = "layers 0 to 2 of 16 bytes out of range: a layout dim of 32 bytes holds 2 layers"
    refuse(op, IndexError, message, dst_layout_dim=32)


@pytest.mark.parametrize("op", PAGE_HEAD)
def test_heads_and_pages(op):
    """page_head needs pages, heads, and heads of whole bytes."""
    refuse(op, RuntimeError, "Page size must be positive", page_size=0)
    refuse(op, RuntimeError, "head_num must be positive, got 0", head_num=0)
    refuse(op, RuntimeError, "Item byte size 16 must be divisible by head_num 3", head_num=3)
    dim = "src_layout_dim" if "per_layer" in op else "dst_layout_dim"
    refuse(op, RuntimeError, "Layout byte size 55 must be divisible by head_num 2", **{dim: 55})


def direct_call(op, **changed):
    """Call a direct op with valid arguments of which some are changed."""
    layers, pools = [torch.zeros(T, 2) for _ in range(4)], [torch.zeros(2, 2, P, 2) for _ in range(2)]
    src, dst = {"transfer_kv_per_layer_direct_pf_lf": (pools, layers), "transfer_kv_direct": (layers, layers)}.get(
        op, (layers, pools)
    )
    names = list(inspect.signature(getattr(kvcacheio, op)).parameters)
    given = {names[0]: src, names[1]: dst, "src_indices": torch.arange(P), "dst_indices": torch.arange(P)}
    given |= {"layer_id": 0} if "layer_id" in names else {}
    return getattr(kvcacheio, op)(**given | {"page_size": P} | changed)


DIRECT_ERRORS = {
    "length": ({"src_indices": torch.arange(8)}, "Source and destination indices must have the same length"),
    "no page": ({"page_size": 0}, "Page size must be positive"),
    "part of a page": ({"page_size": 3}, "Source indices size must be divisible by page size"),
    "src int32": ({"src_indices": torch.arange(P).int()}, "expected scalar type Long but found Int"),
    "dst int32": ({"dst_indices": torch.arange(P).int()}, "expected scalar type Long but found Int"),
}


@pytest.mark.parametrize("case", DIRECT_ERRORS)
@pytest.mark.parametrize("op", DIRECT_OPS)
def test_direct(op, case):
    """Every direct op checks its indices and page size."""
    direct_call(op)
    changed, message = DIRECT_ERRORS[case]
    with pytest.raises(RuntimeError) as error:
        direct_call(op, **changed)
    assert str(error.value) == message


def test_direct_layer_count():
    """The number of layers is checked before anything else."""
    with pytest.raises(RuntimeError) as error:
        direct_call("transfer_kv_direct", src_layers=[torch.zeros(T, 2)], page_size=0, src_indices=torch.arange(3))
    assert str(error.value) == "Source and destination layers must have the same number of layers"


LAYERS_4 = [torch.zeros(T, 2)] * 4
POOLS_2 = [torch.zeros(2, 2, P, 2)] * 2
SHAPE_ERRORS = {
    "device": (
        "transfer_kv_direct",
        {"src_layers": [torch.zeros(T, 2, device="meta")] * 4},
        "Source layer must be a CPU tensor",
    ),
    "no tokens": (
        "transfer_kv_direct",
        {"src_layers": [torch.zeros(())] * 4},
        "Source layer of shape [] has no tokens",
    ),
    "token shape": (
        "transfer_kv_direct",
        {"dst_layers": [torch.zeros(T, 3)] * 4},
        "a source token of shape [2] does not fit a destination token of shape [3]",
    ),
    "token dimensions": (
        "transfer_kv_direct",
        {"dst_layers": [torch.zeros(T, 2, 2)] * 4},
        "a source token of shape [2] does not fit a destination token of shape [2, 2]",
    ),
    "pools": (
        "transfer_kv_per_layer_direct_pf_lf",
        {"src_ptrs": POOLS_2 + POOLS_2},
        "src_ptrs must be [kv] or [k, v], got 4 tensors",
    ),
    "layers": (
        "transfer_kv_per_layer_direct_pf_lf",
        {"dst_ptrs": LAYERS_4[:3]},
        "dst_ptrs must have as many layers of K as of V, got 3 tensors",
    ),
    "pool shape": (
        "transfer_kv_all_layer_direct_lf_pf",
        {"dst_ptrs": [torch.zeros(2, 4)]},
        "dst_ptrs must be [pages, layers, tokens, ...], got shape [2, 4]",
    ),
}


@pytest.mark.parametrize("case", SHAPE_ERRORS)
def test_direct_shapes(case):
    """Tensors that do not fit are named with their shapes."""
    op, changed, message = SHAPE_ERRORS[case]
    with pytest.raises(RuntimeError) as error:
        direct_call(op, **changed)
    assert str(error.value) == message


RANGE_ERRORS = {
    "before": (
        "transfer_kv_direct",
        {"src_indices": torch.tensor([-2, -1, 0, 1])},
        "Source index -2 is out of range for a dimension of size 8",
    ),
    "run past the end": (
        "transfer_kv_direct",
        {"dst_indices": torch.arange(7, 11)},
        "Destination index 10 is out of range for a dimension of size 8",
    ),
    "page": (
        "transfer_kv_per_layer_direct_pf_lf",
        {"src_indices": torch.tensor([8, 0, 0, 0])},
        "Source index 2 is out of range for a dimension of size 2",
    ),
    "page before": (
        "transfer_kv_all_layer_direct_lf_pf",
        {"dst_indices": torch.tensor([-1, 0, 0, 0])},
        "Destination index -1 is out of range for a dimension of size 2",
    ),
    "page size": (
        "transfer_kv_all_layer_direct_lf_pf",
        {"dst_ptrs": [torch.zeros(2, 4, 3, 2)]},
        "Destination index 3 is out of range for a dimension of size 3",
    ),
    "start": (
        "transfer_kv_all_layer_direct_lf_pf",
        {"src_indices": torch.tensor([5, 0, 0, 0])},
        "Source index 8 is out of range for a dimension of size 8",
    ),
    "layers": (
        "transfer_kv_per_layer_direct_pf_lf",
        {"layer_id": 1},
        "layers 1 to 2 are out of range: src_ptrs holds 2 layers",
    ),
    "layer before": (
        "transfer_kv_per_layer_direct_pf_lf",
        {"layer_id": -1},
        "layers -1 to 0 are out of range: src_ptrs holds 2 layers",
    ),
}


@pytest.mark.parametrize("case", RANGE_ERRORS)
def test_direct_out_of_range(case):
    """Slots, pages and layers that do not exist are refused; upstream clamps, wraps or broadcasts."""
    op, changed, message = RANGE_ERRORS[case]
    with pytest.raises(IndexError) as error:
        direct_call(op, **changed)
    assert str(error.value) == message
