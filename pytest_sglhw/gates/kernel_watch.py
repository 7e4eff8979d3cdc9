"""See calls of kernels by every route there is a hook for, without changing what the kernels do.

* A Python function is watched through its code object, so that a name bound at import, a thread or a partial is seen.
* A native operator is watched at ``torch.ops``: the packet and each of its overloads.
* A module that is imported later is met by a finder in front of ``sys.meta_path``.

A module that only bears the name (a mock, a fallback put into ``sys.modules``) is not watched: its calls are none.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

#: Noted as a kernel when a captured graph is replayed, which may call anything.
GRAPH = "(a captured graph)"

_GRAPH_CLASSES = (("cuda", "CUDAGraph"), ("xpu", "XPUGraph"), ("npu", "NPUGraph"), ("musa", "MUSAGraph"))


class KernelWatch:
    """Which kernels were called since the last ``reset``; hooks stay until ``close``."""

    def __init__(self) -> None:
        self.called: set[str] = set()
        self.blind: dict[str, str] = {}
        """Kernels whose calls can't be seen, and why."""
        self._undo: list[Callable[[], None]] = []
        self._modules: dict[str, set[str]] = {}
        self._hooked: set[int] = set()

    def watch(self, module: str | None, kernels: Iterable[str], ops: Iterable[str]) -> None:
        """Watch ``kernels`` in ``module`` (now or when it is imported) and ``namespace::name`` operators."""
        if module is not None:
            if not self._modules:
                sys.meta_path.insert(0, self)
                self._undo.append(lambda: sys.meta_path.remove(self))
            self._modules.setdefault(module, set()).update(kernels)
            self._hook_module(module)
        if "torch" in sys.modules:
            for op in ops:
                self._hook_op(op)
            self._hook_graphs()

    def reset(self) -> None:
        """Forget the calls seen so far."""
        self.called.clear()

    def close(self) -> None:
        """Take every hook off again."""
        while self._undo:
            self._undo.pop()()

    def impostor(self, module: str) -> str | None:
        """Say what stands under the name of ``module`` if it is not that module."""
        found = sys.modules.get(module)
        if found is None or _is_genuine(found, module):
            return None
        return f"{module} is {type(found).__name__} {getattr(found, '__name__', '')!r}, not the kernels"

    # importlib's protocol for finders
    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Let the other finders find a watched module, and hook its kernels once it is loaded."""
        if name not in self._modules:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, lambda: self._hook_module(name))  # type: ignore[assignment]
                return spec
        return None

    def _hook_module(self, name: str) -> None:
        module = sys.modules.get(name)
        if module is None or not _is_genuine(module, name):
            return
        for kernel in self._modules[name]:
            function = getattr(module, kernel, None)
            if isinstance(function, types.FunctionType):
                self._hook_function(kernel, function)
            elif function is not None:
                self.blind[kernel] = f"{name}.{kernel} is a {type(function).__name__}"

    def _hook_function(self, kernel: str, function: types.FunctionType) -> None:
        if id(function) in self._hooked:
            return
        before = (function.__code__, function.__defaults__, function.__kwdefaults__)
        original = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        original.__kwdefaults__ = function.__kwdefaults__

        def undo() -> None:
            function.__code__, function.__defaults__, function.__kwdefaults__ = before

        function.__defaults__ = function.__kwdefaults__ = None
        function.__code__ = _calling(self._noting(kernel, original), function.__code__)
        self._hooked.add(id(function))
        self._undo.append(undo)

    def _hook_op(self, op: str) -> None:
        import torch

        namespace, _, name = op.partition("::")
        packet = getattr(getattr(torch.ops, namespace), name, None)
        if packet is None or not hasattr(packet, "overloads"):
            return
        for target in (packet, *(getattr(packet, overload) for overload in packet.overloads())):
            if id(target) in self._hooked or not hasattr(target, "_op"):
                continue
            self._hook_attribute(target, "_op", name)

    def _hook_graphs(self) -> None:
        for device_type, name in _GRAPH_CLASSES:
            graph = getattr(getattr(sys.modules["torch"], device_type, None), name, None)
            if graph is not None and id(graph) not in self._hooked and hasattr(graph, "replay"):
                self._hook_attribute(graph, "replay", GRAPH)

    def _hook_attribute(self, target: Any, attribute: str, kernel: str) -> None:
        before = getattr(target, attribute)
        setattr(target, attribute, self._noting(kernel, before))
        self._hooked.add(id(target))
        self._undo.append(lambda: setattr(target, attribute, before))

    def _noting(self, kernel: str, call: Callable[..., Any]) -> Callable[..., Any]:
        called = self.called

        def noted(*args: Any, **kwargs: Any) -> Any:
            called.add(kernel)
            return call(*args, **kwargs)

        return noted


class _Loader:
    """Load a module as its own loader does, and tell when it is there."""

    def __init__(self, loader: Any, loaded: Callable[[], None]) -> None:
        self._loader = loader
        self._loaded = loaded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        """Create it as its own loader does."""
        module: types.ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Execute it, then step aside."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._loaded()


def _is_genuine(module: object, name: str) -> bool:
    return isinstance(module, types.ModuleType) and getattr(getattr(module, "__spec__", None), "name", None) == name


def _calling(target: Callable[..., Any], like: types.CodeType) -> types.CodeType:
    """Give code that passes its arguments to ``target``; it fits into a function whose code is ``like``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # a string that is called: its place in the constants is taken
        compiled = compile("def call(*args, **kwargs): return 'target'(*args, **kwargs)", like.co_filename, "exec")
    code = next(constant for constant in compiled.co_consts if isinstance(constant, types.CodeType))
    constants = tuple(target if constant == "target" else constant for constant in code.co_consts)
    return code.replace(co_consts=constants, co_freevars=like.co_freevars, co_name=like.co_name)
