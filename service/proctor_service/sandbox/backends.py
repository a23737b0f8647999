"""Selection of the backend from the settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from proctor_service.errors import StartError
from proctor_service.features.environments.built import NO_ENVIRONMENTS, Environments
from proctor_service.sandbox.interface import Backend, Check
from proctor_service.sandbox.local import (
    LocalBackend,
    make_plan,
    refuse_without_isolation,
    shown_paths,
)
from proctor_service.sandbox.local.cgroups import remove_left_by
from proctor_service.settings import Settings, Share

_AVIATO_PACKAGES = ("cwsandbox", "grpc", "google")


def make_backend(
    settings: Settings, share: Share | None = None, environments: Environments = NO_ENVIRONMENTS
) -> Backend:
    """Return the backend named in the settings. Raises StartError if the backend is unavailable.

    `share`: the part of the machine that the backend has; the whole by default.
    """
    if settings.backend == "aviato":
        with _needing_the_sdk():
            from proctor_service.features import aviato
        return aviato.AviatoBackend(aviato.make_plan(settings, share, environments))
    plan = make_plan(settings, share, environments)
    refuse_without_isolation(plan, settings.allow_degraded)
    return LocalBackend(plan)


def seen_in_sandboxes(settings: Settings, path: Path) -> bool:
    """Return True if sandboxes of this machine see this file or directory. Raises StartError."""
    if settings.backend == "aviato":
        return False
    if settings.allow_degraded:  # then a sandbox may have no mount namespace
        return True
    here = path.resolve()
    return any(here.is_relative_to(shown.resolve()) for shown in shown_paths(settings))


def clear_cgroups(pid: int) -> None:
    """Remove the cgroups that a killed service or judge process has left; blocks for a moment."""
    remove_left_by(pid)


def doctor(settings: Settings) -> list[Check]:
    """Return the checks of the chosen backend: the protections present and missing."""
    if settings.backend == "aviato":
        with _needing_the_sdk():
            from proctor_service.features import aviato
        return aviato.examine(aviato.make_plan(settings))
    return list(make_plan(settings).checks)


@contextlib.contextmanager
def _needing_the_sdk() -> Iterator[None]:
    """Turn a failed import of Aviato's SDK, an optional dependency, into StartError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _AVIATO_PACKAGES:
            raise
        raise StartError(
            f"the backend aviato needs the package {error.name}: install proctor-service[aviato]"
        ) from None
