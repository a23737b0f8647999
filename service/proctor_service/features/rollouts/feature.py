"""The feature `rollouts`: trajectories of a policy, with tools and rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from proctor_service.feature import Feature

if TYPE_CHECKING:
    from fastapi import APIRouter

    from proctor_service.feature import Core


class RolloutsFeature(Feature):
    """The route POST /rollout of one service."""

    name = "rollouts"

    def routes(self, core: Core) -> Sequence[APIRouter]:
        """Return the route POST /rollout."""
        from proctor_service.features.rollouts.agent import Player
        from proctor_service.features.rollouts.policy import Policies
        from proctor_service.features.rollouts.routes import (
            MAX_ROLLOUTS,
            RolloutContext,
            RolloutHandler,
            rollout_routes,
        )
        from proctor_service.features.rollouts.workplaces import workplaces
        from proctor_service.scheduling.queue import FairQueue

        settings, gradings = core.settings, core.gradings
        turns = FairQueue(
            MAX_ROLLOUTS,
            settings.max_queued,
            core.deadlines,
            shares=replace(core.shares, slots={}),
        )
        core.queues.append(turns)
        player = Player(
            core.evaluate,
            workplaces(core.registry),
            lambda plan: gradings.admit(
                plan.tenant, plan.job, plan.deadline, plan.priority, begun=True
            ),
            core.machine.mcp_servers,
            core.observers,
        )
        policies = Policies(settings.policy_hosts, observers=core.observers)
        context = RolloutContext(player.play, policies.connect, turns)
        handler = RolloutHandler(core.machine, context, core.running)
        return [rollout_routes(handler, settings.max_body_mb)]
