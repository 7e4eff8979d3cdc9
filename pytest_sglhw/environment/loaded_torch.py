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
        namespace = _has_context(torch, name)
        if namespace is not None:
            yield name, namespace


def _has_context(torch: Any, name: str) -> Any:
    """Return the namespace if it holds a context, else ``None``; a stub that a test put there answers anything."""
    try:
        namespace = getattr(torch, name, None)
        return namespace if namespace is not None and namespace.is_initialized() is True else None
    except Exception:  # noqa: BLE001 (whatever a stub or a broken driver raises: it has no context)
        return None
