"""Where the buffers of a trial live and how a kernel is called there."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: What a driver says when its context is lost: every later call on the device fails too.
STICKY = ("illegal memory access", "device-side assert", "unspecified launch failure", "misaligned address",
          "hardware exception", "an illegal instruction", "context is destroyed")  # fmt: skip


class Place:
    """One device and its host: allocates on both, calls kernels on a stream that is not the default one.

    :param device: a torch device string, e.g. ``cpu`` or ``cuda:0``.
    """

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.is_cpu = self.device.type == "cpu"
        self._runtime: Any = getattr(torch, self.device.type)
        self._stream: Any = None if self.is_cpu else self._runtime.Stream(self.device)

    def empty(self, nbytes: int, where: str) -> torch.Tensor:
        """Allocate bytes on the ``device``, or on the ``host`` (pinned, where there is a device to pin it for)."""
        if where == "host":
            return torch.empty(nbytes, dtype=torch.uint8, pin_memory=not self.is_cpu)
        return torch.empty(nbytes, dtype=torch.uint8, device=self.device)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Move a small tensor (indices, a pointer table) to the device."""
        return tensor if self.is_cpu else tensor.to(self.device)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call and wait for the device.

        The stream is a side stream: batched copies refuse the legacy default stream, and a kernel that ignores the
        current stream must not be saved by the default one.
        """
        if self._stream is None:
            return function(*args)
        with self._on_stream():
            return function(*args)

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        self._stream.wait_stream(self._runtime.current_stream(self.device))
        try:
            with self._runtime.stream(self._stream):
                yield
        finally:
            self._runtime.synchronize(self.device)


def is_sticky(error: BaseException) -> bool:
    """Whether the device's context is lost with this error."""
    text = str(error)
    return isinstance(error, RuntimeError) and any(words in text for words in STICKY)
