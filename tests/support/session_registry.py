"""A registry of stateful sandboxes on a fake backend, for tests without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from event_loop import SkippingLoop, given_first, until
from scripted_sandboxes import ROOMY, FakeBackend
from waits import WAIT_SECONDS

from proctor_service.sandbox.interface import Command
from proctor_service.sandboxes.registry import Bounds, Order, Registry, Session
from proctor_service.scheduling.queue import Deadlines, FairQueue

BOUNDS = Bounds(live=200, remembered=100, remembered_seconds=600.0, file_bytes=1000)
ORDER = Order("t", ROOMY)


@dataclass(frozen=True)
class House:
    """A registry, and what it stands on."""

    inn: FakeBackend
    queue: FairQueue
    registry: Registry
    told: list[str]

    async def run(self, kept: Session, *argv: str) -> Any:
        return (await self.registry.execute(kept.tenant, kept.id, Command(argv))).ended

    async def begin(self, kept: Session, name: str) -> asyncio.Task[Any]:
        """A command that waits, once it does."""
        task = asyncio.create_task(self.run(kept, "wait", name))
        await until(lambda: any(name in guest.waiting for guest in self.inn.guests))
        return task


def run(
    test: Callable[[House], Coroutine[Any, Any, None]],
    bounds: Bounds = BOUNDS,
    slots: int = 100,
    max_queued: int = 1000,
) -> None:
    """Runs a test with a registry; at its end nothing may be left."""

    async def whole() -> None:
        deadlines = Deadlines()
        inn, told = FakeBackend(), list[str]()
        queue = FairQueue(slots, max_queued, deadlines)
        registry = Registry(inn, queue, bounds, lambda outcome, _: told.append(outcome))
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await test(House(inn, queue, registry, told))
                inn.door.set()
                inn.exit.set()
                await registry.close()
        finally:
            deadlines.close()
        assert (inn.guests, inn.coming) == ([], 0)
        assert (queue.busy, queue.queued) == (0, 0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(whole())


def in_house(
    bounds: Bounds = BOUNDS, slots: int = 100, max_queued: int = 1000
) -> Callable[..., Any]:
    """Make a decorator that runs an async test as `run` does."""
    return given_first(partial(run, bounds=bounds, slots=slots, max_queued=max_queued))
