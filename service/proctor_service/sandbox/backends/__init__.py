"""The one switch between backends."""

from __future__ import annotations

from proctor_service.sandbox.backends.local import (
    LocalBackend,
    make_plan,
    refuse_without_isolation,
)
from proctor_service.sandbox.interface import Backend, Check
from proctor_service.settings import Settings


def make_backend(settings: Settings) -> Backend:
    """The backend that the settings name. Raises StartError when this machine cannot run it."""
    plan = make_plan(settings)
    refuse_without_isolation(plan, settings.allow_degraded)
    return LocalBackend(plan)


def doctor(settings: Settings) -> list[Check]:
    """What this machine gives to sandboxes and what it lacks."""
    return list(make_plan(settings).checks)
