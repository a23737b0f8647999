"""The feature `compat`: routes of other reward services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from proctor_service.feature import Feature

if TYPE_CHECKING:
    from fastapi import APIRouter

    from proctor_service.feature import Core
    from proctor_service.features.compat.handler import CompatHandler


class CompatFeature(Feature):
    """The compatible routes of one service."""

    name = "compat"

    def __init__(self) -> None:
        self.handler: CompatHandler | None = None

    def routes(self, core: Core) -> Sequence[APIRouter]:
        """Return the routes of all services.

        Raises StartError if PROCTOR_COMPAT_ENVIRONMENTS names a path that belongs to none.
        """
        from proctor_service.features.compat.handler import CompatHandler
        from proctor_service.features.compat.program_runner import Runner
        from proctor_service.features.compat.routes import COMPAT_BODIES, compat_routes

        runner = Runner(
            core.machine.backend,
            core.queue,
            core.settings.languages,
            core.machine.named,
            core.metrics.executed,
        )
        self.handler = CompatHandler(core.machine, core.evaluate, runner, core.queue, core.running)
        core.bodies.extend(COMPAT_BODIES)
        return [compat_routes(self.handler)]
