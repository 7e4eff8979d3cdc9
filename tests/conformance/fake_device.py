"""A device that is none: memory of the CPU that is marked as the device's or as pinned, and streams that are recorded.

It shows on any machine where the matrix puts what it hands to a kernel, and on which stream it calls it.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch

from pytest_sglhw.conformance.devices import Place


class OnDevice(torch.Tensor):
    """A tensor that says it is not the CPU's; views of it do too."""

    is_cpu = property(lambda self: False)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs)
        return result.as_subclass(torch.Tensor) if function is torch.Tensor.cpu else result


class Runtime:
    """What the matrix uses of ``torch.cuda``."""

    def __init__(self):
        self.log = []
        self.current = "default"

    def Stream(self, device):  # noqa: N802 - torch's name
        return Stream(self)

    def current_stream(self, device):
        return self.current

    @contextmanager
    def stream(self, stream):
        self.current, before = stream, self.current
        try:
            yield
        finally:
            self.current = before

    def synchronize(self, device):
        self.log.append("synchronize")


class Stream:
    def __init__(self, runtime):
        self.runtime = runtime

    def wait_stream(self, other):
        self.runtime.log.append(f"wait for {other}")


class FakeDevice(Place):
    """A place whose device memory is marked memory of the CPU."""

    platform = "cuda"

    def __init__(self):
        super().__init__("cpu")
        self.is_cpu = False
        self._runtime = self.runtime = Runtime()
        self.pinned = []

    def empty(self, nbytes, where):
        memory = torch.empty(nbytes, dtype=torch.uint8)
        if where == "device":
            return memory.as_subclass(OnDevice)
        self.pinned.append(memory)
        return memory

    def put(self, tensor):
        return tensor.as_subclass(OnDevice)

    def is_pinned(self, tensor):
        return any(0 <= tensor.data_ptr() - memory.data_ptr() < len(memory) for memory in self.pinned)


class LargeDevice(FakeDevice):
    """A device with so many bytes free; its memory is the CPU's, of which only the pages that are written exist."""

    def __init__(self, free):
        super().__init__()
        self.bytes_free, self.taken, self.released = free, [], 0

    def free(self, where):
        return self.bytes_free

    def empty(self, nbytes, where):
        self.taken.append(nbytes)
        return super().empty(nbytes, where)

    def release(self):
        self.released += 1
