"""Write a wheel again without some of its files: its RECORD is right, its name and metadata say that it was done."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

BUILD = "1slim"
"""The build number of a wheel written here; it must begin with a digit."""


def slim(wheel: Path, patterns: Iterable[str], folder: Path) -> Path:
    """Write ``wheel`` into ``folder`` without the files whose paths match one of ``patterns``; return the new wheel.

    :raises ValueError: a pattern that matches nothing, or a wheel that is slim already.
    """
    if wheel.stem.split("-")[2].startswith(BUILD):
        raise ValueError(f"{wheel.name} is slim already.")
    with zipfile.ZipFile(wheel) as old:
        names = old.namelist()
        left_out = _matching(wheel, names, patterns)
        target = folder / _name(wheel)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
            _copy(old, new, [name for name in names if name not in left_out], sorted(left_out))
    return target


def _matching(wheel: Path, names: Iterable[str], patterns: Iterable[str]) -> set[str]:
    found = {pattern: {name for name in names if fnmatch(name, pattern)} for pattern in patterns}
    if unmatched := [pattern for pattern, matched in found.items() if not matched]:
        raise ValueError(f"{wheel.name} has nothing that matches {', '.join(unmatched)}.")
    return set().union(*found.values())


def _name(wheel: Path) -> str:
    """The name with a build number: ``name-version-BUILD-python-abi-platform.whl``."""
    parts = wheel.name.split("-")
    return "-".join([*parts[:2], BUILD, *parts[-3:]])


def _copy(old: zipfile.ZipFile, new: zipfile.ZipFile, names: list[str], left_out: list[str]) -> None:
    (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
    info = record.removesuffix("/RECORD")
    lines = {row[0]: row for row in csv.reader(io.StringIO(old.read(record).decode("utf-8"))) if row}
    for name in names:
        if name not in {record, f"{info}/WHEEL"}:
            new.writestr(old.getinfo(name), old.read(name), zipfile.ZIP_DEFLATED)
    written = {
        f"{info}/WHEEL": old.read(f"{info}/WHEEL").decode("utf-8").rstrip("\n") + f"\nBuild: {BUILD}\n",
        f"{info}/LEFT_OUT": "".join(f"{name}\n" for name in left_out),
    }
    for name, text in written.items():
        new.writestr(name, text)
        lines[name] = [name, _hash(text.encode("utf-8")), str(len(text.encode("utf-8")))]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(row for name, row in lines.items() if name not in left_out)
    new.writestr(record, out.getvalue())


def _hash(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode("ascii").rstrip("=")
    return f"sha256={digest}"
