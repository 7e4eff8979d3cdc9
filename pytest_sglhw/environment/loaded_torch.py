"""The torch that this process has loaded already: looked at, never imported on our account."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

#: Namespaces of torch that can hold a device context. ROCm's is ``cuda``; ``mps`` has no context to ask about.
_APIS = ("cuda", "xpu", "npu", "musa", "hpu")


def device_contexts() -> Iterator[tuple[str, Any]]:
    """Yield ``(name, namespace)``, such as ``("cuda", torch.cuda)``, for each whose context this process holds."""
    torch = sys.modules.get("torch")
    for name in _APIS if torch is not None else ():
        namespace = getattr(torch, name, None)
        is_initialized = getattr(namespace, "is_initialized", None)
        if callable(is_initialized) and is_initialized():
            yield name, namespace
