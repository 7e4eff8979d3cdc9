"""``sglhw conformance``: the transfer matrix on this machine. Runs pytest on the tests that the package ships."""

from __future__ import annotations

import argparse

from pytest_sglhw.conformance import watched
from pytest_sglhw.conformance.cells import DTYPES, PAGE_SIZES

#: Arguments that this command does not know are pytest's.
PASSES_ARGUMENTS_ON = True

#: Option of the command -> option of pytest.
_OPTIONS = {
    "kernels": "--sglhw-kernels",
    "kernel": "--sglhw-matrix-kernel",
    "layout": "--sglhw-matrix-layout",
    "dtype": "--sglhw-matrix-dtype",
    "page_size": "--sglhw-matrix-page-size",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.allow_abbrev = False
    add = parser.add_argument
    add(
        "--kernels",
        action="append",
        default=[],
        metavar="PROVIDER",
        help="provider to test (default: every one there is)",
    )
    add("--kernel", action="append", default=[], metavar="NAME", help="only this kernel")
    add("--layout", action="append", default=[], metavar="L", help="only this layout")
    add("--dtype", action="append", default=[], metavar="D", help=f"only this dtype: {', '.join(DTYPES)}")
    sizes = ", ".join(map(str, PAGE_SIZES))
    add("--page-size", action="append", default=[], metavar="N", help=f"only this page size: {sizes}")
    add("--profile", default=None, metavar="P", help="effort: quick, ci (default) or deep")
    add("--seed", type=int, default=None, metavar="N", help="draw other examples (default: those of every run)")
    add("--report", default=None, metavar="FILE", help="write a JSON Lines report")
    add("--self-test", action="store_true", help="plant faults in correct kernels and show which law kills each")
    add("--bandwidth", action="store_true", help="afterwards, show each kernel's GB/s beside those of a plain copy")
    add("--isolate", action="store_true", help="run each cell in a child process: a crash or a hang is one failed cell")
    add(
        "--isolate-timeout",
        default=None,
        metavar="S",
        help="seconds that one example may take before it is a hang (default: 120); implies --isolate",
    )


def run(args: argparse.Namespace) -> int:
    """Run the matrix in a pytest of its own (this process has imported too much already); return its exit status."""
    if args.self_test:
        return _self_test(args)
    return watched.run_pytest(pytest_arguments(args))


def pytest_arguments(args: argparse.Namespace) -> list[str]:
    """The arguments of the pytest run."""
    result = ["--pyargs", "pytest_sglhw.conformance", "-p", "pytest_sglhw.conformance.hooks", "-p", "sglhw"]
    for name, option in _OPTIONS.items():
        result += [f"{option}={value}" for value in getattr(args, name)]
    result += [f"--sglhw-{name}={getattr(args, name)}" for name in ("profile", "report") if getattr(args, name)]
    result += [f"--sglhw-matrix-{name}" for name in ("isolate", "bandwidth") if getattr(args, name)]
    result += [] if args.isolate_timeout is None else [f"--sglhw-matrix-isolate-timeout={args.isolate_timeout}"]
    # The option is that of Hypothesis' plugin, which is not there where plugins are not loaded on their own.
    result += [] if args.seed is None else ["-p", "hypothesispytest", f"--hypothesis-seed={args.seed}"]
    return [*result, *args.rest]


def _self_test(args: argparse.Namespace) -> int:
    """Run the self-test. It takes the profile, kernels by name and a seed, and refuses all other options."""
    from pytest_sglhw.conformance import self_test
    from pytest_sglhw.conformance.runner import PROFILES

    parser = argparse.ArgumentParser(prog="sglhw conformance --self-test", allow_abbrev=False)
    parser.add_argument("--profile", choices=tuple(PROFILES), default="ci")
    parser.add_argument("--kernel", choices=self_test.kernels_with_mutants(), action="append", default=[])
    parser.add_argument("--seed", "--hypothesis-seed", type=int, default=0, metavar="N")
    several = {name: getattr(args, name) for name in _OPTIONS} | {"profile": filter(None, [args.profile])}
    several |= {"seed": [] if args.seed is None else [args.seed]}
    several |= {"report": filter(None, [args.report])}
    several |= {name: ["yes"] for name in ("isolate", "bandwidth") if getattr(args, name)}
    several |= {"isolate_timeout": [] if args.isolate_timeout is None else [args.isolate_timeout]}
    given = [f"--{name.replace('_', '-')}={value}" for name, values in several.items() for value in values]
    options = parser.parse_args([*given, *args.rest])
    return self_test.run(options.profile, options.seed, options.kernel)
