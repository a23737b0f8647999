"""Composition of the backends: their names in the settings, and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from proctor_service.features.aviato.feature import AviatoBackends
from proctor_service.sandbox.environments import NO_ENVIRONMENTS, Environments
from proctor_service.sandbox.interface import Backend, BackendSource, MachineCheck
from proctor_service.sandbox.local import LocalBackends
from proctor_service.settings import Settings, Share

BACKENDS: Mapping[str, BackendSource] = MappingProxyType(
    {"local": LocalBackends(), "aviato": AviatoBackends()}
)


def make_backend(
    settings: Settings, share: Share | None = None, environments: Environments = NO_ENVIRONMENTS
) -> Backend:
    """Return the backend named in the settings. Raises StartError if the backend is unavailable.

    `share`: the part of the machine that the backend has; the whole by default.
    """
    return BACKENDS[settings.backend].make(settings, share or Share(), environments)


def doctor(settings: Settings) -> list[MachineCheck]:
    """Return the checks of the chosen backend: protections that are present, and missing ones."""
    return BACKENDS[settings.backend].examine(settings)
