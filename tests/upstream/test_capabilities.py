"""The built-in capabilities against the real SGLang, both ways: closed where the row says so, open where it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gates_capabilities import TRIGGERS
from suite import run_suite

from pytest_sglhw.registry.builtin import BUILTIN_CAPABILITIES

if TYPE_CHECKING:
    from pathlib import Path

SUITE = "gates_capabilities.py"

#: Machines to fake, the facts that SGLang is made to believe on them, and the capabilities whose gates it then opens
#: and keeps closed. Only gates that ask for these facts when they are called are here: what SGLang froze at import
#: (``is_cuda()`` at the top of a module) no fake can change.
MACHINES = {
    "cuda:sm100": (
        "is_cuda,is_sm100,is_sm100_or_sm110,is_blackwell",
        "kv4 nvfp4_kv nvfp4_prefill mxfp8_kv flashinfer_allreduce trtllm_mha trtllm_mla cutedsl_mla megamoe cuda_ipc",
        "fp8_blockwise_sm120",
    ),
    "cuda:sm120": (
        "is_cuda,is_sm120,is_blackwell",
        "kv4 nvfp4_kv mxfp8_kv fp8_blockwise_sm120 trtllm_mha trtllm_mla cuda_ipc",
        "nvfp4_prefill flashinfer_allreduce cutedsl_mla megamoe",
    ),
    "cuda:sm90": (
        "is_cuda,is_sm90",
        "kv4 flashinfer_allreduce trtllm_mha megamoe cuda_ipc",
        "nvfp4_kv nvfp4_prefill mxfp8_kv trtllm_mla cutedsl_mla fp8_blockwise_sm120",
    ),
    "rocm:gfx950": (
        "is_hip",
        "hisparse megamoe",
        "kv4 nvfp4_kv nvfp4_prefill mxfp8_kv trtllm_mha trtllm_mla cutedsl_mla flashinfer_allreduce cuda_ipc",
    ),
}


def test_every_refusal_is_triggered() -> None:
    """A refusal that the registry advertises is tested against SGLang here."""
    assert set(TRIGGERS) == {row["name"] for row in BUILTIN_CAPABILITIES if row.get("signals")}


def _tests(names: str) -> list[str]:
    return [f"{SUITE}::test_capability[{name}]" for name in names.split()]


@pytest.mark.cpu_only
def test_closed_on_a_cpu(tmp_path: Path) -> None:
    """Each refusal ends as ``raised`` under its own mark, with the class and the text of its row."""
    run = run_suite(tmp_path, SUITE)
    assert run.outcomes() == dict.fromkeys(_tests(" ".join(TRIGGERS)), "raised"), run.text


@pytest.mark.cpu_only
@pytest.mark.parametrize("machine", MACHINES)
def test_open_where_the_row_says_so(tmp_path: Path, machine: str) -> None:
    """SGLang lets code pass exactly where the row claims support, by platform and by arch, and refuses elsewhere."""
    facts, opened, closed = MACHINES[machine]
    expected = {**dict.fromkeys(_tests(opened), "passed"), **dict.fromkeys(_tests(closed), "raised")}
    run = run_suite(tmp_path, "--sglhw-fake", machine, *expected, SGLHW_PRETEND=facts)
    assert run.outcomes() == expected, run.text
