"""Sandboxes of rollouts, which are ordinary stateful sandboxes.

This module maps a rejected request, an HTTP error for a client, to its meaning for a trajectory. If
there are too many sandboxes or commands, the trajectory waits, within its deadline. An event beyond
the policy's reach is a failure: the service stops, or another client stops the sandbox.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from proctor_service.errors import (
    Busy,
    Cancelled,
    Draining,
    FileRefused,
    InvalidTask,
    QuotaExceeded,
    SandboxEnded,
    SandboxNotFound,
)
from proctor_service.features.rollouts.tools import OpenWorkplace, Workplace
from proctor_service.outcomes import TrajectoryPlan
from proctor_service.sandbox.interface import Command, Ended, Operation
from proctor_service.sandboxes.registry import Order, Registry, Session

T = TypeVar("T")

SPARE_SECONDS = 60.0
"""Extra lifetime of a sandbox after its trajectory's deadline, if no stop request arrives."""
ASK_AGAIN_SECONDS = 1.0


def workplaces(registry: Registry) -> OpenWorkplace:
    """Return the function to open a trajectory's sandbox."""

    async def open_workplace(plan: TrajectoryPlan) -> Workplace:
        tree = plan.task.tree
        left_seconds = max(plan.deadline - time.monotonic(), 0.0)
        order = Order(
            tenant=plan.tenant,
            limits=plan.limits,
            environment=plan.environment,
            tags=plan.sandbox_tags,
            ttl_seconds=left_seconds + SPARE_SECONDS,
            files=plan.task.files,
            job=plan.job,
            priority=plan.priority,
            begun=True,
            open_tree=None if tree is None else partial(tree.open, plan.task.grader),
        )
        try:
            session = await _in_time(partial(registry.create, order))
        except FileRefused as refused:
            raise InvalidTask(f"files: {refused.message}") from None
        except SandboxEnded as ended:
            raise Cancelled(ended.message) from None
        return _Workplace(registry, session)

    return open_workplace


class _Workplace:
    """A stateful sandbox, as seen by a trajectory's tools."""

    def __init__(self, registry: Registry, session: Session) -> None:
        self._registry = registry
        self._session = session
        self._where = (session.tenant, session.id)

    @property
    def id(self) -> str:
        return self._session.id

    async def exec(self, command: Command) -> Ended:
        end = await self._do(partial(self._registry.execute, *self._where, command))
        return end.ended

    async def read_file(self, path: str, max_bytes: int | None = None) -> bytes:
        return await self._do(partial(self._registry.read_file, *self._where, path, max_bytes))

    async def write_file(self, path: str, data: bytes) -> None:
        await self._do(partial(self._registry.write_file, *self._where, path, data))

    async def snapshot(self) -> bytes:
        return await self._do(partial(self._registry.snapshot, *self._where))

    async def operate(self, operation: Operation) -> None:
        await self._do(partial(self._registry.operate, *self._where, operation))

    async def stop(self) -> None:
        await self._registry.stop(*self._where)

    async def _do(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await _in_time(work)
        except SandboxNotFound as gone:
            raise Cancelled(gone.message) from None
        except SandboxEnded as ended:
            if self._session.by_own_act:
                raise
            raise Cancelled(ended.message) from None


async def _in_time(work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of the work, retried until there is capacity.

    Raises Cancelled when the service stops.
    """
    while True:
        try:
            return await work()
        except (Busy, QuotaExceeded):
            await asyncio.sleep(ASK_AGAIN_SECONDS)
        except Draining as draining:
            raise Cancelled(draining.message) from None
