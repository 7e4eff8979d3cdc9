"""The one place that this run asks about its machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.environment.pinned import PINNED, share_of
from pytest_sglhw.errors import RecordError, RegistryError
from pytest_sglhw.settings import Settings

if TYPE_CHECKING:
    from pytest_sglhw.environment.records import Environment
    from pytest_sglhw.environment.static import StaticFacts
    from pytest_sglhw.registry import Registry


class Detection:
    """Facts about the machine of this run, asked for at most once."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._environment: Environment | None = None
        if settings.fake:
            self._environment = self._fake(settings.fake)

    @cached_property
    def registry(self) -> Registry:
        """The registry of this run."""
        from pytest_sglhw.registry import load

        try:
            return load(self._config)
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
        from pytest_sglhw.environment.probe import probe

        if self._environment is None or not self._covers(capabilities):
            self._environment = probe(
                self.registry,
                self.static,
                capabilities=capabilities,
                known=self._environment,
                full=self._settings.probe == "full",
                timeout=self._settings.probe_timeout,
            )
        return share_of(self._environment, os.environ[PINNED]) if self._pinned else self._environment

    def known(self) -> Environment | None:
        """Return what is known of the whole machine without starting a child process; ``None`` where that is nothing.

        Known is what this process probed, what a fake says, and a CPU platform that static facts settle.
        """
        if self._environment is None and self._settings.probe == "auto" and self.static.settles_cpu:
            self.environment(())
        return self._environment

    @property
    def _pinned(self) -> bool:
        return PINNED in os.environ and hasattr(self._config, "workerinput")

    def _covers(self, capabilities: Iterable[str] | None) -> bool:
        if self._environment is None:
            return False
        wanted = self.registry.capabilities if capabilities is None else capabilities
        return self._environment.fake is not None or set(wanted) <= set(self._environment.capabilities)

    def _fake(self, text: str) -> Environment:
        from pytest_sglhw.environment.fakes import fake_environment

        try:
            return fake_environment(text, self.registry)
        except RecordError as error:
            raise pytest.UsageError(f"--sglhw-fake: {error}") from error


DETECTION = pytest.StashKey[Detection]()
