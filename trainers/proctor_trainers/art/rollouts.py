"""The rollouts of a step, run by the service; a request for each problem.

    async with Rollouts(client, order, policy) as rollouts:
        groups = await art.gather_trajectory_groups([rollouts.group(each) for each in problems])

After the block, all rollouts are over, here and at the service, even after an error: if ART
stops gathering after too many failures, ART leaves the other rollouts running.

A broken connection, for example at a restart of the service, says nothing about
the policy. The missing trajectories are requested again, and the client waits for the service.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import art

from proctor_client import (
    AsyncClient,
    ProctorConnectionError,
    ProctorError,
    RolloutOptions,
    environment_tags,
    wire,
)
from proctor_client.errors import surely_unbegun
from proctor_trainers.art.trajectories import RolloutFailed, trajectory_of
from proctor_trainers.mistakes import is_mistake
from proctor_trainers.problems import Problem

log = logging.getLogger("proctor_trainers")

ATTEMPTS = 3
MOST_REQUESTS = 128
"""Limit of concurrent requests.

The client has 256 connections, and a wait for a free connection can time out.
"""
TAGS = ("art-training", "art-rollout")


@dataclass(frozen=True, kw_only=True)
class Order:
    """Settings of rollouts. `run_name` is the service's `job`, used for fair sharing.

    `job_id` distinguishes this process from other processes of the same run, in the tag `job-{id}`.
    `agent` is the wire's: {"kind": "tools", …} or {"kind": "refine", …}; `options` are further
    fields of RolloutOptions.
    """

    project: str
    run_name: str
    job_id: str
    trajectories_per_problem: int
    agent: Mapping[str, Any]
    options: RolloutOptions = field(default_factory=RolloutOptions)

    def of(self, problem: Problem, step: int | None = None) -> RolloutOptions:
        """Return the request options for a problem, without the number of trajectories.

        `step` is the step of the training run, for the service's journal.
        """
        own = (self.project, self.run_name, f"job-{self.job_id}", f"problem-{problem.id}")
        more = (*environment_tags(with_fallbacks=True), *self.options.get("tags", ()))
        tags = list(dict.fromkeys([*TAGS, *own, *more]))
        whole: RolloutOptions = {
            **self.options,
            "agent": self.agent,
            "tags": tags,
            "job": self.run_name,
        }
        if step is not None:
            whole["step"] = step
        return whole


class Rollouts:
    """The rollouts of a step, with the policy of this step.

    `step` is the step's number in the service's journal.
    """

    def __init__(
        self,
        client: AsyncClient,
        order: Order,
        policy: Mapping[str, Any],
        step: int | None = None,
    ) -> None:
        self._client = client
        self._order = order
        self._policy = policy
        self._step = step
        self._tasks: list[asyncio.Task[None]] = []
        self._futures: list[asyncio.Future[art.Trajectory]] = []
        self._places = asyncio.Semaphore(MOST_REQUESTS)
        self.mistake: ProctorError | None = None
        """A fatal error, such as a wrong token, which would affect every other rollout too."""

    def group(self, problem: Problem) -> Awaitable[art.TrajectoryGroup]:
        """Begin the rollouts of a problem. Await the group in ART's gather, to count failures."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[art.Trajectory]] = [
            loop.create_future() for _ in range(self._order.trajectories_per_problem)
        ]
        self._futures += futures
        self._tasks.append(asyncio.create_task(self._play(problem, futures)))
        group: Awaitable[art.TrajectoryGroup] = art.TrajectoryGroup(
            futures, metadata={"scenario_id": problem.id}
        )
        return group

    def cancel(self) -> None:
        """End the rollouts in progress; the service sees the disconnect."""
        for each in (*self._tasks, *self._futures):
            each.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()
        await asyncio.gather(*self._tasks, *self._futures, return_exceptions=True)

    async def _play(
        self, problem: Problem, futures: Sequence[asyncio.Future[art.Trajectory]]
    ) -> None:
        left = deque(futures)
        failure: Exception = RolloutFailed("protocol: fewer trajectories than were asked for")
        try:
            async with self._places:
                await self._ask(problem, left)
        except ProctorError as error:
            if is_mistake(error, self._client.has_answered):
                self.mistake = error
            failure = RolloutFailed(str(error))
        except Exception as error:  # a bug of this package, which ART's gather must raise
            failure = error
        finally:
            for future in left:
                if not future.done():
                    future.set_exception(failure)

    async def _ask(self, problem: Problem, left: deque[asyncio.Future[art.Trajectory]]) -> None:
        """Settle each future when its trajectory arrives. Raises ProctorError if some remain."""
        task = problem.rollout_task()
        options = self._order.of(problem, self._step)
        for attempt in range(1, ATTEMPTS + 1):
            is_last = attempt == ATTEMPTS
            options["trajectories_per_task"] = len(left)
            try:
                async with self._client.rollout_stream(
                    [task], policy=self._policy, **options
                ) as stream:
                    async for trajectory in stream:
                        if is_last or not _was_cancelled(trajectory):
                            _set_results(left.popleft(), trajectory)
            except ProctorConnectionError as error:
                if is_last or surely_unbegun(error):
                    raise
                log.warning("problem %s: asked for again: %s", problem.id, error)
            if not left:
                return


def _was_cancelled(trajectory: wire.Trajectory) -> bool:
    """Return True if the service ended the rollout because of its own shutdown."""
    return trajectory.error is not None and trajectory.error.reason == "cancelled"


def _set_results(future: asyncio.Future[art.Trajectory], trajectory: wire.Trajectory) -> None:
    if future.done():
        return
    try:
        future.set_result(trajectory_of(trajectory))
    except RolloutFailed as failure:
        future.set_exception(failure)
