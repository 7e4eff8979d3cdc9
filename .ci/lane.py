"""Run one hardware lane on this machine: doctor, tests and transfer matrix in one run, bandwidth, the table.

``tox run -e cuda`` (rocm, xpu) calls this, and so does ``offline.py run``, so that what is run stands in one place. It
leaves in ``reports/``: NAME.jsonl (the report), NAME-doctor.json (the machine, which ``--sglhw-fake`` reads), NAME.md
and NAME.html (the hardware matrix).
"""

from __future__ import annotations

import argparse
import configparser
import importlib.util
import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SGLHW = [sys.executable, "-m", "pytest_sglhw"]

#: The providers that a lane has to have. One that is not there is a failure, since it is asked for by name in a lane.
KERNELS = {
    "cuda": ("sgl_kernel", "sglang_jit", "sglang_triton", "torch"),
    "rocm": ("sgl_kernel", "sglang_jit", "sglang_triton", "torch"),
    "xpu": ("sgl_kernel", "torch"),
    "cpu": ("torch",),
}

#: sglang-kernel is compiled for one torch: the releases of SGLang that pin both say which belong together.
KERNEL_OF_TORCH = {"2.11": "0.4.4", "2.13": "0.4.7", "2.14": "0.4.10"}

TARGETS = {"tests": ["tests"], "matrix": ["pytest_sglhw.conformance"]}


def main(arguments: list[str]) -> int:
    """Run the lane; the exit status is that of the first step that failed."""
    args, more = parse(arguments)
    reports = args.reports.resolve()
    reports.mkdir(parents=True, exist_ok=True)
    if status := look(args.lane, reports):
        return status
    if args.install and (status := install(args.lane)):
        return status
    if status := call(*SGLHW, "doctor", "--lane", args.lane):
        return status
    save_machine(args.lane, reports)
    report = Path(os.environ.get("SGLHW_REPORT") or reports / f"{args.lane}.jsonl")
    report.unlink(missing_ok=True)  # that of an earlier run says nothing of this one
    status = call(*pytest_command(args, more), SGLHW_LANE=args.lane, SGLHW_REPORT=str(report))
    shown = show(args.lane, report, reports)
    return status or shown


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Split what is meant for this script from the arguments for pytest."""
    parser = argparse.ArgumentParser(prog="lane.py", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("lane", choices=sorted(KERNELS), help="a lane of sglhw.toml")
    add("--install", action="store_true", help="first install what the providers of the lane need, where it is missing")
    add("--only", choices=sorted(TARGETS), help="only the tests, or only the transfer matrix")
    add("--kernels", action="append", metavar="PROVIDER", help="instead of the lane's providers")
    add("--profile", default="ci", help="effort of the matrix: quick, ci (default) or deep")
    add("--workers", default="4", metavar="N", help="processes; a crash ends one of them, and one test (default: 4)")
    add("--reports", type=Path, default=ROOT / "reports", metavar="DIR", help="where to leave the reports")
    return parser.parse_known_args(arguments)


def look(lane: str, reports: Path) -> int:
    """Refuse a machine of another platform before anything is installed for it."""
    machine = save_machine(lane, reports)
    if machine.get("platform") == lane:
        return 0
    call(*SGLHW, "doctor")
    print(
        f"\nlane.py: lane {lane} needs a machine of platform {lane}; this one is {machine.get('platform')}.", flush=True
    )
    return 1


def save_machine(lane: str, reports: Path) -> dict[str, object]:
    """Write what the doctor knows of this machine beside the reports, and return it."""
    done = subprocess.run([*SGLHW, "doctor", "--json"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    try:
        machine: dict[str, object] = json.loads(done.stdout)
    except ValueError:
        return {"platform": "unknown"}
    (reports / f"{lane}-doctor.json").write_text(done.stdout, encoding="utf-8")
    return machine


def install(lane: str) -> int:
    """Install SGLang without its serving stack, what its kernels import, and the kernels that belong to this torch."""
    needed = []
    if "sglang_jit" in KERNELS[lane]:
        sglang, imports = sglang_requirements()
        needed += [imports, ["--no-deps", sglang]]
        if importlib.util.find_spec("torchvision") is None:
            needed += [["--no-deps", vision_requirement(version("torch"))]]
    if lane == "cuda" and importlib.util.find_spec("sgl_kernel") is None:
        kernel = kernel_requirement(version("torch"))
        if kernel is None:
            print(f"lane.py: {unknown_kernel(version('torch'))}", flush=True)
            return 1
        needed += [["--no-deps", kernel]]
    statuses = (call(sys.executable, "-m", "pip", "install", "--quiet", *what) for what in needed)
    return next((status for status in statuses if status), 0)


def sglang_requirements() -> tuple[str, list[str]]:
    """Read what ``tox.ini`` installs for SGLang's kernels: SGLang itself, and what it imports."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    _, _, default = tox["sglang"]["install"].partition("SGLHW_SGLANG:")
    sglang = os.environ.get("SGLHW_SGLANG") or default.rstrip("}")
    return sglang, [*tox["sglang"]["imports"].split(), tox["sglang"]["transformers"]]


def kernel_requirement(torch: str) -> str | None:
    """The requirement of the wheel of kernels compiled for a version of torch, if it is known."""
    release = KERNEL_OF_TORCH.get(".".join(torch.split(".")[:2]))
    return os.environ.get("SGLHW_SGL_KERNEL") or (f"sglang-kernel=={release}" if release else None)


def vision_requirement(torch: str) -> str:
    """The torchvision that was made for a version of torch; SGLang imports it. Their minor numbers go in step."""
    minor = int(torch.split(".")[1])
    return f"torchvision==0.{minor + 15}.*"


def unknown_kernel(torch: str) -> str:
    """Say that there is no such wheel, and what to do."""
    return (
        f"which release of sglang-kernel is made for torch {torch} is not known (known: {KERNEL_OF_TORCH}). "
        "Name one: SGLHW_SGL_KERNEL=sglang-kernel==X."
    )


def pytest_command(args: argparse.Namespace, more: list[str]) -> list[str]:
    """One run of all: its report keeps the lane's promise, or breaks it, as a whole."""
    targets = TARGETS[args.only] if args.only else [target for each in TARGETS.values() for target in each]
    providers = args.kernels or KERNELS[args.lane]
    return [
        *(sys.executable, "-m", "pytest", "-p", "pytest_sglhw.conformance.hooks", "--pyargs", *targets),
        *(f"--sglhw-kernels={name}" for name in providers),
        *(f"--sglhw-profile={args.profile}", "--sglhw-matrix-bandwidth", "--numprocesses", args.workers),
        *("--timeout=900", "--timeout-method=thread", *more),
    ]


def show(lane: str, report: Path, reports: Path) -> int:
    """Make a table and a page of the report; fail where it is not there, or has no end.

    A kernel that ends the process of the run can make its exit status 0, and takes the summary with it.
    """
    merge = [*SGLHW, "merge", str(report), "--expect", lane, "--fail-on", "crashed,missing"]
    return max(
        call(*merge, "--format", "markdown", "-o", str(reports / f"{lane}.md")),
        call(*merge, "--format", "html", "-o", str(reports / f"{lane}.html")),
    )


def call(*command: str, **environ: str) -> int:
    """Run a command in the repository; return its exit status."""
    print("$", shlex.join(command), flush=True)
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environ}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
