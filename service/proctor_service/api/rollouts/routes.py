"""POST /rollout: play trajectories of a policy, and return one JSON object or NDJSON lines.

A rejected request gets an error response for the whole request, before the first call of the
policy. After that the response is a 200, and a trajectory without a verdict has its own error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from proctor_client.wire import Policy, RolloutRequest, RolloutResponse
from proctor_service.api.body import Pacer, parse_body, read_body
from proctor_service.api.jobs import Job, Work
from proctor_service.api.responses import NDJSON, Form, Line, job_response
from proctor_service.api.rewards.examples import rollout_docs
from proctor_service.api.rewards.items import Machine
from proctor_service.api.rollouts.wire import Part, Planning, trajectory_line
from proctor_service.errors import Failure, JudgeFailed
from proctor_service.rollout.agent import Play
from proctor_service.rollout.policy import Connect
from proctor_service.rollout.trajectory import Plan, Trajectory
from proctor_service.scheduling.queue import FairQueue, stopping

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """Rollout context: the player of trajectories, the policy connection, and the queue."""

    play: Play
    connect: Connect
    turns: FairQueue


class RolloutHandler:
    """Handler of rollouts: a rollout is a job with a line for each trajectory.

    `running`: the unfinished rollouts.
    """

    def __init__(self, machine: Machine, context: RolloutContext) -> None:
        self.running: set[Job[Line]] = set()
        self._machine = machine
        self._context = context

    async def handle(self, tenant: str, body: bytes | bytearray, keep: bool) -> Job[Line]:
        """Start the rollout of a request. `keep`: keep the text of each line that a reader took.

        Raises Refusal: InvalidRequest, BatchTooLarge, Busy or Draining.
        """
        begun = time.monotonic()
        turns = self._context.turns
        if turns.draining:
            raise stopping()
        request = await parse_body(RolloutRequest, body)
        deadline = begun + request.deadline_seconds
        planning = Planning(self._machine, request, tenant, deadline)
        parts: list[Part] = []
        pacer = Pacer()
        for number, task in enumerate(request.tasks):
            parts += planning.parts(number, task)
            await pacer.pause()
        whose = (tenant, request.job)
        turns.check_size(len(parts))
        turns.check_deadline(whose, request.priority, deadline)
        return Job(
            parts,
            self._connected(request.policy),
            _line,
            self.running,
            places=turns.reserve(len(parts), whose),
            once_taken=None if keep else lambda line: replace(line, json=b""),
        )

    async def drain(self) -> None:
        """Accept no more rollouts, and cancel waiting trajectories."""
        await self._context.turns.drain()

    @asynccontextmanager
    async def _connected(self, policy: Policy) -> AsyncIterator[Work]:
        """Return a context with a function that plays a trajectory of the policy."""
        context = self._context
        try:
            async with context.connect(policy) as ask:

                async def play(part: Part) -> Trajectory:
                    plan = part.plan
                    turn = context.turns.admit(plan.tenant, plan.job, plan.deadline, plan.priority)
                    async with turn:
                        return await context.play(plan, ask)

                yield play
        except Exception as error:
            log.error("a rollout failed", exc_info=error)
            raise JudgeFailed("a fault of the service; its log says how") from None


def _line(part: Part, outcome: Trajectory | BaseException) -> Line:
    plan = part.plan
    if isinstance(outcome, Failure):  # the queue never gave a slot, or the rollout was cancelled
        outcome = Trajectory(failure=outcome)
    elif isinstance(outcome, BaseException):
        log.error("a trajectory failed", exc_info=outcome, extra={"rollout_id": plan.rollout_id})
        message = f"a fault of the service; its log has it under {plan.rollout_id}"
        outcome = Trajectory(failure=JudgeFailed(message))
    line = trajectory_line(part, outcome)
    _log_end(plan, outcome, line)
    return line


def _log_end(plan: Plan, trajectory: Trajectory, line: Line) -> None:
    failure = trajectory.failure
    log.info(
        "a trajectory ended",
        extra={
            "rollout_id": plan.rollout_id,
            "task_id": plan.task.id,
            "tenant": plan.tenant,
            "job": plan.job,
            "tags": list(plan.tags),
            "turns": trajectory.metrics.get("turns", 0),
            "verdict": line.verdict,
            "error": None if failure is None else failure.reason,
            "reward": line.reward,
            "duration_seconds": trajectory.metrics.get("duration_seconds", 0.0),
            "sandbox_id": trajectory.sandbox_id,
        },
    )


def rollout_routes(handler: RolloutHandler, max_body_mb: int) -> APIRouter:
    """Return the route POST /rollout."""
    routes = APIRouter()

    @routes.post("/rollout", response_model=RolloutResponse, **rollout_docs())
    async def rollout(request: Request) -> Response:
        """Play trajectories of a policy, and return their rewards."""
        body = await read_body(request, max_body_mb)
        by_line = NDJSON in request.headers.get("accept", "")
        tenant: str = request.state.tenant
        job = await handler.handle(tenant, body, keep=not by_line)
        form = Form("trajectories", ("passed",), by_line, at_once=1, headers_first=True)
        return job_response(job, form)

    return routes
