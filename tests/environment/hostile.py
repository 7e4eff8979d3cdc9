"""Small fake packages, planted before the real ones, and the probe run over them in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Longer than any healthy stage here takes on a busy machine.
DEADLINE = 3.0

NO_TORCH_CODE = "from . import version\nfrom .version import __version__\n"

_NAMESPACE = """
class _Properties:
    name, total_memory, major, minor, uuid, gcnArchName = {name!r}, 80 << 30, {major}, {minor}, "GPU-1", {gcn!r}

class {api}:
    is_available = staticmethod(lambda: {available})
    device_count = staticmethod(lambda: {count})
    get_device_name = staticmethod(lambda index=0: {name!r})
    get_device_capability = staticmethod(lambda index=0: ({major}, {minor}))
    get_device_properties = staticmethod(lambda index=0: _Properties)
"""

TENSORS = """
class _Tensor:
    def cpu(self): return self
def zeros(*shape, device=None, **options): return _Tensor()
"""

#: Tensors good enough for the smoke check of a transfer kernel: rows of numbers in a list.
ROWS = """
class _Tensor:
    def __init__(self, rows): self.rows = [list(row) for row in rows]
    def to(self, *where): return _Tensor(self.rows)
    cpu = to
    def numel(self): return len(self.rows) * len(self.rows[0])
    def sum(self): return sum(map(sum, self.rows))
    def __getitem__(self, key):
        if key == (slice(None), None): return _Tensor([number] for number in self.rows[0])
        return self if key == (None, slice(None)) else _Tensor(self.rows[index] for index in key.rows[0])
    def __setitem__(self, key, other):
        for index, row in zip(key.rows[0], other.rows): self.rows[index] = list(row)
    def _with(self, other, function):
        other = other if isinstance(other, _Tensor) else _Tensor([[other]])
        height, width = (max(len(a), len(b)) for a, b in ((self.rows, other.rows), (self.rows[0], other.rows[0])))
        at = lambda tensor, i, j: tensor.rows[i % len(tensor.rows)][j % len(tensor.rows[0])]
        return _Tensor([function(at(self, i, j), at(other, i, j)) for j in range(width)] for i in range(height))
    def __add__(self, other): return self._with(other, lambda a, b: a + b)
    def __mul__(self, other): return self._with(other, lambda a, b: a * b)
    def __mod__(self, other): return self._with(other, lambda a, b: a % b)
    def __ne__(self, other): return self._with(other, lambda a, b: a != b)

uint8 = None
def arange(size): return _Tensor([range(size)])
def tensor(numbers, device=None): return _Tensor([numbers])
def zeros(size, device=None): return _Tensor([[0] * size])
"""

NATIVE = """
class _C:
    @staticmethod
    def _dispatch_has_kernel_for_dispatch_key(op, key):
        if not op.startswith({prefix!r}): raise RuntimeError("operator does not exist")
        return key == {key!r}
"""


def version(**strings: str | None) -> str:
    """The text of a ``torch/version.py``."""
    values = {"__version__": "2.11.0", "cuda": None, "hip": None, "xpu": None, **strings}
    return "".join(f"{name} = {value!r}\n" for name, value in values.items())


def namespace(api: str, *, available: bool = True, count: int = 1, name: str = "fake", **facts: Any) -> str:
    """The text of one namespace of torch that enumerates devices."""
    values = {"major": 9, "minor": 0, "gcn": "gfx942:sramecc+", **facts}
    return _NAMESPACE.format(api=api, available=available, count=count, name=name, **values)


def torch_package(code: str, **strings: str | None) -> dict[str, str]:
    """The files of a fake torch."""
    return {"torch/version.py": version(**strings), "torch/__init__.py": NO_TORCH_CODE + code}


def h100(extra: str = "", prefix: str = "sgl_kernel::", key: str = "CUDA") -> dict[str, str]:
    """The files of a torch that enumerates one working H100 with every operator of ``prefix`` registered."""
    native = NATIVE.format(prefix=prefix, key=key)
    return torch_package(namespace("cuda", name="NVIDIA H100") + ROWS + native + extra, cuda="13.0")


def distribution(name: str, version: str) -> dict[str, str]:
    """The metadata of an installed distribution."""
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    return {f"{name.replace('-', '_')}-{version}.dist-info/METADATA": text}


#: A FlashInfer that has what is asked for, and an SGLang that imports.
FLASHINFER = distribution("flashinfer-python", "0.6.1") | {
    "flashinfer/__init__.py": "class BatchDecodeWithPagedKVCacheWrapper: pass\n"
    "class BatchPrefillWithPagedKVCacheWrapper: pass\n"
}
SGLANG = distribution("sglang", "0.5.23") | {
    "sglang/__init__.py": "",
    "sglang/srt/__init__.py": "",
    "sglang/srt/utils/__init__.py": "def is_cuda(): return True\ndef is_hip(): return False\n",
}


@dataclass(frozen=True)
class Seen:
    """What ``sglhw doctor --json`` said, and what it left."""

    status: int
    record: dict[str, Any]
    seconds: float
    left: list[int]

    def state(self, capability: str) -> str:
        """State of a capability."""
        return str(self.record["capabilities"][capability]["state"])

    def reason(self, capability: str) -> str:
        """Reason of a capability."""
        return str(self.record["capabilities"][capability]["reason"])


def plant(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """Write ``files`` below ``folder`` and return the environment of a process that imports them first."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    path = filter(None, [str(folder), os.environ.get("PYTHONPATH")])  # an empty entry would be the current folder
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def doctor(folder: Path, files: dict[str, str], *arguments: str, timeout: float = DEADLINE) -> Seen:
    """Plant ``files`` in ``folder`` and run the command over them."""
    mark = f"{folder.name}-{os.getpid()}-{time.monotonic_ns()}"
    # A folder of its own for temporary files: some packages here look for those of their own probe.
    environ = plant(folder, files) | {"SGLHW_TEST": mark, "TMPDIR": str(folder)}
    begun = time.monotonic()
    command = [sys.executable, "-m", "pytest_sglhw", "doctor", "--json", "--probe-timeout", str(timeout), *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout, done.stderr
    return Seen(done.returncode, json.loads(done.stdout), time.monotonic() - begun, _carrying(f"SGLHW_TEST={mark}"))


def _carrying(entry: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if entry.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            continue
    return found
