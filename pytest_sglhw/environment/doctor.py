"""``sglhw doctor``: what machine this is and what it can do, with evidence.

Exit status: 0 fine, 1 the lane's promise is unmet, 2 wrong usage, 3 the probe of the platform itself hung or crashed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sglhw.environment.doctor_text import render
from pytest_sglhw.environment.probe import Probe
from pytest_sglhw.environment.static import gather
from pytest_sglhw.errors import RegistryError
from pytest_sglhw.timeouts import TIMEOUT, VALID, timeout_of

if TYPE_CHECKING:
    from pytest_sglhw.environment.records import Environment
    from pytest_sglhw.lanes.config import Lane
    from pytest_sglhw.registry.registry import Registry

FINE, UNMET, USAGE, NO_PLATFORM = 0, 1, 2, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sglhw doctor``."""
    parser.add_argument("--json", action="store_true", help="write the whole record, which --sglhw-fake FILE reads")
    parser.add_argument("--full", action="store_true", help="ask every stage even where static facts settle the answer")
    parser.add_argument("--lane", metavar="NAME", help="compare with the promise of this lane of the configuration")
    parser.add_argument(
        "--probe-timeout",
        type=_seconds,
        default=TIMEOUT,
        metavar="S",
        help="seconds for one stage (default: %(default)g)",
    )


def run(args: argparse.Namespace) -> int:
    """Probe, print, and return the exit status."""
    from pytest_sglhw.registry.loading import load

    try:
        registry = load(timeout=args.probe_timeout)
        lane = None if args.lane is None else _lane_named(args.lane, registry)
    except (RegistryError, _LaneError) as error:  # before the probe, which may take minutes
        return _usage(str(error))
    static = gather(registry.platforms.values())
    environment = Probe(registry, static, full=args.full, look=True, timeout=args.probe_timeout).run()
    if args.json:
        print(json.dumps(environment.to_json(), indent=2))
    else:
        print(render(environment))
    status = FINE if lane is None else _kept(lane, environment)
    return NO_PLATFORM if environment.platform == "unknown" else status


class _LaneError(ValueError):
    """The configuration has no such lane, or is wrong."""


def _lane_named(name: str, registry: Registry) -> Lane:
    import pytest

    from pytest_sglhw.lanes.config import get_lane

    try:
        return get_lane(Path.cwd(), registry, name)
    except pytest.UsageError as error:
        raise _LaneError(str(error)) from error


def _kept(lane: Lane, environment: Environment) -> int:
    """Compare with a lane's promise; what is unmet goes to the standard error, so that ``--json`` stays JSON."""
    from pytest_sglhw.lanes.contract import terms, unmet_table

    found = terms(lane, environment)
    if all(term.kept for term in found):
        return FINE
    print(unmet_table(lane, found), file=sys.stderr)
    return UNMET


def _usage(text: str) -> int:
    print(f"sglhw doctor: {text}", file=sys.stderr)
    return USAGE


def _seconds(text: str) -> float:
    seconds = timeout_of(text)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid timeout. Valid: {VALID}.")
    return seconds
