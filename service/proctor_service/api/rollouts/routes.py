"""POST /rollout: play trajectories of a policy, and return one JSON object or NDJSON lines.

A rejected request gets an error response for the whole request, before the first call of the
policy. After that the response is a 200, and a trajectory without a verdict has its own error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from proctor_client.wire import Policy, RolloutRequest, RolloutResponse
from proctor_service.api.body import parse_rollout_request, read_body
from proctor_service.api.connection import while_connected
from proctor_service.api.rewards.batch import CLIENT_GONE
from proctor_service.api.rewards.examples import NDJSON, rollout_docs
from proctor_service.api.rewards.items import Machine
from proctor_service.api.rewards.results import Line
from proctor_service.api.rewards.slices import Pacer
from proctor_service.api.rollouts.wire import Part, Planning, rollout_summary, trajectory_line
from proctor_service.errors import Cancelled, Failure, JudgeFailed
from proctor_service.rollout.agent import Play
from proctor_service.rollout.policy import Ask, Connect
from proctor_service.rollout.trajectory import Plan, Trajectory
from proctor_service.scheduling.deadlines import AT_ONCE
from proctor_service.scheduling.queue import FairQueue, Reservation, stopping

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """Rollout context: the player of trajectories, the policy connection, and the queue."""

    play: Play
    connect: Connect
    turns: FairQueue


class Rollout:
    """The running trajectories of one request; must be created in a running event loop.

    Supports one reader. `keep`: keep all lines until the end; otherwise a line is dropped once
    taken.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        policy: Policy,
        context: RolloutContext,
        places: Reservation,
        keep: bool,
    ) -> None:
        self.more = asyncio.Event()
        self._parts = parts
        self._context = context
        self._places = places
        self._keep = keep
        self._lines: list[bytes | None] = [None] * len(parts)
        self._fresh: deque[bytes] = deque()
        self._rewards: list[float | None] = []
        self._passed = 0
        self._left = set(range(len(parts)))
        self._ended_because: str | None = None
        self._done = asyncio.Event()
        self._task = asyncio.create_task(self._play_all(policy))
        # A callback, since a task cancelled before its first step runs no code.
        self._task.add_done_callback(self._end)

    @property
    def done(self) -> bool:
        """True when every trajectory has ended."""
        return self._done.is_set()

    def when_done(self, then: Callable[[], None]) -> None:
        """Call `then` when the rollout is done."""
        self._task.add_done_callback(lambda _: then())

    async def wait(self) -> None:
        """Wait until the rollout is done."""
        await self._done.wait()

    def cancel(self, why: str) -> None:
        """End the rollout: unfinished trajectories get the error `cancelled`."""
        if self._ended_because is None and not self.done:
            self._ended_because = why
            self._task.cancel()

    def handle(self) -> bytes | None:
        """Return the next finished trajectory not yet taken, else None."""
        return self._fresh.popleft() if self._fresh else None

    def in_order(self) -> list[bytes]:
        """Return all trajectories in the order of the request; only with `keep`, and when done."""
        return [line for line in self._lines if line is not None]

    def summary(self) -> bytes:
        """Return the summary of the rollout, when done."""
        return rollout_summary(self._rewards, self._passed)

    async def _play_all(self, policy: Policy) -> None:
        async with self._context.connect(policy) as ask, asyncio.TaskGroup() as group:
            for number, part in enumerate(self._parts):
                group.create_task(self._play(number, part, ask))
                if number % AT_ONCE == AT_ONCE - 1:
                    await asyncio.sleep(0)

    async def _play(self, number: int, part: Part, ask: Ask) -> None:
        plan = part.plan
        try:
            async with self._context.turns.admit(
                plan.tenant, plan.job, plan.deadline, plan.priority
            ):
                trajectory = await self._context.play(plan, ask)
        except Failure as failure:  # the queue never gave a slot
            trajectory = Trajectory(failure=failure)
        try:
            self._record(number, trajectory)
        except Exception:  # a trajectory that cannot be encoded must not end the rollout
            log.exception("a trajectory failed", extra={"rollout_id": plan.rollout_id})
            message = f"a fault of the service; its log has it under {plan.rollout_id}"
            self._record(number, Trajectory(failure=JudgeFailed(message)))

    def _record(self, number: int, trajectory: Trajectory) -> None:
        part = self._parts[number]
        line = trajectory_line(part, trajectory)
        self._left.discard(number)
        self._rewards.append(line.reward)
        self._passed += line.verdict == "passed"
        if self._keep:
            self._lines[number] = line.json
        else:
            self._fresh.append(line.json)
        self._places.give_back()
        self.more.set()
        _log_end(part.plan, trajectory, line)

    def _end(self, task: asyncio.Task[None]) -> None:
        failure: Failure = Cancelled(self._ended_because or "it was cancelled")
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a rollout failed", exc_info=error)
            failure = JudgeFailed("a fault of the service; its log says how")
        for number in sorted(self._left):
            self._record(number, Trajectory(failure=failure))
        self._places.close()
        self._parts = ()
        self._done.set()
        self.more.set()


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


class RolloutHandler:
    """Handler of rollouts; tracks the running rollouts."""

    def __init__(self, machine: Machine, context: RolloutContext) -> None:
        self._machine = machine
        self._context = context
        self._running: set[Rollout] = set()

    @property
    def running(self) -> frozenset[Rollout]:
        """The unfinished rollouts."""
        return frozenset(self._running)

    async def handle(self, tenant: str, body: bytes | bytearray, keep: bool) -> Rollout:
        """Start the rollout of a request.

        Raises Refusal: InvalidRequest, BatchTooLarge, Busy or Draining.
        """
        begun = time.monotonic()
        if self._context.turns.draining:
            raise stopping()
        request = await parse_rollout_request(body)
        parts = await self._plan(request, tenant, begun + request.deadline_seconds)
        turns, whose, deadline = self._context.turns, (tenant, request.job), parts[0].plan.deadline
        turns.check_size(len(parts))
        turns.check_deadline(whose, request.priority, deadline)
        places = turns.reserve(len(parts), whose)
        rollout = Rollout(parts, request.policy, self._context, places, keep)
        self._running.add(rollout)
        rollout.when_done(partial(self._running.discard, rollout))
        return rollout

    async def drain(self) -> None:
        """Accept no more rollouts, and cancel waiting trajectories."""
        await self._context.turns.drain()

    async def _plan(self, request: RolloutRequest, tenant: str, deadline: float) -> list[Part]:
        planning = Planning(self._machine, request, tenant, deadline)
        parts: list[Part] = []
        pacer = Pacer()
        for number, task in enumerate(request.tasks):
            parts += planning.parts(number, task)
            await pacer.pause()
        return parts


class RolloutAnswer(StreamingResponse):
    """A rollout's trajectories, as one JSON object or as a line for each finished trajectory.

    The response watches its connection: a disconnect of the client ends the rollout at once.
    """

    def __init__(self, rollout: Rollout, by_line: bool) -> None:
        pieces = _lines(rollout) if by_line else _object(rollout)
        super().__init__(pieces, media_type=NDJSON if by_line else "application/json")
        self._rollout = rollout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all trajectories, or stop when the client disconnects."""
        try:
            with suppress(ClientDisconnect):
                await while_connected(self.stream_response(send), receive)
        finally:
            self._rollout.cancel(CLIENT_GONE)


async def _lines(rollout: Rollout) -> AsyncIterator[bytes]:
    while True:
        rollout.more.clear()
        while (line := rollout.handle()) is not None:
            yield line + b"\n"
        if rollout.done:
            break
        await rollout.more.wait()
    yield b'{"summary":' + rollout.summary() + b"}\n"


async def _object(rollout: Rollout) -> AsyncIterator[bytes]:
    await rollout.wait()
    separator = b'{"trajectories":['
    for line in rollout.in_order():
        yield separator + line
        separator = b","
    yield b'],"summary":' + rollout.summary() + b"}"


def rollout_routes(handler: RolloutHandler, max_body_mb: int) -> APIRouter:
    """Return the route POST /rollout."""
    routes = APIRouter()

    @routes.post("/rollout", response_model=RolloutResponse, **rollout_docs())
    async def rollout(request: Request) -> Response:
        """Play trajectories of a policy, and return their rewards."""
        body = await read_body(request, max_body_mb)
        by_line = NDJSON in request.headers.get("accept", "")
        tenant: str = request.state.tenant
        return RolloutAnswer(await handler.handle(tenant, body, keep=not by_line), by_line)

    return routes
