"""Every kernel of the families: two independent implementations agree, and planted faults are told from them."""

from __future__ import annotations

import dataclasses
import types
from collections import Counter
from pathlib import Path

import pytest
import torch

from pytest_sglhw.conformance.bench import Bench
from pytest_sglhw.conformance.checks import examine
from pytest_sglhw.conformance.devices import Place
from pytest_sglhw.conformance.failures import BrokenLawError
from pytest_sglhw.conformance.families import (
    kv4,
    nvfp4,
    pages,
    selection,
    slot_mapping,
    slot_moves,
    store,
    store_scaled,
    swap_in,
    transfers,
)
from pytest_sglhw.conformance.known_gaps import GAPS
from pytest_sglhw.conformance.strategies import PinnedDraw

FAMILIES = (slot_moves, store, store_scaled, nvfp4, slot_mapping, swap_in, transfers, pages, kv4, selection)
KERNELS = {kernel.name: kernel for family in FAMILIES for kernel in family.KERNELS}


CELLS = [pytest.param(kernel, cell, id=cell.id) for kernel in KERNELS.values() for cell in kernel.cells()]


@pytest.mark.parametrize(("kernel", "cell"), CELLS)
def test_models_keep_every_law(kernel, cell, models, run_cell):
    """A second implementation, which shares nothing with the references, passes in every cell."""
    assert run_cell(kernel, cell, models) >= 8


@pytest.mark.parametrize("kernel", list(KERNELS.values()), ids=list(KERNELS))
def test_cases_are_fixed_by_their_repr(kernel):
    """The same seed draws the same case twice, and another seed another one."""
    cell = kernel.cells()[0]
    first, again, other = (kernel.workload.draw(cell, PinnedDraw(seed, {})) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@pytest.mark.parametrize("kernel", list(KERNELS.values()), ids=list(KERNELS))
def test_smaller_cases_can_be_built_and_get_smaller(kernel, models, run_cell):
    """Each case that reduction proposes is legal, and following the first proposals comes to an end."""
    cell, bench = kernel.cells()[-1], None
    case = kernel.workload.draw(cell, PinnedDraw(1, {}))
    bench = Bench(kernel, cell, models, Place("cpu"))
    for _ in range(300):
        proposals = list(kernel.workload.smaller(cell, case))
        if not proposals:
            return
        assert case not in proposals
        case = proposals[0]
        examine(bench, kernel.laws[0], case)
    pytest.fail(f"no end after 300 reductions: {case}")


def test_families_name_each_kernel_once():
    """No kernel stands in two families."""
    names = Counter(kernel.name for family in FAMILIES for kernel in family.KERNELS)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("gap", GAPS, ids=lambda gap: f"{gap.kernel}-{gap.layout}")
def test_known_gaps_are_cells_and_are_documented(gap):
    """Each row of the table of gaps names cells that exist, and a command in ``docs/findings.md``."""
    assert gap.layout in KERNELS[gap.kernel].layouts
    page = (Path(__file__).parents[3] / "docs" / "findings.md").read_text()
    command = f"sglhw conformance --kernels {gap.provider} --kernel {gap.kernel} --layout {gap.layout}\n"
    assert command in page
    assert f"| `{gap.kernel}` | `{gap.layout}` |" in page


def _swapped(models, name):
    """K's target gets V's rows, where they fit."""
    original = getattr(models, name)

    def store(k, v, *rest):
        original(*((v, k) if k.shape == v.shape else (k, v)), *rest)

    return store


def _rounded_away(models, name):
    def quantize(values):
        payload, scales = models.fp4_mx_block16_quantize(values)
        return payload, scales + 1

    return quantize


def _overlap(models, name):
    """Row after row, without gathering first."""

    def move(data_ptrs, strides, tgt_loc, src_loc):
        for target, source in zip(tgt_loc, src_loc, strict=True):
            models.copy_all_layer_kv_cache_tiled(data_ptrs, strides, target[None], source[None])

    return move


def _writes_padding(models, name):
    return lambda k, v, kc, vc, indices: models._store([(kc, k), (vc, v)], indices, skip=-1)


def _linear_v_scales(models, name):
    def store(*args):
        models.store_nvfp4_kv_cache(*args)
        if args[10] is not None:
            for token, slot in enumerate(args[4].tolist()):
                args[10][slot // args[11], :, slot % args[11]] = args[3][token]

    return store


def _padding_to_zero(models, name):
    return lambda mapping, locations: models.translate_padded_hisparse_locations(mapping, locations.clamp(min=0))


def _int64_always(models, name):
    return lambda mapping, locations: models.translate_padded_hisparse_locations(mapping, locations).long()


def _first_layer_only(models, name):
    def transfer(k_dst, v_dst, idx_dst, k_src, v_src, idx_src, **keywords):
        models.transfer_hicache_all_layer(k_dst[:1], v_dst[:1], idx_dst, k_src[:1], v_src[:1], idx_src, **keywords)

    return transfer


def _first_chunk_only(models, name):
    def transfer(table, src, dst, staging, host, *, page_size):
        tokens = len(staging)
        models.transfer_hicache_all_layer_mla_staged_lf_pf(
            table, src[:tokens], dst[:tokens], staging, host, page_size=page_size
        )

    return transfer


def _strided_taken_for_packed(models, name):
    """Refusals as they are, but a tensor with a stride is read as if it had none."""

    def transfer(k_dst, v_dst, idx_dst, k_src, v_src, idx_src, **keywords):
        idx_dst, idx_src = (each.as_strided(each.shape, (1,)) for each in (idx_dst, idx_src))
        models.transfer_hicache_one_layer(k_dst, v_dst, idx_dst, k_src, v_src, idx_src, **keywords)

    return transfer


def _other_tables_unseen(models, name):
    """Only the first table is looked at."""

    def transfer(k_dst, v_dst, idx_dst, k_src, v_src, idx_src, **keywords):
        v_src = v_src.view(torch.uint64)
        models.transfer_hicache_all_layer(k_dst, v_dst, idx_dst, k_src, v_src, idx_src, **keywords)

    return transfer


def _stride_of_sources_ignored(models, name):
    """The first index of a page is looked for as if the indices lay packed."""

    def transfer(table, src, dst, staging, host, *, page_size):
        packed = src.as_strided(src.shape, (1,))
        models.transfer_hicache_all_layer_mla_staged_lf_pf(table, packed, dst, staging, host, page_size=page_size)

    return transfer


def _indices_as_scratch(models, name):
    def transfer(dst, idx_dst, src, idx_src, **keywords):
        models.transfer_hicache_one_layer_mla(dst, idx_dst, src, idx_src, **keywords)
        idx_src.fill_(1 << 20)

    return transfer


def _layer_ignored(models, name):
    original = models.transfer_kv_mamba_pf_lf
    return lambda src, dst, a, b, layer, item, dim: original(src, dst, a, b, 0, item, dim)


def _scales_stay(models, name):
    def transfer(src_ptrs, dst_ptrs, src, dst):
        for source, target in zip(src_ptrs.tolist(), dst_ptrs.tolist(), strict=True):
            for fro, to in zip(src.tolist(), dst.tolist(), strict=True):
                models._copy(models._c4(target, to)[0][0], models._c4(source, fro)[0][0], 576)

    return transfer


def _kv_swapped_in_page(models, name):
    return lambda k, v, src, *rest: models.transfer_hicache_one_layer_page_unified_lf(v, k, src, *rest)


def _stale_outputs(models, name):
    def swap(top_k, tokens, hosts, devices, host, device, outs, *rest, num_real_reqs):
        before = outs.clone()
        models.load_cache_to_device_buffer_mla(
            top_k, tokens, hosts, devices, host, device, outs, *rest, num_real_reqs=num_real_reqs
        )
        outs[int(num_real_reqs) :] = before[int(num_real_reqs) :]

    return swap


def _lru_not_updated(models, name):
    def swap(*args, num_real_reqs):
        before = args[9].clone()
        models.load_cache_to_device_buffer_mla(*args, num_real_reqs=num_real_reqs)
        args[9].copy_(before)

    return swap


def _tail_dropped(models, name):
    def move(k_buffers, v_buffers, tgt_loc, src_loc, *scales):
        held = [buffer.view(torch.uint8)[tgt_loc.long(), :, 128:].clone() for buffer in v_buffers]
        models.move_kv_cache(k_buffers, v_buffers, tgt_loc, src_loc, *scales)
        for buffer, tail in zip(v_buffers, held, strict=True):
            buffer.view(torch.uint8)[tgt_loc.long(), :, 128:] = tail

    return move


def _scales_left_behind(models, name):
    return lambda k, v, tgt_loc, src_loc, *scales: models.move_kv_cache(k, v, tgt_loc, src_loc)


MUTANTS = (
    ("set_kv_buffer", _swapped, {"reference"}),
    ("set_kv_buffer", _writes_padding, {"untouched", "reference"}),
    ("copy_all_layer_kv_cache_tiled", _overlap, {"reference"}),
    ("move_kv_cache", _tail_dropped, {"reference"}),
    ("move_kv_cache", _scales_left_behind, {"reference"}),
    ("store_nvfp4_kv_cache", _linear_v_scales, {"reference", "untouched"}),
    ("translate_padded_hisparse_locations", _padding_to_zero, {"reference"}),
    ("translate_padded_hisparse_locations", _int64_always, {"reference"}),
    ("transfer_hicache_all_layer", _first_layer_only, {"reference"}),
    ("transfer_hicache_all_layer_mla_staged_lf_pf", _first_chunk_only, {"reference"}),
    ("transfer_hicache_all_layer_mla_staged_lf_pf", _stride_of_sources_ignored, {"reference", "untouched"}),
    ("transfer_hicache_one_layer", _strided_taken_for_packed, {"errors"}),
    ("transfer_hicache_all_layer", _other_tables_unseen, {"errors"}),
    ("transfer_hicache_one_layer_mla", _indices_as_scratch, {"source"}),
    ("transfer_kv_mamba_pf_lf", _layer_ignored, {"reference"}),
    ("transfer_cache_dsv4_mla", _scales_stay, {"reference"}),
    ("transfer_hicache_one_layer_page_unified_lf", _kv_swapped_in_page, {"reference"}),
    ("load_cache_to_device_buffer_mla", _stale_outputs, {"reference", "untouched"}),
    ("load_cache_to_device_buffer_mla", _lru_not_updated, {"reference", "vacuous"}),
    ("fp4_mx_block16_quantize", _rounded_away, {"reference"}),
)


@pytest.mark.parametrize(
    ("name", "plant", "laws"), MUTANTS, ids=[f"{name}{plant.__name__}" for name, plant, _ in MUTANTS]
)
def test_planted_fault_breaks_a_law(name, plant, laws, models, run_cell):
    """A fault planted in a model breaks the law that it is against, in at least one cell of its kernel."""
    provider = types.SimpleNamespace(**{name: plant(models, name)})
    broken = set()
    for cell in KERNELS[name].cells():
        try:
            run_cell(KERNELS[name], cell, provider, examples=30)
        except BrokenLawError as error:
            broken.add(error.law)
    assert broken
    assert broken <= laws


def test_failure_tells_what_stands_there(models):
    """The report names the row in words, and where the wrong bytes really come from."""
    kernel = KERNELS["set_kv_buffer"]
    provider = types.SimpleNamespace(set_kv_buffer=_swapped(models, "set_kv_buffer"))
    cell = kernel.cells()[0]
    case = kernel.workload.draw(cell, PinnedDraw(0, {"count": 2, "widths": (16, 16), "base": 0}))
    case = dataclasses.replace(case, pairs=((0, 3), (1, 1)))
    with pytest.raises(BrokenLawError) as caught:
        examine(Bench(kernel, cell, provider, Place("cpu")), kernel.laws[0], case)
    assert caught.value.lines[0].startswith("K cache: first wrong byte at byte 0 of row 1 of K, stored in slot 1")
    assert (
        caught.value.lines[3]
        == "the bytes that stand there are those of the first bytes of row 1 of V, stored in slot 1"
    )
