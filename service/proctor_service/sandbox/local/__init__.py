"""The local backend: a fresh sandbox costs a fork. Other packages import only these names.

launch ──▶ backend ──▶ slot ──▶ sandbox        in the service
                        │          │
             control    ▼          ▼ channel, stdout, stderr
                    forkserver ─ fork ─▶ the submission
"""

from __future__ import annotations

from proctor_service.sandbox.environments import NO_ENVIRONMENTS, Environments
from proctor_service.sandbox.interface import Backend, MachineCheck
from proctor_service.sandbox.local.backend import LocalBackend
from proctor_service.sandbox.local.interpreter import seen_in_sandboxes
from proctor_service.sandbox.local.launch import LocalPlan, make_plan, refuse_without_isolation
from proctor_service.settings import Settings, Share

__all__ = ["LocalBackend", "LocalBackends", "LocalPlan", "make_plan", "seen_in_sandboxes"]


class LocalBackends:
    """Implements `sandbox.interface.BackendSource`."""

    def make(
        self, settings: Settings, share: Share, environments: Environments = NO_ENVIRONMENTS
    ) -> Backend:
        """See `BackendSource.make`."""
        plan = make_plan(settings, share, environments)
        refuse_without_isolation(plan, settings.allow_degraded)
        return LocalBackend(plan)

    def examine(self, settings: Settings) -> list[MachineCheck]:
        """See `BackendSource.examine`."""
        return list(make_plan(settings).checks)
