"""The pytest plugin: read the settings, decide which parts this run needs, delegate.

Everything here is on the path of every pytest run that loads the plugin, so it imports nothing that an idle run does
not need: no torch, no Hypothesis, no subprocess of its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw import hookspecs
from pytest_sglhw.environment import runs
from pytest_sglhw.settings import NESTED_MARKER, PIN_SELF, SETTINGS, add_options, read_settings

if TYPE_CHECKING:
    from typing import Any


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register options and ini values."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks of :mod:`pytest_sglhw.hookspecs`."""
    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Pin a remote worker to devices of its own machine, and let conftests ask for the machine of this run."""
    if PIN_SELF in os.environ:
        from pytest_sglhw.workers.dealing import pin_this_process

        pin_this_process(early_config)
    runs.enter(early_config)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let a plan collect only, which other plugins have to know before they are configured."""
    if config.option.sglhw_plan or config.option.sglhw_plan_for:
        from pytest_sglhw.lanes.plan_hooks import prepare

        prepare(config)


def pytest_configure(config: pytest.Config) -> None:
    """Read the settings and register the parts that this run needs."""
    settings = config.stash[SETTINGS] = read_settings(config)
    _mark_children_as_nested(config)
    from pytest_sglhw import parts

    parts.register(config, settings)


def pytest_exception_interact(node: pytest.Item | pytest.Collector, call: pytest.CallInfo[Any]) -> None:
    """Notice that the device is lost where no mark of ours is at hand: pytest calls this for failures alone."""
    from pytest_sglhw.environment.sticky import sticky_error

    if call.excinfo is not None and (error := sticky_error(call.excinfo.value)):
        from pytest_sglhw.workers.hooks import lose_device

        lose_device(node.config, node.nodeid, error)


def _mark_children_as_nested(config: pytest.Config) -> None:
    before = os.environ.get(NESTED_MARKER)
    if before is None:
        os.environ[NESTED_MARKER] = str(os.getpid())
        config.add_cleanup(_unmark)


def _unmark() -> None:
    os.environ.pop(NESTED_MARKER, None)
