"""The pytest plugin: read the settings, decide which parts this run needs, delegate.

Everything here is on the path of every pytest run that loads the plugin. A module that is imported, and an object that
is registered, costs each of them about a million instructions, so what an idle run has of the parts stands here, as
hooks and fixtures that import the rest when they are called: no torch, no Hypothesis, no subprocess of its own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw import hookspecs
from pytest_sglhw import settings as options
from pytest_sglhw.gates import DEVICE_TEST, ISOLATED
from pytest_sglhw.gates import hooks as gates

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    from pytest_sglhw.environment.records import Environment


@pytest.hookimpl
def pytest_addoption(parser: pytest.Parser) -> None:
    """Register options and ini values."""
    options.add_options(parser)


@pytest.hookimpl
def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks of :mod:`pytest_sglhw.hookspecs`."""
    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Pin a remote worker to devices of its own machine, and let conftests ask for the machine of this run."""
    if options.PIN_SELF in os.environ:
        from pytest_sglhw.workers.dealing import pin_this_process

        pin_this_process(early_config)
    options.enter_run(early_config)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let a plan collect only, which other plugins have to know before they are configured."""
    if config.option.sglhw_plan or config.option.sglhw_plan_for:
        from pytest_sglhw.lanes.plan_hooks import prepare

        prepare(config)


@pytest.hookimpl
def pytest_configure(config: pytest.Config) -> None:
    """Read the settings and register the parts that this run needs, in the order in which they are to be called."""
    settings = config.stash[options.SETTINGS] = options.read_settings(config)
    config.stash[options.ON_FIRST] = _on_first(config)
    options.mark_children_as_nested(config)
    options.enter_run(config)
    if settings.fake:
        from pytest_sglhw.environment import hooks as environment

        environment.register(config, settings)
    config.stash[gates.GATES] = gates.Gates(config, settings)
    if _wants_results(config, settings):
        from pytest_sglhw.report import hooks as report

        report.register(config, settings)
    if settings.lane or settings.plan:
        from pytest_sglhw.lanes import hooks as lanes

        lanes.register(config, settings)
    if settings.peak_memory or settings.devices != "off" or getattr(config.option, "tx", None):
        from pytest_sglhw.workers import hooks as workers

        workers.register(config, settings)
    if settings.shard is not None:  # also without a lane: whoever sets it means one
        from pytest_sglhw.lanes.shard import read_shard

        read_shard(settings.shard)
    if any("pytest_sglhw.conformance" in name or "pytest_sglhw/conformance" in name for name in config.args):
        from pytest_sglhw.conformance import hooks as conformance

        conformance.register(config)


def _wants_results(config: pytest.Config, settings: options.Settings) -> bool:
    """Say whether somebody reads what became of each test; a plan runs nothing."""
    if settings.plan:
        return False
    if settings.report or settings.lane or (settings.junit_properties and config.getoption("xmlpath", None)):
        return True
    hook = config.hook
    return bool(hook.pytest_sglhw_test_finished.get_hookimpls() or hook.pytest_sglhw_file_finished.get_hookimpls())


def _on_first(config: pytest.Config) -> dict[str, Callable[[], None]]:
    """Give what the parts do that a run may need later, by what is met first."""

    def isolate() -> None:
        from pytest_sglhw.workers.hooks import isolate

        isolate(config)

    def contain() -> None:
        from pytest_sglhw.workers.hooks import contain

        contain(config)

    return {ISOLATED: isolate, DEVICE_TEST: contain}


@pytest.hookimpl
def pytest_report_header(config: pytest.Config) -> str | None:
    """Show what is known of the machine without a probe; a fake speaks for itself."""
    if config.stash[options.SETTINGS].fake:
        return None
    from pytest_sglhw.environment.static import gather, shown

    if config.stash[gates.GATES].may_have_more_rows():
        from pytest_sglhw.environment.detection import detection_of

        return f"sglhw: {shown(detection_of(config).static)}"
    from pytest_sglhw.registry.platforms import BUILTIN_PLATFORMS

    return f"sglhw: {shown(gather(BUILTIN_PLATFORMS))}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Meet the marks of each file as it is collected."""
    marks = collector.config.stash[gates.GATES]
    marks.expect(collector)
    report = yield
    marks.meet(collector, report)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Meet the marks that others added later, be it at the very end of ``pytest_collection_modifyitems``."""
    session.config.stash[gates.GATES].meet_late(session.items)


@pytest.hookimpl
def pytest_markeval_namespace() -> dict[str, Any]:
    """Let ``skipif("is_rocm")`` and ``skipif("not sglhw.is_cuda")`` be written as strings."""
    import pytest_sglhw
    from pytest_sglhw.environment.predicates import PREDICATES

    return {**PREDICATES, "sglhw": pytest_sglhw}


@pytest.hookimpl
def pytest_exception_interact(node: pytest.Item | pytest.Collector, call: pytest.CallInfo[Any]) -> None:
    """Notice that the device is lost where no mark of ours is at hand: pytest calls this for failures alone."""
    from pytest_sglhw.environment.sticky import sticky_error

    if call.excinfo is not None and (error := sticky_error(call.excinfo.value)):
        from pytest_sglhw.workers.hooks import lose_device

        lose_device(node.config, node.nodeid, error)


@pytest.fixture(scope="session")
def sglhw_environment(pytestconfig: pytest.Config) -> Environment:
    """The record of this run's machine (:class:`pytest_sglhw.Environment`), every capability looked at."""
    from pytest_sglhw.environment.detection import detection_of

    return detection_of(pytestconfig).environment()


@pytest.fixture(scope="session")
def sglhw_device(pytestconfig: pytest.Config) -> str:
    """Torch's device string of the first usable device, ``cpu`` on a machine without an accelerator."""
    from pytest_sglhw.environment.fixtures import first_device

    return first_device(pytestconfig)


@pytest.fixture
def kvcacheio_on_cpu() -> Iterator[Callable[..., None]]:
    """Bind this project's CPU kernels into the named modules for one test: ``kvcacheio_on_cpu("pkg.module", ...)``.

    SGLang binds the kernels at import, behind platform flags that are frozen by then, so the names are replaced where
    they are used. Everything is as it was when the test ends.
    """
    from pytest_sglhw.gates.cpu_kernels import Binding

    with Binding() as binding:
        yield binding.bind
