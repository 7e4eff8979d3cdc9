"""The one place that this run asks about its machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.errors import RecordError, RegistryError
from pytest_sglhw.record import replace
from pytest_sglhw.settings import SETTINGS, early_settings

if TYPE_CHECKING:
    from pytest_sglhw.environment.records import Device, Environment
    from pytest_sglhw.environment.static import StaticFacts
    from pytest_sglhw.registry.registry import Registry
    from pytest_sglhw.settings import Settings
    from pytest_sglhw.sharing import SharedFolder

#: Key in ``workerinput`` of the folder that workers on the controller's machine share.
HANDED_OVER = "sglhw_shared"

#: The same for the child process of one test, as an attribute of ``config.option``.
SHARED = "sglhw_shared"

#: By this name the record of the machine is in that folder.
_RECORD = "environment"


class Detection:
    """Facts about the machine of this run, asked for at most once."""

    def __init__(self, config: pytest.Config, settings: Settings, *, early: bool = False) -> None:
        """Ask for the run of ``config``; ``early``: before what its conftests register is known."""
        self._config = config
        self._is_early = early
        self._settings = settings
        self.in_lane = settings.lane is not None
        """Whether the run has made a promise about its machine."""
        self._environment: Environment | None = None
        self._decided: dict[str, None] = {}  # capabilities of verdicts that needed no whole record
        self._early = config.stash.get(_EARLY, None)
        if settings.fake:
            self._environment = self._fake(settings.fake)

    @cached_property
    def _shared(self) -> SharedFolder | None:
        """The folder that the controller told this worker, or a worker its child, to share."""
        folder = getattr(self._config, "workerinput", {}).get(HANDED_OVER) or getattr(self._config.option, SHARED, None)
        if folder is None:
            return None
        from pytest_sglhw.sharing import SharedFolder

        return SharedFolder(folder)

    @cached_property
    def registry(self) -> Registry:
        """The registry of this run."""
        from pytest_sglhw.registry.loading import load

        try:
            return load(self._config, timeout=self._settings.probe_timeout, shared=self._shared)
        except RegistryError as error:
            raise pytest.UsageError(str(error)) from error

    @cached_property
    def static(self) -> StaticFacts:
        """What is known without a child process and without torch."""
        from pytest_sglhw.environment.static import gather

        return gather(self.registry.platforms.values())

    def environment(self, capabilities: Iterable[str] | None = None) -> Environment:
        """Return the record of this machine (of the fake, where one is given).

        ``capabilities`` names those that the caller will look at, so that only they are probed: ``()`` for the
        platform and its devices alone, ``None`` for every one in the registry. What was probed once in this run, by
        any worker on this machine, is not probed again.
        """
        if self._environment is None or not self._covers(self._environment, capabilities):
            self._environment = self._shared_probe(capabilities)
        return self._as_pinned(self._environment)

    def for_verdicts(self, capabilities: Iterable[str]) -> Environment:
        """Return as much of the record as decides what becomes of tests that ask for these capabilities."""
        if self._environment is None and self._settings.probe == "auto":
            from pytest_sglhw.environment.settled import settled

            capabilities = tuple(capabilities)
            found = settled(self.static, self.registry, capabilities)
            if found is not None:
                self._decided.update(dict.fromkeys(capabilities))
                return self._as_pinned(found)
        return self.environment(capabilities)

    def with_free_memory(self, count: int) -> Environment:
        """Return the record with what is free at this moment on the first ``count`` usable devices.

        A fake says itself what is free; see :mod:`pytest_sglhw.environment.free_memory` for who is asked otherwise.
        """
        environment = self.environment(())
        asked = environment.usable_devices[:count]
        if environment.fake is not None or not asked:
            return environment

        measured = {device.index: device for device in self._measured(asked, environment.platform)}
        return replace(environment, devices=tuple(measured.get(d.index, d) for d in environment.devices))

    def _measured(self, devices: Sequence[Device], platform: str) -> tuple[Device, ...]:
        from pytest_sglhw.asking.asker import Asker
        from pytest_sglhw.environment.free_memory import with_free_memory

        row, timeout = self.registry.platforms[platform], self._settings.probe_timeout
        return with_free_memory(devices, row, lambda: Asker(timeout), self.static.vendors, timeout=timeout)

    def known(self) -> Environment | None:
        """Return what is known of the whole machine without starting a child process; ``None`` where that is nothing.

        Known is what was probed (:meth:`probed`), and a CPU platform that static facts settle, with what was decided by
        that: its whole record is made now.
        """
        if self._environment is None and self._settings.probe == "auto" and self.static.settles_cpu:
            self.environment(tuple(self._decided))
        return self.probed()

    def probed(self) -> Environment | None:
        """Return what this process or a worker beside it probed, or a fake says; ``None`` where that is nothing."""
        return self._environment or self._told()

    def _told(self) -> Environment | None:
        """Read what another process of this run probed; ``None`` where it can't be read, and is then probed again."""
        record = self._shared.read(_RECORD) if self._shared else None
        if record is None:
            return None
        from pytest_sglhw.environment.records import Environment

        try:
            return Environment.from_json(record, _RECORD)
        except RecordError:
            return None

    def hand_over(self) -> str | None:
        """Return the folder in which the workers on this machine share what they ask; put what is known into it.

        ``None`` where there is no place for one: each worker then asks for itself.
        """
        if self._shared is None:
            from pytest_sglhw.sharing import SharedFolder

            try:
                self._shared = SharedFolder.create()
            except OSError:
                return None
            self._config.add_cleanup(self._shared.remove)
        if "registry" in vars(self) and self.registry.entry_points:
            from pytest_sglhw.registry.foreign import foreign_rows

            foreign_rows(self.registry.entry_points, self._settings.probe_timeout, self._shared)
        if self._environment is not None:
            self._shared.write(_RECORD, self._environment.to_json())
        return self._shared.folder

    def _shared_probe(self, capabilities: Iterable[str] | None) -> Environment:
        if self._shared is None:
            return self._probe(capabilities, self._environment or self._probed_early())
        with self._shared.locked(_RECORD):
            known = self._told() or self._environment or self._probed_early()
            if known is None or not self._covers(known, capabilities):
                known = self._probe(capabilities, known)
                self._shared.write(_RECORD, known.to_json())
        return known

    def _probed_early(self) -> Environment | None:
        """What a conftest had probed while it was imported, if no row that conftests added could change it."""
        early = self._early
        if early is None or list(early.registry.platforms) != list(self.registry.platforms):
            return None
        return early._environment

    def _probe(self, capabilities: Iterable[str] | None, known: Environment | None) -> Environment:
        from pytest_sglhw.environment.probe import Probe

        full, timeout = self._settings.probe == "full", self._settings.probe_timeout
        return Probe(self.registry, self.static, full=full, timeout=timeout).run(capabilities, known)

    def _as_pinned(self, environment: Environment) -> Environment:
        """Give the record as this process sees it: a worker, or its child, may hold a share of the devices."""
        if not (hasattr(self._config, "workerinput") or hasattr(self._config.option, SHARED)):
            return environment
        from pytest_sglhw.environment.pinned import PINNED, share_of

        return share_of(environment, os.environ[PINNED]) if PINNED in os.environ else environment

    def _covers(self, known: Environment, capabilities: Iterable[str] | None) -> bool:
        wanted = self.registry.capabilities if capabilities is None else capabilities
        return known.fake is not None or set(wanted) <= set(known.capabilities)

    def _fake(self, text: str) -> Environment:
        from pytest_sglhw.environment.fakes import fake_environment

        try:
            return fake_environment(text, self.registry)
        except RecordError as error:
            raise pytest.UsageError(f"--sglhw-fake: {error}{_TOO_EARLY * self._is_early}") from error


_DETECTION = pytest.StashKey[Detection]()
_EARLY = pytest.StashKey[Detection]()

_TOO_EARLY = (
    " It is asked for while conftests are imported or configured, when what they add by pytest_sglhw_register is not"
    " known: ask later, e.g. in a hook or a test module, or add the row by an entry point."
)


def detection_of(config: pytest.Config) -> Detection:
    """Return the one who asks for the machine of a run; made when somebody first wants to know.

    A conftest that is imported, or its ``pytest_configure``, comes before ours. It gets the machine that the options
    name, from the rows that are registered by then: its own ``pytest_sglhw_register`` is not.
    """
    if _DETECTION in config.stash:
        return config.stash[_DETECTION]
    if SETTINGS in config.stash:
        return config.stash.setdefault(_DETECTION, Detection(config, config.stash[SETTINGS]))
    if _EARLY not in config.stash:
        config.stash[_EARLY] = Detection(config, early_settings(config), early=True)
    return config.stash[_EARLY]
