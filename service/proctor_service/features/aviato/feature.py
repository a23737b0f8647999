"""Sandboxes at Aviato as a backend of the service. Its SDK, an optional extra, is imported at use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from proctor_service.feature import Feature, needing

if TYPE_CHECKING:
    from proctor_service.sandbox.environments import Environments
    from proctor_service.sandbox.interface import Backend, BackendSource, MachineCheck
    from proctor_service.settings import Settings, Share

_PACKAGES = ("cwsandbox", "grpc", "google")


class AviatoBackends:
    """Implements `sandbox.interface.BackendSource`."""

    def make(self, settings: Settings, share: Share, environments: Environments) -> Backend:
        """See `BackendSource.make`."""
        with needing(_PACKAGES, "the backend aviato", "aviato"):
            from proctor_service.features.aviato.backend import AviatoBackend
            from proctor_service.features.aviato.plan import make_plan
        return AviatoBackend(make_plan(settings, share, environments))

    def examine(self, settings: Settings) -> list[MachineCheck]:
        """See `BackendSource.examine`. Takes the time of starting two sandboxes."""
        with needing(_PACKAGES, "the backend aviato", "aviato"):
            from proctor_service.features.aviato.doctor import examine
            from proctor_service.features.aviato.plan import make_plan
        return examine(make_plan(settings))


class AviatoFeature(Feature):
    """The backend `aviato`."""

    name = "aviato"
    sandboxes: ClassVar[Mapping[str, BackendSource]] = MappingProxyType(
        {"aviato": AviatoBackends()}
    )
