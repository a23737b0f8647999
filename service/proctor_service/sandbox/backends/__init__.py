"""The one switch between backends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from proctor_service.errors import StartError
from proctor_service.sandbox.backends.local import (
    LocalBackend,
    make_plan,
    refuse_without_isolation,
)
from proctor_service.sandbox.interface import Backend, Check
from proctor_service.settings import Settings

_AVIATO_PACKAGES = ("cwsandbox", "grpc", "google")


def make_backend(settings: Settings) -> Backend:
    """The backend that the settings name. Raises StartError when it cannot be had here."""
    if settings.backend == "aviato":
        with _needing_the_sdk():
            from proctor_service.sandbox.backends import aviato
        return aviato.AviatoBackend(aviato.make_plan(settings))
    plan = make_plan(settings)
    refuse_without_isolation(plan, settings.allow_degraded)
    return LocalBackend(plan)


def doctor(settings: Settings) -> list[Check]:
    """What sandboxes are held to where the settings say, and what is lacking."""
    if settings.backend == "aviato":
        with _needing_the_sdk():
            from proctor_service.sandbox.backends import aviato
        return aviato.examine(aviato.make_plan(settings))
    return list(make_plan(settings).checks)


@contextlib.contextmanager
def _needing_the_sdk() -> Iterator[None]:
    """Around what imports Aviato's SDK, which most services do not have."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _AVIATO_PACKAGES:
            raise
        raise StartError(
            f"the backend aviato needs the package {error.name}: install proctor-service[aviato]"
        ) from None
