"""The ``sglhw`` command: a table of subcommands, each with its home in the package that does the work.

A subcommand's module has ``add_arguments(parser)`` and ``run(args) -> int``; it is imported only when its name is on
the command line, so that ``sglhw doctor`` never pays for Hypothesis.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence

COMMANDS = {
    "doctor": ("pytest_sglhw.environment.doctor", "what machine this is and what it can do, with evidence"),
    "conformance": (
        "pytest_sglhw.conformance.command",
        "check KV transfer kernels byte for byte against the reference",
    ),
    "merge": ("pytest_sglhw.report.command", "merge reports of several lanes into one hardware matrix"),
    "capabilities": ("pytest_sglhw.registry.command", "the capability registry as a table"),
}

#: Exit statuses: as a shell gives for Ctrl-C, and for output that has no place.
INTERRUPTED, UNWRITTEN = 130, 74


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ``sglhw`` command with ``argv`` (default: the process's) and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(arguments[0] if arguments else None)
    args, rest = parser.parse_known_args(arguments)
    module = importlib.import_module(COMMANDS[args.command][0])
    if rest and not getattr(module, "PASSES_ARGUMENTS_ON", False):
        parser.error(f"unrecognized arguments: {' '.join(rest)} (see: sglhw {args.command} --help)")
    args.rest = rest
    if sys.stdout is None:  # closed by whoever started this
        return _unwritten(args.command, "the standard output is closed")
    for stream in (sys.stdout, sys.stderr):  # a name that the terminal can't write is no reason to say nothing
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = int(module.run(args))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print(f"sglhw {args.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever reads has seen enough (sglhw doctor | head)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in _NO_PLACE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _unwritten(args.command, str(error.strerror))


#: A full disk, a quota, a limit on the size of files.
_NO_PLACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _unwritten(command: str, why: str) -> int:
    print(f"sglhw {command}: the output can't be written: {why}", file=sys.stderr)
    return UNWRITTEN


def _parser(wanted: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglhw", description="Hardware truth for tests of SGLang's KV-cache kernels.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, summary) in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == wanted:
            importlib.import_module(module).add_arguments(sub)
    return parser
