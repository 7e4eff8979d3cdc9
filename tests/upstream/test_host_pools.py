"""SGLang's real host pools back up and load on a CPU through this project's kernels, byte for byte as computed here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

LAYERS, HEADS, HEAD_DIM, PAGE, DEVICE_TOKENS, HOST_TOKENS = 3, 2, 16, 4, 24, 32
LATENT, ROPE = 32, 8

# Whole pages, out of order and not at the same place on both sides; page 0 of the device is SGLang's padding.
DEVICE_PAGES, HOST_PAGES = (3, 1, 5), (0, 6, 2)

MHA_CASES = [
    ("kernel", "layer_first"),
    ("kernel", "page_first"),
    ("kernel", "page_head"),
    ("direct", "layer_first"),
    ("direct", "page_first_direct"),
]
MLA_CASES = [case for case in MHA_CASES if case[1] != "page_head"]

pytestmark = pytest.mark.filterwarnings("default")


def _tokens(pages: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor([page * PAGE + offset for page in pages for offset in range(PAGE)])


def _fill(*buffers: torch.Tensor, seed: int) -> None:
    """Give every byte of every buffer a value of its own stream, so that no two rows or layers agree by chance."""
    generator = torch.Generator().manual_seed(seed)
    for buffer in buffers:
        raw = buffer.view(torch.uint8)
        raw.copy_(torch.randint(0, 256, raw.shape, generator=generator, dtype=torch.uint8))


def _slot(layout: str, host: torch.Tensor, layer: int, token: int) -> torch.Tensor:
    """Find the heads of one token of one layer in a host buffer, by the definition of its layout."""
    page, offset = divmod(token, PAGE)
    return {
        "layer_first": lambda: host[layer, token],
        "page_first": lambda: host[token, layer],
        "page_first_direct": lambda: host[page, layer, offset],
        "page_head": lambda: host[page, :, offset, layer],
    }[layout]()


def _bytes(*buffers: torch.Tensor) -> list[torch.Tensor]:
    return [buffer.contiguous().view(torch.uint8).clone() for buffer in buffers]


def _mha(layout: str) -> tuple[Any, Any]:
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
    from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost

    device = MHATokenToKVPool(DEVICE_TOKENS, PAGE, torch.bfloat16, HEADS, HEAD_DIM, LAYERS, "cpu", False)
    return device, MHATokenToKVPoolHost(device._mha_buffer_info(), **_host_arguments(layout))


def _mla(layout: str) -> tuple[Any, Any]:
    from sglang.srt.mem_cache.memory_pool import MLATokenToKVPool
    from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost

    device = MLATokenToKVPool(DEVICE_TOKENS, PAGE, torch.bfloat16, LATENT, ROPE, LAYERS, "cpu", False)
    arguments = _host_arguments(layout)
    return device, MLATokenToKVPoolHost(device._mla_buffer_info(), **arguments, target_layer_num=LAYERS)


def _host_arguments(layout: str) -> dict[str, Any]:
    return {
        "host_to_device_ratio": 1.0,
        "host_size": 0,
        "page_size": PAGE,
        "layout": layout,
        "pin_memory": False,
        "device_capacity_tokens": DEVICE_TOKENS,
        "start_layer": 0,
        "end_layer": LAYERS - 1,
        "host_token_capacity": HOST_TOKENS,
    }


def _check(device: Any, host: Any, backend: str, components: list[tuple[torch.Tensor, list[torch.Tensor]]]) -> None:
    """Back up, compare; put other bytes on the device, load, compare. ``components``: host buffer and device layers."""
    hosts = [buffer for buffer, _ in components]
    layers = [layer for _, device_layers in components for layer in device_layers]
    device_tokens, host_tokens = _tokens(DEVICE_PAGES), _tokens(HOST_PAGES)
    pairs = list(zip(device_tokens.tolist(), host_tokens.tolist(), strict=True))

    _fill(*hosts, seed=1)
    _fill(*layers, seed=2)
    expected = [buffer.clone() for buffer in hosts]
    for buffer, (_, device_layers) in zip(expected, components, strict=True):
        for layer, rows in enumerate(device_layers):
            for source, destination in pairs:
                _slot(host.layout, buffer, layer, destination).copy_(rows[source])
    unchanged = _bytes(*layers)
    host.backup_from_device_all_layer(device, host_tokens, device_tokens, backend)
    for found, wanted in zip(_bytes(*hosts), _bytes(*expected), strict=True):
        assert torch.equal(found, wanted)
    assert all(map(torch.equal, _bytes(*layers), unchanged))

    _fill(*layers, seed=3)
    loaded = [layer.clone() for layer in layers]
    copies = iter(loaded)
    for buffer, device_layers in components:
        for layer in range(len(device_layers)):
            rows = next(copies)
            for destination, source in pairs:
                rows[destination] = _slot(host.layout, buffer, layer, source)
    kept = _bytes(*hosts)
    for layer in range(LAYERS):
        host.load_to_device_per_layer(device, host_tokens, device_tokens, layer, backend)
    for found, wanted in zip(_bytes(*layers), _bytes(*loaded), strict=True):
        assert torch.equal(found, wanted)
    assert all(map(torch.equal, _bytes(*hosts), kept))


@pytest.mark.cpu_only
@pytest.mark.parametrize(("backend", "layout"), MHA_CASES)
def test_mha(kvcacheio_on_cpu: Callable[..., None], backend: str, layout: str) -> None:
    """A pool of K and V, over every layout that SGLang's server accepts."""
    kvcacheio_on_cpu("sglang.srt.mem_cache.pool_host.mha")
    device, host = _mha(layout)
    _check(device, host, backend, [(host.k_buffer, device.k_buffer), (host.v_buffer, device.v_buffer)])


@pytest.mark.cpu_only
@pytest.mark.parametrize(("backend", "layout"), MLA_CASES)
def test_mla(kvcacheio_on_cpu: Callable[..., None], backend: str, layout: str) -> None:
    """A pool of one latent buffer, over every layout that SGLang's server accepts."""
    kvcacheio_on_cpu("sglang.srt.mem_cache.pool_host.mla")
    device, host = _mla(layout)
    _check(device, host, backend, [(host.kv_buffer, device.kv_buffer)])


@pytest.mark.cpu_only
@pytest.mark.parametrize(("pool", "kernel"), [(_mha, "transfer_kv_all_layer"), (_mla, "transfer_kv_all_layer_mla")])
def test_without_the_fixture(pool: Callable[[str], tuple[Any, Any]], kernel: str) -> None:
    """SGLang alone has bound no kernels on a CPU, and after a test with the fixture that is so again."""
    device, host = pool("layer_first")
    with pytest.raises(NameError, match=f"name '{kernel}' is not defined"):
        host.backup_from_device_all_layer(device, _tokens(HOST_PAGES), _tokens(DEVICE_PAGES), "kernel")
