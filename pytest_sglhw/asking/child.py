"""The process that may hang or die: it imports what is asked for and answers one stage at a time.

Stands alone: it is run as a file and imports nothing of this package (four more files are loaded by their place), so
that nothing of ours stands between a stage and its answer. Requests are JSON lines on the standard input it was started
with; answers are JSON lines, each with the nonce of this probe, appended to a file of their own, so that output of the
code under test can't be taken for one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.util
import json
import os
import re
import signal
import sys
import warnings
from typing import Any

_SEEN = 400
_LONGEST_NAME = 200
#: Where the requests are read: above what a package closes that means to close whatever it has inherited.
_OUT_OF_REACH = 1000
#: Python's own modules: a program may have a ``resource.py``.
_OWN_PATH = [os.path.dirname(os.__file__), os.path.join(os.path.dirname(os.__file__), "lib-dynload")]
_ALLOCATORS = ("zeros", "empty", "ones")


def _beside(name: str) -> Any:
    """Load a file that lies beside this one: no package of ours has to be found or imported."""
    place = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"_sglhw_{name}", place)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


keeper, state, errors = _beside("child_keeper"), _beside("child_state"), _beside("child_errors")


def main(job: dict[str, Any]) -> None:
    """Serve requests until the input ends, then leave without running anybody's exit handlers."""
    sys.path[:] = _OWN_PATH
    keeper.go_on_below(lambda: _beside("processes"), job["nonce"], job["ended"])
    requests = _private_input()
    crashes = _high_copy(2)  # the code under test may close or replace what errors are written to
    _limit(job["seconds"], crashes)
    sys.path[:], sys.argv[1:] = job["path"], []
    for name in job["poisoned"]:  # what hung or died once is not imported again, by anybody
        sys.modules[name] = None  # type: ignore[assignment]
    pid = os.getpid()
    while line := requests.readline():
        request = json.loads(line)
        _answer(job, {"id": request["id"], "event": "start"})
        # Cut short of the deadline, so that the last lines of the output say where it hangs.
        faulthandler.dump_traceback_later(request["deadline"] * 0.8, file=crashes)
        before = state.taken_down()
        result = _run(request)
        result["changed"] = state.changed(before)
        faulthandler.cancel_dump_traceback_later()
        if os.getpid() != pid:  # a copy of this process that the code under test forked off
            os._exit(0)
        _answer(job, {"id": request["id"], "event": "end", **result})
    os._exit(0)


def _private_input() -> Any:
    """Take the requests away from descriptor 0, where the code under test might read them."""
    requests = os.fdopen(_high_copy(0), "rb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return requests


def _high_copy(descriptor: int) -> int:
    with contextlib.suppress(ImportError, OSError):  # Windows; a limit on open files that is lower than that
        import fcntl

        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_REACH)
    return os.dup(descriptor)


def _limit(seconds: float, crashes: int) -> None:
    """Leave no core file, say where it crashed, and die at the cap even if nobody is left to kill this process."""
    faulthandler.enable(crashes)
    keeper.leave_no_core_file()
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(seconds) + 5)


def _answer(job: dict[str, Any], event: dict[str, Any]) -> None:
    line = (json.dumps({"nonce": job["nonce"], **event}) + "\n").encode()
    descriptor = os.open(job["answers"], os.O_WRONLY | os.O_APPEND)
    try:
        while line:  # a limit or a full disk cuts it short first and raises then
            line = line[os.write(descriptor, line) :]
    finally:
        os.close(descriptor)


def _run(request: dict[str, Any]) -> dict[str, Any]:
    """Run one stage; whatever it raises, ``SystemExit`` included, is its answer."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = {"value": STAGES[request["do"]](**request["with"])}
            json.dumps(result)  # a value that is no plain data is an error of its stage, not the end of this process
        except BaseException as error:  # noqa: BLE001 (the state of the stage is recorded from it)
            result = {
                "error": errors.told(error),
                "missing": errors.missing_libraries(error),
                "absent": errors.absent(error),
            }
            result["undecided"] = errors.peek(error, "undecided") is True
    with contextlib.suppress(BaseException):
        result["warnings"] = [" ".join(str(w.message)[:_SEEN].split()) for w in seen[:4]]
    return result


def _attempt(function: Any, *arguments: Any) -> Any:
    """Return the value, or ``{"error": ...}`` for one question among several of a stage."""
    try:
        return function(*arguments)
    except BaseException as error:  # noqa: BLE001
        return {"error": errors.told(error)}


def _asked(kind: type, name: str, function: Any, *arguments: Any) -> Any:
    """Return what a function of torch answers, if it is of this kind: a mock answers everything with a mock."""
    value = function(*arguments)
    if not isinstance(value, kind):
        raise TypeError(f"{name}() answers with {_a(value)}, not with {kind.__name__}")
    return value


def _a(value: Any) -> str:
    return f"a mock ({_class_of(value)})" if _mock(value) else _class_of(value)


def _class_of(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _mock(value: Any) -> bool:
    return any(base.__module__ in ("unittest.mock", "mock.mock", "mock") for base in type(value).__mro__)


def _attribute(root: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        root = getattr(root, name, None)
    return root


def torch_stage() -> dict[str, Any]:
    """Import torch and read what its build says."""
    import torch

    version = getattr(torch, "version", None)
    strings = (
        {k: str(v) for k, v in vars(version).items() if isinstance(v, str) and not k.startswith("_")} if version else {}
    )
    return {
        "version": str(getattr(torch, "__version__", "")),
        "path": str(getattr(torch, "__file__", "")),
        "strings": strings,
        "stand_in": _stand_in(torch, version),
    }


def _stand_in(torch: Any, version: Any) -> str:
    """Say why what was imported is no torch; empty where it may be one."""
    for name, part in (("torch", torch), ("torch.version", version)):
        if part is not None and _mocked(part):
            what = f"is a mock ({_class_of(part)})" if _mock(part) else "is no module of torch"
            return f"{name} {what}: it answers for every name, and its answers mean nothing"
    if version is None and not hasattr(torch, "__version__"):
        place = getattr(torch, "__file__", None) or ", ".join(getattr(torch, "__path__", ["nowhere"]))
        return f"the module torch from {place} is no torch: it has neither __version__ nor version"
    return ""


def import_stage(module: str, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """Import a module; give its file, version and public names, and those of ``names`` that it lacks."""
    loaded = importlib.import_module(module)
    public = [n for n in dir(loaded) if not n.startswith("_")]
    version = errors.peek(sys.modules.get(module.partition(".")[0]), "__version__")
    return {
        "file": _text_or_none(errors.peek(loaded, "__file__")),
        "origin": _text_or_none(errors.peek(errors.peek(loaded, "__spec__"), "origin")),
        "version": _text_or_none(version),
        "names": public[:2000],
        "lacking": [name for name in names if errors.peek(loaded, name) is None],
        "mocked": _mocked(loaded),
    }


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _mocked(module: Any) -> bool:
    """Say whether a module is a mock, answers for a name that nobody can have defined, or names a mock as its file."""
    invented = errors.peek(module, "sglhw_no_such_name")
    return _mock(module) or invented is not None or _mock(errors.peek(module, "__file__"))


def devices_stage(api: str, archs: list[list[str]]) -> dict[str, Any]:
    """Enumerate the devices of one namespace of torch."""
    import torch

    namespace = _attribute(torch, api)
    if namespace is None:
        return {"present": False}
    available = getattr(namespace, "is_available", None) or _attribute(torch, f"backends.{api}.is_available")
    answer: dict[str, Any] = {"present": True}
    answer["available"] = _attempt(_asked, int, "is_available", available) if available else None
    count = getattr(namespace, "device_count", None)
    answer["count"] = _attempt(_asked, int, "device_count", count) if count else None
    there = isinstance(answer["available"], int) and bool(answer["available"])
    number = answer["count"] if isinstance(answer["count"], int) else int(there)
    general = _attribute(torch, f"backends.{api}.get_name")  # of a namespace that describes no single device
    answer["devices"] = [_attempt(_device, namespace, index, archs, general) for index in range(min(number, 1024))]
    return answer


def _device(namespace: Any, index: int, archs: list[list[str]], general: Any) -> dict[str, Any]:
    """Describe one device from whatever this namespace offers."""
    ask = {name: getattr(namespace, f"get_device_{name}", None) for name in ("properties", "name", "capability")}
    found = {name: _attempt(function, index) if function else None for name, function in ask.items()}
    if ask["name"] is None and callable(general):
        found["name"] = _attempt(general)
    properties = None if isinstance(found["properties"], dict) else found["properties"]
    name = found["name"] if isinstance(found["name"], str) else getattr(properties, "name", "")
    capability = found["capability"]
    if not isinstance(capability, (tuple, list)):
        capability = (getattr(properties, "major", None), getattr(properties, "minor", None))
    sources = {"name": name, "capability": ".".join(str(part) for part in capability)}
    memory, uuid = errors.peek(properties, "total_memory"), errors.peek(properties, "uuid")
    raised = [value["error"] for value in found.values() if isinstance(value, dict)]
    return {
        "name": _printable(name),
        "arch": _arch(sources, properties, archs),
        "memory": memory if _is_size(memory) else None,
        "uuid": None if uuid is None else _printable(uuid),
        "error": raised[0] if raised else None,
    }


def _is_size(memory: Any) -> bool:
    """Say whether a number of bytes is one that a device can have: a driver may answer with rubbish."""
    return isinstance(memory, int) and not isinstance(memory, bool) and 0 < memory < 1 << 63


def _printable(name: Any) -> str:
    """A device's name on one line that no terminal takes for a command."""
    return "".join(char if char.isprintable() else " " for char in str(name)[:_LONGEST_NAME]).strip()


def _arch(sources: dict[str, str], properties: Any, archs: list[list[str]]) -> str | None:
    for source, pattern, arch in archs:
        match = re.search(pattern, str(sources.get(source) or getattr(properties, source, "")))
        if match:
            return match.expand(arch).lower()
    return None


def allocate_stage(device: str) -> str:
    """Put a few bytes on a device and read them back."""
    import torch

    make = next((getattr(torch, name) for name in _ALLOCATORS if hasattr(torch, name)), None)
    if make is None:
        return "not asked: this torch can't allocate"
    tensor = make(16, device=device)
    if hasattr(tensor, "cpu"):
        tensor.cpu()
    return "allocated"


def free_memory_stage(api: str, index: int) -> int | None:
    """Ask the driver how many bytes are free on a device; ``None`` where torch has no way to ask."""
    import torch

    ask = _attribute(torch, f"{api}.mem_get_info")
    return int(ask(index)[0]) if callable(ask) else None


def driver_stage() -> str | None:
    """Ask CUDA's or HIP's runtime which version of the API the driver offers."""
    import torch

    ask = _attribute(torch, "_C._cuda_getDriverVersion")
    version = _attempt(ask) if callable(ask) else None
    return f"{version // 1000}.{version % 1000 // 10}" if isinstance(version, int) and version > 0 else None


def ops_stage(ops: list[str], keys: list[str], modules: list[str]) -> dict[str, Any]:
    """Say for each operator under which of ``keys`` it has a native kernel, ``None`` where it is not registered.

    ``modules`` register the operators. They were imported before, but this may be another process since.
    """
    import torch

    for module in modules:
        importlib.import_module(module)

    has_kernel = _attribute(torch, "_C._dispatch_has_kernel_for_dispatch_key")
    return {op: _keys_of(has_kernel, op, keys) for op in ops} if callable(has_kernel) else dict.fromkeys(ops)


def _keys_of(has_kernel: Any, op: str, keys: list[str]) -> list[str] | None:
    try:
        return [key for key in keys if has_kernel(op, key)]
    except RuntimeError:  # the operator does not exist
        return None


def check_stage(function: str, modules: list[str]) -> dict[str, Any]:
    """Call ``module:function``, with ``modules`` imported: what it returned, and what that means if it is an answer."""
    home, _, name = function.partition(":")
    check = _attribute(importlib.import_module(home), name)
    if not callable(check):
        raise AttributeError(f"{home} has no function {name!r}")
    for module in modules:
        importlib.import_module(module)
    value = check()
    return {"holds": _truth(value), "returned": _shown(value)}


def _truth(value: Any) -> bool | None:
    """Return what a yes or no says, of numpy or torch too (``(a == b).all()``); ``None`` for anything else."""
    if not isinstance(value, int) and callable(errors.peek(value, "item")):
        value = _attempt(value.item)
    return bool(value) if isinstance(value, int) and value in (0, 1) else None


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    shown = _attempt(repr, value)
    text = " ".join(shown.split())[:80] if isinstance(shown, str) else "something"
    return f"{text} ({_class_of(value).removeprefix('builtins.')})"


def sglang_stage() -> dict[str, Any]:
    """Ask SGLang itself what it takes this machine for."""
    utils = importlib.import_module("sglang.srt.utils")
    names = ("is_cuda", "is_hip", "is_xpu", "is_npu", "is_musa", "is_mps", "is_hpu", "is_cpu", "is_sail", "get_device")
    answers = {name: _attempt(getattr(utils, name)) for name in names if callable(getattr(utils, name, None))}
    with contextlib.suppress(ImportError):  # older releases have no such module
        platforms = importlib.import_module("sglang.srt.platforms")
        answers["current_platform"] = _attempt(lambda: platforms.current_platform.device_name)
    return {
        name: value if isinstance(value, (bool, str, dict)) else repr(value)[:_SEEN] for name, value in answers.items()
    }


def rows_stage(**entry_point: str) -> dict[str, Any]:
    """Call an entry point: the rows that it adds to the registry, as plain data."""
    rows: dict[str, Any] = importlib.import_module("pytest_sglhw.registry.registering").rows(**entry_point)
    return rows


STAGES: dict[str, Any] = {
    "torch": torch_stage,
    "import": import_stage,
    "devices": devices_stage,
    "allocate": allocate_stage,
    "free_memory": free_memory_stage,
    "driver": driver_stage,
    "ops": ops_stage,
    "check": check_stage,
    "sglang": sglang_stage,
    "rows": rows_stage,
}

if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        main(json.loads(file.read()))
