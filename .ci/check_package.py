"""Build wheel and sdist, look into them, install the wheel into an empty environment and use it there."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "pytest_sglhw"

#: What somebody who packages this project for a distribution needs beside the package itself.
IN_SDIST = (
    ".ci/lane.py",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "conftest.py",
    "docs/architecture.md",
    "pyproject.toml",
    "sglhw.toml",
    "tests/test_repository.py",
    "tox.ini",
)

#: Run with the new environment's Python, isolated: what a user's first minute touches, with nothing but pytest there.
USES = (
    ("-c", f"import {PACKAGE}; assert {PACKAGE}.__file__.startswith(__import__('sys').prefix), {PACKAGE}.__file__"),
    ("-c", "import importlib.util as u; assert not u.find_spec('torch') and not u.find_spec('hypothesis')"),
    ("-m", "pytest", "-p", "sglhw", "--markers"),
    ("-m", "pytest", "-p", "no:sglhw", "--version"),
    ("-m", PACKAGE, "capabilities"),
    ("-m", PACKAGE, "merge", "--help"),
)


def main(folder: Path) -> int:
    """Build into ``folder`` and report; 0 if the packages are what they should be."""
    dist = folder / "dist"
    for old in dist.glob("*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT))
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    problems = [*wrong_in_wheel(wheel), *missing_in_sdist(sdist)]
    for problem in problems:
        print(problem)
    if problems:
        return 1
    python = install(wheel, folder / "clean")
    for use in USES:
        run(str(python), "-I", *use)
    print(f"{wheel.name} and {sdist.name}: fine")
    return 0


def run(*command: str) -> None:
    """Run a command; an error of it ends this script."""
    print("$", " ".join(command), flush=True)
    subprocess.run(command, check=True, cwd=ROOT.parent, stdout=subprocess.DEVNULL if "--markers" in command else None)


def wrong_in_wheel(wheel: Path) -> list[str]:
    """Name what the wheel lacks of the package and what it has beside it."""
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = set(git_files(PACKAGE))
    return [f"wheel lacks {name}" for name in sorted(wanted - inside)] + [
        f"wheel should not have {name}" for name in sorted(inside - wanted)
    ]


def missing_in_sdist(sdist: Path) -> list[str]:
    """Name what the sdist lacks."""
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {*IN_SDIST, *git_files(PACKAGE), *git_files("tests")}
    return [f"sdist lacks {name}" for name in sorted(wanted - inside)]


def git_files(folder: str) -> list[str]:
    """Paths under ``folder`` that git knows, so that a stray file of a working tree is not asked for."""
    listed = subprocess.run(["git", "ls-files", folder], check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return listed.stdout.splitlines()


def install(wheel: Path, where: Path) -> Path:
    """Make an environment with the wheel and what it depends on, and return its Python."""
    venv.create(where, clear=True, with_pip=True, symlinks=True)
    python = where / "bin" / "python"
    run(str(python), "-m", "pip", "install", "--quiet", str(wheel))
    return python


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
