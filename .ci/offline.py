"""Run a hardware lane on a machine without network, from a folder of wheels.

    python .ci/offline.py collect FOLDER --machine FREEZE --python 3.12     # here, with a network
    python .ci/offline.py run FOLDER cuda                                   # there, in the same checkout

FREEZE is what ``python3 -m pip freeze`` prints on the machine, whose torch is used: what is in it is not collected, and
what is collected goes with it. ``run`` makes a virtual environment that sees the packages of the Python it is run by.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import site
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path

import lane
from slim_wheel import slim

ROOT = Path(__file__).resolve().parents[1]

#: Libraries of attention kernels: nine tenths of the wheel, loaded on first use alone; none of them moves KV cache.
ATTENTION = ("sgl_kernel/flash_ops*", "sgl_kernel/flashmla_ops*", "sgl_kernel/infllm_ops*")

#: Two fifths of SGLang's wheel that its kernels import nothing of: the server in Rust, and image generation.
SERVING = ("sglang/srt/rust_extensions/*.so", "sglang/multimodal_gen/*")


def main(arguments: Sequence[str]) -> int:
    """Collect or run."""
    parser = argparse.ArgumentParser(prog="offline.py", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    halves = parser.add_subparsers(required=True)
    add_collect(halves.add_parser("collect", help="put all wheels that a lane needs into a folder", allow_abbrev=False))
    add_run(halves.add_parser("run", help="install from the folder, run the lane", allow_abbrev=False))
    args, more = parser.parse_known_args(arguments)
    if more and args.half is not run:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    args.more = more
    try:
        return args.half(args)  # type: ignore[no-any-return]
    except OfflineError as error:
        print(f"offline.py: {error}", file=sys.stderr)
        return 2


class OfflineError(Exception):
    """What was given, or what is on this machine, does not do."""


# --- with a network ---


def add_collect(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``collect``."""
    parser.set_defaults(half=collect)
    add = parser.add_argument
    add("folder", type=Path, help="where to put the wheels")
    add("--lane", choices=sorted(lane.KERNELS), default="cuda", help="the lane that will be run (default: cuda)")
    add("--machine", type=Path, required=True, metavar="FREEZE", help="`pip freeze` of that machine, torch in it")
    add("--python", default=platform.python_version(), metavar="X.Y", help="its Python (default: this one's version)")
    add("--arch", default=platform.machine(), help="its processor (default: %(default)s)")
    add("--gpu", choices=("sm90", "other"), help="kernels for this NVIDIA arch alone (default: all that the wheel has)")
    add("--glibc", type=int, default=39, metavar="N", help="its C library is 2.N or newer (default: %(default)s)")


def collect(args: argparse.Namespace) -> int:
    """Download, build and slim; name what was put into the folder, and how large it is."""
    there = frozen(args.machine)
    if "torch" not in there:
        raise OfflineError(f"{args.machine} names no torch (name==version). The machine's own torch is what is used.")
    args.folder.mkdir(parents=True, exist_ok=True)
    for old in args.folder.glob("*.whl"):
        old.unlink()
    sglang, imports = lane.sglang_requirements() if "sglang_jit" in lane.KERNELS[args.lane] else (None, [])
    wanted = [*test_requirements(), *imports]
    pinned = {normal(name) for name, operator, _ in (each.partition("==") for each in wanted) if operator}
    there = {name: version for name, version in there.items() if name not in pinned}
    with tempfile.TemporaryDirectory() as scratch:
        pip("wheel", "--no-deps", "-w", str(args.folder), str(ROOT))
        download(args, [*stand_ins(there, Path(scratch)), *wanted])
        if sglang:
            add_slim(args, sglang, SERVING)
            if "torchvision" not in there:
                download(args, ["--no-deps", lane.vision_requirement(there["torch"])])
        if args.lane == "cuda" and "sglang-kernel" not in there:
            add_kernels(args, there["torch"])
    for stand_in in args.folder.glob(f"*{_HERE}-py3-none-any.whl"):
        stand_in.unlink()
    wheels = sorted(args.folder.glob("*.whl"))
    print(*(f"{wheel.stat().st_size / 1e6:8.1f} MB  {wheel.name}" for wheel in wheels), sep="\n")
    print(f"{sum(wheel.stat().st_size for wheel in wheels) / 1e6:8.1f} MB in {len(wheels)} wheels")
    return 0


def frozen(path: Path) -> dict[str, str]:
    """Read ``name==version`` lines, by the normalised name; other lines (editable, direct references) are left out."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = (re.fullmatch(r"([\w.-]+)==([^\s;]+)", line.strip()) for line in lines)
    return {normal(match[1]): match[2] for match in found if match}


def normal(name: str) -> str:
    """A project's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wheel_name(name: str) -> str:
    """A project's name as wheels spell it."""
    return normal(name).replace("-", "_")


def stand_ins(there: dict[str, str], folder: Path) -> list[str]:
    """Make an empty wheel of everything that the machine has, and return options that make pip take those.

    Their local version tells them from the real ones, which pip would otherwise prefer, with all that they depend on.
    """
    constraints = folder / "constraints.txt"
    with constraints.open("w", encoding="utf-8") as lines:
        for name, version in there.items():
            marked = f"{version}{'.' if '+' in version else '+'}{_HERE}"
            lines.write(f"{name}==={marked}\n")
            info = f"{wheel_name(name)}-{marked}.dist-info"
            with zipfile.ZipFile(folder / f"{wheel_name(name)}-{marked}-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {marked}\n")
                wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                wheel.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return ["--find-links", str(folder), "--constraint", str(constraints)]


_HERE = "machine"


def test_requirements() -> list[str]:
    """What the tests and the matrix need beside torch, as ``pyproject.toml`` says."""
    import tomllib  # Python 3.11; `run` has to do with less

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extra = project["project"]["optional-dependencies"]["conformance"]
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["test"], *extra]
    return [requirement for requirement in wanted if not requirement.startswith("torch")]


def add_kernels(args: argparse.Namespace, torch: str) -> None:
    """Put the wheel of kernels for the machine's torch into the folder, without its libraries of attention kernels."""
    requirement = lane.kernel_requirement(torch)
    if requirement is None:
        raise OfflineError(lane.unknown_kernel(torch))
    others = {"sm90": ("sgl_kernel/sm100/*",), "other": ("sgl_kernel/sm90/*",), None: ()}
    add_slim(args, requirement, (*ATTENTION, *others[args.gpu]))


def add_slim(args: argparse.Namespace, requirement: str, without: Iterable[str]) -> None:
    """Put one wheel into the folder without those files that match a pattern and that this release of it has."""
    with tempfile.TemporaryDirectory() as scratch:
        download(args, ["--no-deps", requirement], Path(scratch))
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        patterns = [pattern for pattern in without if any(fnmatch(name, pattern) for name in names)]
        slim(wheel, patterns, args.folder)


def download(args: argparse.Namespace, what: Iterable[str], folder: Path | None = None) -> None:
    """Download wheels for the machine."""
    major, minor = args.python.split(".")[:2]
    tags = [f"manylinux_2_{n}_{args.arch}" for n in range(args.glibc, 16, -1)]
    tags += [f"manylinux{n}_{args.arch}" for n in ("2014", "2010", "1")]
    pip(
        *("download", "--only-binary=:all:", "--implementation", "cp", "--python-version", f"{major}.{minor}"),
        *(part for tag in tags for part in ("--platform", tag)),
        *("-d", str(folder or args.folder), *what),
    )


def pip(*arguments: str) -> None:
    """Run this Python's pip.

    :raises OfflineError: it failed; what it said stands on the terminal.
    """
    if subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=False).returncode:
        raise OfflineError(f"pip {arguments[0]} failed, see above.")


# --- without one ---


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``run``."""
    parser.set_defaults(half=run)
    parser.add_argument("folder", type=Path, help="the folder of wheels")
    parser.add_argument("lane", choices=sorted(lane.KERNELS), help="a lane of sglhw.toml")
    parser.add_argument("--venv", type=Path, default=ROOT / ".tox" / "offline", help="where to install")
    parser.epilog = (
        "Further options are those of .ci/lane.py (--only, --profile, --kernels, --workers, --reports, ...)."
    )


def run(args: argparse.Namespace) -> int:
    """Install and run the lane; the exit status is the lane's."""
    wheels = sorted(args.folder.glob("*.whl"))
    if not wheels:
        raise OfflineError(f"{args.folder} holds no wheels. `offline.py collect` puts them there.")
    python = environment(args.venv)
    environ = {**os.environ, "PIP_NO_INDEX": "1"}
    install = [str(python), "-m", "pip", "--quiet", "install", "--no-deps", *map(str, wheels)]
    if subprocess.run(install, env=environ, check=False).returncode:
        raise OfflineError(f"the wheels of {args.folder} cannot be installed here, see above.")
    if subprocess.run([str(python), "-c", "import torch"], env=environ, check=False).returncode:
        raise OfflineError(f"{sys.executable} has no torch that can be imported. Run this with the Python that has it.")
    command = [str(python), str(ROOT / ".ci" / "lane.py"), args.lane, *args.more]
    return subprocess.run(command, env={**environ, "PYTHONSAFEPATH": "1"}, check=False).returncode


def environment(where: Path) -> Path:
    """Make a virtual environment that sees the packages of this Python (also where that is one), return its Python."""
    venv.create(where, clear=True, with_pip=True, symlinks=True)
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    if sys.prefix == sys.base_prefix:
        paths.update(site.getsitepackages())
    python = where / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([str(python), "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    (Path(done.stdout.strip()) / "machine.pth").write_text("\n".join(sorted(paths)) + "\n", encoding="utf-8")
    return python


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
