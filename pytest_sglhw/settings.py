"""Options, ini values and environment variables, turned once into one frozen ``Settings``.

The one place that knows how a setting is spelled. Precedence: option, environment variable, ini value, default. The
environment variables count in the outermost pytest only, so that a test suite which runs pytest in a test (or in a
subprocess) never writes into the outer run's report or fails the outer run's lane.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_sglhw.record import Record

if TYPE_CHECKING:
    import argparse

#: Set for the children of a pytest run that has read the environment variables: they do not count again there.
NESTED_MARKER = "SGLHW_OUTER_PYTEST"

#: Which part of a lane's run this is; it has no option.
SHARD = "SGLHW_SHARD"

#: Set for a remote worker, which has to look at its own machine: ``request;devices per worker;slot on its host``.
PIN_SELF = "SGLHW_PIN_SELF"


class Option(Record):
    """One setting: ``--sglhw-<stem>``, ini ``sglhw_<stem>`` and, where CI needs it, an environment variable."""

    stem: str
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    default: str | None = None
    env: str | None = None
    ini: bool = True
    repeat: bool = False
    flag: bool = False
    empty: str | None = None
    """What an empty value is told; ``None``: it counts as not given."""

    @property
    def dest(self) -> str:
        """The attribute in ``config.option`` and in ``Settings`` (without the prefix)."""
        return "sglhw_" + self.stem.replace("-", "_")


# Help strings start in lower case and end without a full stop, like pytest's own.
OPTIONS = (
    Option("lane", "check the run against the promise of lane NAME of the configuration", "NAME", env="SGLHW_LANE",
           ini=False),
    Option("fake", "pretend to be a machine: platform[:arch][*count][,+capability|-capability...] or a file that "
           "'sglhw doctor --json' wrote", "SPEC|FILE", ini=False,
           empty="names no machine. Valid: platform[:arch][*count][,+capability...] or a FILE."),
    Option("plan", "collect, run nothing, and show what each test would do in each lane", ini=False, flag=True),
    Option("plan-for", "plan for this lane or fake only (implies the plan)", "LANE|SPEC", repeat=True, ini=False),
    Option("plan-format", "how to write the plan", choices=("table", "markdown", "json"), default="table", ini=False),
    Option("report", "write a JSON Lines report of the run to FILE", "FILE", env="SGLHW_REPORT"),
    Option("kernels", "kernel provider to test: registered name, module path or module:attribute", "NAME", repeat=True),
    Option("profile", "effort of the transfer matrix", choices=("quick", "ci", "deep"), default="ci"),
    Option("probe", "what to ask a child process: what static facts leave open (auto) or every stage (full)",
           choices=("auto", "full"), default="auto", env="SGLHW_PROBE"),
    Option("probe-timeout", "seconds that one stage of the probe may take", "S", default="60"),
    Option("devices", "give each xdist worker its own devices: off, auto or device ids", "off|auto|ID,...",
           default="off"),
    Option("devices-per-worker", "devices for each xdist worker", "N", default="1"),
    Option("vacuous", "what becomes of a passing test that required a kernel and never called one",
           choices=("off", "warn", "fail"), default="off"),
    Option("peak-memory", "record the most device memory that torch held at once in each test",
           choices=("on", "off"), default="off"),
    Option("junit-properties", "write the facts of marked tests to JUnit XML", choices=("on", "off"), default="on"),
)  # fmt: skip


class Settings(Record):
    """The effective settings of a run; no other module reads an option."""

    lane: str | None
    fake: str | None
    plan: bool
    plan_for: tuple[str, ...]
    plan_format: str
    report: str | None
    kernels: tuple[str, ...]
    profile: str
    probe: str
    probe_timeout: float
    devices: str
    devices_per_worker: int
    vacuous: str
    peak_memory: bool
    junit_properties: bool
    shard: str | None
    explicit: frozenset[str]
    """Stems of the settings that somebody set, by whatever way: any of them opts in to our mark names."""


SETTINGS: pytest.StashKey[Settings] = pytest.StashKey()

#: The environment variables that count in a run. A worker gets those of its controller, under the key below in xdist's
#: ``workerinput``: xdist hands over the command line, and a worker's own environment is that of a nested pytest.
VARIABLES: pytest.StashKey[dict[str, str]] = pytest.StashKey()
WORKER_VARIABLES = "sglhw_variables"


#: What is met -> what its part does then, once: a part that most runs never need costs them nothing.
ON_FIRST: pytest.StashKey[dict[str, Callable[[], None]]] = pytest.StashKey()

#: Set where somebody reads the facts on the reports of every marked test, also of those that simply run.
FACTS_WANTED: pytest.StashKey[bool] = pytest.StashKey()


#: The pytest runs of this process, the innermost last: a test of pytest runs pytest inside.
_RUNS: list[pytest.Config] = []


def enter_run(config: pytest.Config) -> None:
    """Make the run of ``config`` the current one until it ends; again changes nothing."""
    if config not in _RUNS:
        _RUNS.append(config)
        config.add_cleanup(lambda: _RUNS.remove(config))


def current_run() -> pytest.Config | None:
    """Give the config of the innermost run, for code that pytest does not hand it to; ``None`` outside pytest."""
    return _RUNS[-1] if _RUNS else None


def mark_children_as_nested(config: pytest.Config) -> None:
    """Let the environment variables count in no process that this run starts, until it ends."""
    if NESTED_MARKER not in os.environ:
        os.environ[NESTED_MARKER] = str(os.getpid())
        config.add_cleanup(_unmark)


def _unmark() -> None:
    os.environ.pop(NESTED_MARKER, None)


def add_options(parser: pytest.Parser) -> None:
    """Register every option and its ini twin."""
    group = parser.getgroup("sglhw", "hardware matrix (sglhw)")
    for option in OPTIONS:
        extra: dict[str, Any] = {"dest": option.dest, "default": None, "help": _help(option)}
        if option.flag:
            extra["action"] = "store_true"
        else:
            extra["metavar"] = option.metavar
            if option.repeat:
                extra["action"] = "append"
        group.addoption(f"--sglhw-{option.stem}", **extra)
        if option.ini:
            kind: Literal["linelist", "string"] = "linelist" if option.repeat else "string"
            parser.addini(option.dest, option.help, type=kind, default=None)


def _help(option: Option) -> str:
    valid = f" ({', '.join(option.choices)})" if option.choices else ""
    default = f"; default: {option.default}" if option.default else ""
    return option.help + valid + default


def read_settings(config: pytest.Config) -> Settings:
    """Read the settings of ``config`` and write them back as options, which is how an isolated test gets them."""
    variables = config.stash[VARIABLES] = _variables(config)
    values = {option.stem: _value(config, option, config.option, variables) for option in OPTIONS}
    for option in OPTIONS:
        setattr(config.option, option.dest, values[option.stem])
    shard = getattr(config.option, "sglhw_shard", None) or variables.get(SHARD)
    config.option.sglhw_shard = shard
    return _settings(values, shard)


def early_settings(config: pytest.Config) -> Settings:
    """Read the settings of a run whose options pytest has not put into ``config.option`` yet; leaves no trace.

    In a worker of xdist the environment variables are not known yet: it gets them with its ``workerinput``.
    """
    variables = _variables(config)
    options = config.known_args_namespace
    return _settings({o.stem: _value(config, o, options, variables) for o in OPTIONS}, variables.get(SHARD))


def _settings(values: dict[str, Any], shard: str | None) -> Settings:
    explicit = frozenset(stem for stem, value in values.items() if value)
    return Settings(
        lane=values["lane"],
        fake=values["fake"],
        plan=bool(values["plan"] or values["plan-for"]),
        plan_for=tuple(values["plan-for"] or ()),
        plan_format=_choice("plan-format", values),
        report=values["report"],
        kernels=tuple(values["kernels"] or ()),
        profile=_choice("profile", values),
        probe=_choice("probe", values),
        probe_timeout=_timeout("probe-timeout", values),
        devices=values["devices"] or "off",
        devices_per_worker=_positive("devices-per-worker", values),
        vacuous=_choice("vacuous", values),
        peak_memory=_choice("peak-memory", values) == "on",
        junit_properties=_choice("junit-properties", values) == "on",
        shard=shard,
        explicit=explicit,
    )


def _variables(config: pytest.Config) -> dict[str, str]:
    if hasattr(config, "workerinput"):
        handed: dict[str, str] = config.workerinput.get(WORKER_VARIABLES, {})
        return handed
    if NESTED_MARKER in os.environ:
        return {}
    names = [*(option.env for option in OPTIONS if option.env), SHARD]
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def _value(config: pytest.Config, option: Option, given: argparse.Namespace, variables: Mapping[str, str]) -> Any:
    value = getattr(given, option.dest, None)
    if value == "" and option.empty:
        raise pytest.UsageError(f"--sglhw-{option.stem}: '' {option.empty}")
    if value is not None and value is not False:
        return value
    if option.env and option.env in variables:
        return variables[option.env]
    return (config.getini(option.dest) or None) if option.ini else None


_BY_STEM = {option.stem: option for option in OPTIONS}


def _where(stem: str) -> str:
    option = _BY_STEM[stem]
    ways = [f"--sglhw-{stem}"] + ([option.env] if option.env else []) + ([f"ini {option.dest}"] if option.ini else [])
    return ", ".join(ways)


def _choice(stem: str, values: dict[str, Any]) -> str:
    option = _BY_STEM[stem]
    value = str(values[stem] or option.default)
    if value not in option.choices:
        raise _invalid(stem, value, ", ".join(option.choices))
    return value


def _positive(stem: str, values: dict[str, Any]) -> int:
    text = str(values[stem] or _BY_STEM[stem].default)
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise _invalid(stem, text, "a whole number of at least 1")
    return number


def _timeout(stem: str, values: dict[str, Any]) -> float:
    text = values[stem]
    if not text:
        return float(str(_BY_STEM[stem].default))
    from pytest_sglhw.timeouts import VALID, timeout_of

    seconds = timeout_of(text)
    if seconds is None:
        raise _invalid(stem, text, VALID)
    return seconds


def _invalid(stem: str, value: str, valid: str) -> pytest.UsageError:
    return pytest.UsageError(f"{value!r} is not a valid {stem} ({_where(stem)}). Valid: {valid}.")
