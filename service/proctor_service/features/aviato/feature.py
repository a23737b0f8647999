"""Sandboxes at Aviato as a backend of the service. Its SDK, an optional extra, is imported at use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from proctor_service.errors import StartError
from proctor_service.sandbox.environments import Environments
from proctor_service.sandbox.interface import Backend, MachineCheck
from proctor_service.settings import Settings, Share

_PACKAGES = ("cwsandbox", "grpc", "google")


class AviatoBackends:
    """Implements `sandbox.interface.BackendSource`."""

    def make(self, settings: Settings, share: Share, environments: Environments) -> Backend:
        """See `BackendSource.make`."""
        with _needing_the_sdk():
            from proctor_service.features.aviato.backend import AviatoBackend
            from proctor_service.features.aviato.plan import make_plan
        return AviatoBackend(make_plan(settings, share, environments))

    def examine(self, settings: Settings) -> list[MachineCheck]:
        """See `BackendSource.examine`. Takes the time of starting two sandboxes."""
        with _needing_the_sdk():
            from proctor_service.features.aviato.doctor import examine
            from proctor_service.features.aviato.plan import make_plan
        return examine(make_plan(settings))


@contextlib.contextmanager
def _needing_the_sdk() -> Iterator[None]:
    """Turn a failed import of Aviato's SDK, an optional dependency, into StartError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _PACKAGES:
            raise
        raise StartError(
            f"the backend aviato needs the package {error.name}: install proctor-service[aviato]"
        ) from None
