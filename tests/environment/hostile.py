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


def h100(extra: str = "", prefix: str = "sgl_kernel::") -> dict[str, str]:
    """The files of a torch that enumerates one working H100 with every operator of ``prefix`` registered."""
    native = NATIVE.format(prefix=prefix, key="CUDA")
    return torch_package(namespace("cuda", name="NVIDIA H100") + TENSORS + native + extra, cuda="13.0")


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


def doctor(folder: Path, files: dict[str, str], *arguments: str, timeout: float = DEADLINE) -> Seen:
    """Plant ``files`` in ``folder`` and run the command over them."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    mark = f"{folder.name}-{os.getpid()}-{time.monotonic_ns()}"
    environ = {
        **os.environ,
        "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "SGLHW_TEST": mark,
    }
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
