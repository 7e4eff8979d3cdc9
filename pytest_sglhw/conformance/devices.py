"""Where the buffers of a trial live and how a kernel is called there."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Arena:
    """CPU memory for buffers, handed out round and round, with wide margins.

    A kernel that is wrong about addresses writes into this region, not into the heap of the process. The region is
    reused only after :data:`_ROUND` bytes, which is more than the trials of one example hold together.
    """

    def __init__(self) -> None:
        self._memory: torch.Tensor | None = None
        self._next = 0

    def take(self, nbytes: int) -> torch.Tensor:
        """The next ``nbytes`` bytes, aligned to 64."""
        if nbytes > _ROUND // 8:
            return torch.empty(nbytes, dtype=torch.uint8)
        if self._memory is None:
            self._memory = torch.empty(_ROUND + 2 * _MARGIN, dtype=torch.uint8)
        if self._next + nbytes > _ROUND:
            self._next = 0
        start = _MARGIN + self._next
        self._next += -(-nbytes // 64) * 64
        return self._memory[start : start + nbytes]


_ROUND, _MARGIN = 1 << 24, 1 << 25
_ARENA = Arena()  # one for all cells of a process: fresh memory costs a page fault for every 4 KiB


def device_problem(device: object) -> str | None:
    """Say why pools cannot live on a torch device (a string, or a ``torch.device``); ``None`` if they can.

    >>> device_problem("cpu")
    """
    if not isinstance(device, (str, torch.device)):
        return f"a {type(device).__name__} is not a torch device string. {_valid_devices()}"
    try:
        there = torch.device(device)
    except RuntimeError:
        return f"torch knows no such device. {_valid_devices()}"
    runtime = getattr(torch, there.type, None)
    count = runtime.device_count() if runtime is not None and runtime.is_available() else 0
    if (there.index or 0) >= count:
        return f"torch sees {count or 'no'} {there.type} device{'s' * (count > 1)} here. {_valid_devices()}"
    return None


def _valid_devices() -> str:
    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    mine = [f"{current.type}:{index}" for index in range(torch.accelerator.device_count())] if current else []
    return f"Valid on this machine: {', '.join(['cpu', *mine])}."


class Place:
    """One device and its host: allocates on both, calls kernels on a stream that is not the default one.

    :param device: a torch device string, e.g. ``cpu`` or ``cuda:0``.
    """

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.is_cpu = self.device.type == "cpu"
        self._runtime: Any = getattr(torch, self.device.type)

    @property
    def platform(self) -> str:
        """The platform: the device type, but for ROCm, whose type is CUDA's."""
        return "rocm" if self.device.type == "cuda" and torch.version.hip else self.device.type

    @property
    def most_warps(self) -> int:
        """The most warps that a block of threads has room for."""
        return 16 if self.platform == "rocm" else 32

    @cached_property
    def _stream(self) -> Any:
        """Made for the first call, so that a place can be spoken of without a context on its device."""
        return self._runtime.Stream(self.device)

    def empty(self, nbytes: int, where: str) -> torch.Tensor:
        """Allocate bytes on the ``device``, or on the ``host`` (pinned, where there is a device to pin it for)."""
        if self.is_cpu:
            return _ARENA.take(nbytes)
        if where == "host":
            return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
        return torch.empty(nbytes, dtype=torch.uint8, device=self.device)

    def free(self, where: str) -> int:
        """The bytes that are free now, on the ``device`` or on the ``host``."""
        if where == "device" and not self.is_cpu:
            return int(self._runtime.mem_get_info(self.device)[0])
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def release(self) -> None:
        """Give back what torch's allocators keep of freed memory, that of the device and pinned memory."""
        self._runtime.empty_cache()
        release_pinned = getattr(torch._C, "_host_emptyCache", None)  # torch has no public name for it
        if release_pinned:
            release_pinned()

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Move a small tensor (indices, a pointer table) to the device."""
        return tensor if self.is_cpu else tensor.to(self.device)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call and wait for the device.

        The stream is a side stream: batched copies refuse the legacy default stream, and a kernel that ignores the
        current stream must not be saved by the default one.
        """
        if self.is_cpu:
            return function(*args)
        with self._on_stream():
            return function(*args)

    def seconds(self, function: Callable[..., Any], *args: Any) -> float:
        """Call and wait as :meth:`call` does; return the seconds that it took.

        On a device its own events tell; on a CPU it is this thread's CPU time, which other processes disturb least.
        """
        if self.is_cpu:
            start = time.thread_time()
            function(*args)
            return time.thread_time() - start
        begun, ended = (self._runtime.Event(enable_timing=True) for _ in range(2))
        with self._on_stream():
            begun.record(self._stream)
            function(*args)
            ended.record(self._stream)
        return float(begun.elapsed_time(ended)) / 1000

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        self._stream.wait_stream(self._runtime.current_stream(self.device))
        try:
            with self._runtime.stream(self._stream):
                yield
        finally:
            self._runtime.synchronize(self.device)
