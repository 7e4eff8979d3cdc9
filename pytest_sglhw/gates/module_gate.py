"""``import_or_skip``: import a module at the top of a test file, or skip the file with the true reason."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

import pytest

from pytest_sglhw.environment.records import CapabilityState
from pytest_sglhw.gates.marks import suggestion
from pytest_sglhw.settings import current_run

if TYPE_CHECKING:
    from types import ModuleType

_LEFT = re.compile(r"import_or_skip\('[\w.]+', '(\w+)'\): \1 is (\w+): ")


def import_or_skip(module: str, capability: str) -> ModuleType:
    """Return ``module`` where ``capability`` is available; elsewhere skip the file that asks, with the reason.

    In a lane that promises the capability, and in any lane where it is broken or unknown and may not skip, the file
    fails instead. Outside pytest the module is simply imported.

    :param module: dotted name, e.g. ``"sgl_kernel.kvcacheio"``.
    :param capability: name of a capability, e.g. ``"kvcacheio"``.
    :raises ValueError: a capability that the registry does not have.
    """
    __tracebackhide__ = True  # the skip is reported at the line of the file that asks
    config = current_run()
    if config is None:
        return importlib.import_module(module)
    from pytest_sglhw.environment.detection import detection_of  # the run's own, also in a run of pytest inside another

    detection = detection_of(config)
    if capability not in detection.registry.capabilities:
        known = ", ".join(detection.registry.capabilities)
        hint = suggestion(capability, detection.registry.capabilities)
        raise ValueError(f"{capability!r} is not a known capability. Valid: {known}.{hint}")
    found = detection.environment([capability]).capability(capability)
    if found.state == "available":
        try:
            return importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 (a kernel package may raise anything while it loads its libraries)
            found = CapabilityState("broken", f"{module} does not import here: {type(error).__name__}: {error}")
    _leave(config, module, capability, found)
    raise AssertionError("pytest.skip and pytest.fail do not return")


def _leave(config: pytest.Config, module: str, capability: str, found: CapabilityState) -> None:
    __tracebackhide__ = True
    from pytest_sglhw.gates.policy import LANE_POLICY

    policy = config.stash.get(LANE_POLICY, None)
    code = _code(found.state, capability)
    text = f"import_or_skip({module!r}, {capability!r}): {capability} is {found.state}: {found.reason}"
    if policy and policy.promises(capability):
        pytest.fail(f"{text} (lane {policy.name} promises it)", pytrace=False)
    if policy and found.state != "unavailable" and not policy.allows(f"requires_{capability}", code):
        pytest.fail(f"{text} (lane {policy.name} does not allow {code})", pytrace=False)
    pytest.skip(text, allow_module_level=True)


def _code(state: str, capability: str) -> str:
    return f"{'capability' if state == 'unavailable' else state}:{capability}"


def left_by(reason: str) -> tuple[str, str] | None:
    """Give mark and reason code where ``reason`` is that of a file which :func:`import_or_skip` skipped."""
    left = _LEFT.match(reason)
    return left and (f"requires_{left[1]}", _code(left[2], left[1]))
