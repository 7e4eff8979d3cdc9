"""Facts about a machine that need no child process and no import of torch: files, names and variables."""

from __future__ import annotations

import ast
import fnmatch
import os
import platform as os_platform
import re
import shutil
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_sglhw.record import Record, printable
from pytest_sglhw.registry.installed import distributions, find_module, where_is

if TYPE_CHECKING:
    from pytest_sglhw.registry.platforms import Platform


class TorchBuild(Record):
    """What the files of an installed torch say about it."""

    path: str
    version: str | None = None
    strings: Mapping[str, str] = {}
    """Version strings that are set, by platform word: ``cuda``, ``hip``, ``xpu``, ``musa``, ..."""
    readable: bool = True
    """Whether ``version.py`` says for each of ``cuda`` and ``hip`` whether it is set."""
    cpu_only: bool = False
    """Whether the files prove a CPU build: no version string, and the local version or the libraries say so."""


class StaticFacts:
    """What is known about this machine without asking anything that could hang.

    Each fact is looked at when it is first asked for: the header of a run shows a few of them, a probe needs all.
    """

    def __init__(
        self,
        rows: Sequence[Platform] = (),
        *,
        environ: Mapping[str, str] = os.environ,
        root: str = "/",
        paths: Sequence[str] | None = None,
        **known: Any,
    ) -> None:
        """Look below ``root`` by the rows of the platforms; ``known`` facts, by name, are not looked at."""
        self._rows = rows
        self._environ = environ
        self._root = root
        self._paths = paths
        vars(self).update(known)

    @cached_property
    def torch(self) -> TorchBuild | None:
        """What the files of the installed torch say; ``None`` where there is no torch."""
        return read_torch_build()

    @cached_property
    def nodes(self) -> Mapping[str, tuple[str, ...]]:
        """Device nodes found, by platform."""
        return self._device_nodes | _promised(self._rows)

    @cached_property
    def drivers(self) -> Mapping[str, str]:
        """Version of each kernel driver found, by platform."""
        return {row.name: version for row in self._rows if (version := _driver_version(row, self._root))}

    @cached_property
    def hints(self) -> Mapping[str, tuple[str, ...]]:
        """Toolkits, directories and shared nodes found, by platform: proof of nothing."""
        return _hints(self._rows, self._root, self._environ)

    @cached_property
    def vendors(self) -> Mapping[str, str]:
        """Vendor packages that would add a platform to torch: module -> where it is."""
        return {m: place for row in self._rows for m in row.vendor_modules if (place := where_is(m))}

    @cached_property
    def masks(self) -> Mapping[str, str]:
        """Variables that are set and hide devices."""
        names = dict.fromkeys(name for row in self._rows for layer in row.device_control_env_vars for name in layer)
        return {name: self._environ[name] for name in names if name in self._environ}

    @cached_property
    def packages(self) -> Mapping[str, str]:
        """Every distribution on the path, by normalised name."""
        return distributions(sys.path if self._paths is None else self._paths)

    @cached_property
    def sglang(self) -> str | None:
        """Where SGLang is, if it is there."""
        return where_is("sglang")

    @cached_property
    def closed(self) -> tuple[str, ...]:
        """Device nodes that this process may not open for reading and writing."""
        nodes = self._device_nodes.values()
        return tuple(node for found in nodes for node in found if _is_closed(self._root, node))

    @cached_property
    def _device_nodes(self) -> dict[str, tuple[str, ...]]:
        return _found(self._rows, self._root, lambda row: row.nodes)

    @property
    def settles_cpu(self) -> bool:
        """Whether nothing is left to ask: no accelerator can be reached from a torch like this one."""
        no_accelerator = self.torch is None or self.torch.cpu_only
        return no_accelerator and not self.vendors and not self.nodes.get("mps")


def gather(
    platforms: Iterable[Platform],
    *,
    environ: Mapping[str, str] = os.environ,
    root: str = "/",
    paths: Sequence[str] | None = None,
) -> StaticFacts:
    """Look at files, variables and names. ``root`` stands for ``/`` (tests give a tree of their own)."""
    return StaticFacts(tuple(platforms), environ=environ, root=root, paths=paths)


def shown(static: StaticFacts) -> str:
    """Say build, driver, nodes and masks in one line; the platform only where they settle it."""
    platform = ["platform cpu"] if static.settles_cpu else []
    torch = "no torch"
    if static.torch is not None:
        built = ", ".join(f"{name} {version}" for name, version in static.torch.strings.items())
        kind = "CPU build" if static.torch.cpu_only else f"built for {built}" if built else "build not known"
        torch = f"torch {static.torch.version or '(version not readable)'} ({kind})"
    drivers = [f"{name} driver {version}" for name, version in static.drivers.items()]
    nodes = [f"{len(found)} {name} node{'s' if len(found) > 1 else ''}" for name, found in static.nodes.items()]
    masks = [f"{name}={value!r}" for name, value in static.masks.items()]
    return printable(", ".join([*platform, torch, *drivers, *nodes, *masks]))


def read_torch_build() -> TorchBuild | None:
    """Read the ``version.py`` of the torch that an import would find, as text; ``None`` where there is no torch."""
    spec = find_module("torch")
    if spec is None:
        return None
    folder = next(iter(spec.submodule_search_locations or ()), None)
    path = spec.origin or folder or "torch"
    try:
        values, whole = _constants(_beginning(os.path.join(folder or os.devnull, "version.py")))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return TorchBuild(path, readable=False)
    version = values.pop("__version__", None)
    strings = platform_strings(values)
    readable = whole and "cuda" in values and version is not None
    cpu_only = readable and not strings and _is_cpu(str(version), folder)
    return TorchBuild(path, version, strings, readable, cpu_only)


def _is_cpu(version: str, folder: str | None) -> bool:
    """Say whether a build without a version string is one for CPU, by its local version or else by its libraries."""
    local = version.partition("+")[2]
    if re.match(r"cpu\b", local):
        return True
    return not re.match(r"cu\d|rocm|hip|xpu|musa|hpu|npu", local) and _libraries_are_cpu(folder)


def platform_strings(values: Mapping[str, str | None]) -> dict[str, str]:
    """Return those of the constants of ``torch.version`` that say what torch was built for."""
    return {name: text for name, text in values.items() if text and name not in _NOT_PLATFORMS}


_NOT_PLATFORMS = frozenset({"debug", "git_version", "rocm"})


#: Of a ``version.py`` that is longer nothing is believed: to parse it might take minutes.
_LONGEST = 1 << 16


def _beginning(path: str) -> str:
    """Return the text of a file.

    :raises ValueError: it is longer than anything that says what torch is.
    """
    with open(path, "rb") as file:
        text = file.read(_LONGEST + 1)
    if len(text) > _LONGEST:
        raise ValueError(path)
    return text.removeprefix(BOM_UTF8).decode(errors="replace")


def _constants(source: str) -> tuple[dict[str, str | None], bool]:
    """Return the names that a module binds to a string or to ``None``, and whether that is all it says of them."""
    values: dict[str, str | None] = {}
    whole = True
    for node in ast.parse(source).body:
        names, value = _bound(node)
        for name in names:
            values.pop(name, None)
        if isinstance(value, ast.Constant) and isinstance(value.value, (str, type(None))):
            values.update(dict.fromkeys(names, value.value))
        elif not _says_nothing(node, value, names):
            whole = False
    return values, whole


def _bound(node: ast.stmt) -> tuple[list[str], ast.expr | None]:
    """Return the names that a plain assignment binds, and its value; a docstring is a value without a name."""
    if isinstance(node, ast.Expr):
        return [], node.value
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return [], None
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return names, node.value if len(names) == len(targets) else None


def _says_nothing(node: ast.stmt, value: ast.expr | None, names: Sequence[str]) -> bool:
    """Say whether a statement leaves open nothing about the build: an import of names, ``False``, a list of names."""
    if isinstance(node, ast.ImportFrom):
        return node.module in ("__future__", "typing")
    is_false = isinstance(value, ast.Constant) and value.value is False
    return bool(names) and (is_false or all(name in _NOT_PLATFORMS or name.startswith("__all") for name in names))


def _libraries_are_cpu(folder: str | None) -> bool:
    names = set(os.listdir(lib)) if os.path.isdir(lib := os.path.join(folder or "", "lib")) else set()
    accelerated = any(re.search(r"torch_(cuda|hip|xpu|musa)", name) for name in names)
    return any("torch_cpu" in name for name in names) and not accelerated


def _matches(root: str, pattern: str, listed: dict[str, list[str]]) -> list[str]:
    """Find files as ``glob`` does, which compiles a regular expression even where nothing begins like the pattern.

    :param listed: folders that were read, with their names: most device nodes are in the same one.
    """
    hits, plain = [""], ""
    for part in pattern.strip("/").split("/"):
        stem = part.partition("*")[0].partition("[")[0].partition("?")[0]
        if stem == part:
            plain += f"/{part}"
        else:
            hits = [f"{hit}{plain}/{name}" for hit in hits for name in _entries(root + hit + plain, stem, part, listed)]
            plain = ""
    return sorted(hit + plain for hit in hits if not plain or os.path.lexists(root + hit + plain))


def _entries(folder: str, stem: str, pattern: str, listed: dict[str, list[str]]) -> list[str]:
    if folder not in listed:
        try:
            listed[folder] = os.listdir(folder)
        except OSError:
            listed[folder] = []
    names = [name for name in listed[folder] if name.startswith(stem)]
    return fnmatch.filter(names, pattern) if names else []


def _found(
    rows: Sequence[Platform], root: str, patterns: Callable[[Platform], Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    listed: dict[str, list[str]] = {}
    hits = {row.name: tuple(hit for p in patterns(row) for hit in _matches(root, p, listed)) for row in rows}
    return {name: found for name, found in hits.items() if found}


def _is_closed(root: str, node: str) -> bool:
    """Say whether a device file can't be opened here: the other nodes are signs of a driver, and nobody opens them."""
    return node.startswith("/dev/") and not os.access(os.path.join(root, node.lstrip("/")), os.R_OK | os.W_OK)


def _promised(rows: Sequence[Platform]) -> dict[str, tuple[str, ...]]:
    here = (sys.platform, os_platform.machine())
    return {row.name: (f"{here[0]} on {here[1]}",) for row in rows if here in row.machines}


def _hints(rows: Sequence[Platform], root: str, environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    programs = {
        row.name: tuple(filter(None, (shutil.which(t, path=environ.get("PATH")) for t in row.toolkits))) for row in rows
    }
    files = _found(rows, root, lambda row: row.hints)
    return {row.name: found for row in rows if (found := (*programs[row.name], *files.get(row.name, ())))}


def _driver_version(row: Platform, root: str) -> str | None:
    for pattern, version in row.drivers:
        for hit in _matches(root, pattern, {}):
            try:
                text = Path(root, hit.lstrip("/")).read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            if match := re.search(version, text):
                return match[1]
    return None
