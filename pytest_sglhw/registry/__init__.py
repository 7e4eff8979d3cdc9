"""Tables of data: platforms, capabilities and kernel providers, and the registry that holds those of one run."""

from pytest_sglhw.registry.loading import load
from pytest_sglhw.registry.registry import Registry

__all__ = ["Registry", "load"]
