"""Lifecycle of the service: open, drain, close.

On the first SIGTERM or Ctrl-C the service still accepts connections, but refuses new work (503),
and returns waiting items as `cancelled`. Running work may finish until shortly before
`grace_seconds` and is then cancelled too, so that every running request gets a complete answer.
Then the server closes the connections, and finally the sandboxes. A second signal ends the service
at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from proctor_service.features.compat import CompatHandler
from proctor_service.features.journal.answering.routes import JournalHandler
from proctor_service.features.journal.recorder import Recorder
from proctor_service.features.replicas import Replicas, Spreader
from proctor_service.features.rollouts.routes import RolloutHandler
from proctor_service.http.health import Readiness
from proctor_service.http.responses import RequestTask
from proctor_service.observe.metrics import Metrics
from proctor_service.observe.observer import Observers
from proctor_service.outcomes import Outcome
from proctor_service.rewards.routes import RewardHandler
from proctor_service.sandbox.interface import Backend
from proctor_service.sandboxes.registry import Registry
from proctor_service.sandboxes.routes import SandboxHandler
from proctor_service.scheduling.queue import DRAINING, Deadlines, FairQueue
from proctor_service.scheduling.result_cache import Cache
from proctor_service.settings import Settings

if TYPE_CHECKING:  # optional extras
    from proctor_service.features.replicas.redis_store import RedisStore
    from proctor_service.observe.tracing import Tracing

log = logging.getLogger(__name__)

ANSWERING_SECONDS = 2.0
"""Part of `grace_seconds` reserved for ending sandboxes and sending the last answers."""


class _Part(Protocol):
    async def close(self) -> None: ...


@dataclass(slots=True)
class AppState:
    """App state: the connected parts of the service, and their lifecycle.

    `held`: locks released at the end. `own_sandboxes`: most sandboxes with open files in this
    process.
    """

    settings: Settings
    backend: Backend
    queue: FairQueue
    deadlines: Deadlines
    cache: Cache[Outcome]
    handler: RewardHandler
    registry: Registry
    sandboxes: SandboxHandler
    rollouts: RolloutHandler
    compat: CompatHandler
    records: JournalHandler
    metrics: Metrics
    observers: Observers
    replicas: Replicas
    readiness: Readiness
    store: RedisStore | None = None
    tracing: Tracing | None = None
    spreader: Spreader | None = None
    journal: Recorder | None = None
    held: ExitStack = field(default_factory=ExitStack)
    own_sandboxes: int = 0
    opened: bool = False
    closed: bool = False

    async def open(self) -> None:
        """Open the store, the backend and the readiness probes, once. Raises StartError."""
        if self.opened:
            return
        self.opened = True
        if self.store is not None:
            await self.store.open()
        await self.backend.start()
        await self.readiness.open()
        # Their processes start after all that a reward needs.
        if self.journal is not None:
            self.journal.open()
        self.records.open()
        if self.spreader is not None:
            self.spreader.open()
        traits = self.backend.traits
        log.info("open", extra={"backend": traits.name, "slots": self.queue.slots})
        if traits.degraded:
            log.warning("isolation is incomplete", extra={"degraded": list(traits.degraded)})

    async def drain(self) -> None:
        """Refuse new work, and end the running work within the grace period."""
        if self.queue.draining:
            return
        grace = self.settings.grace_seconds
        answering = min(ANSWERING_SECONDS, grace / 4)
        log.info("draining", extra={"busy": self.queue.running, "queued": self.queue.queued})
        await self.queue.drain()
        await self.sandboxes.drain()
        await self.rollouts.drain()
        if not await self._work_ends(grace - answering):
            log.warning("cancelling what still runs", extra={"busy": self.queue.busy})
            for job in self._running():
                job.cancel(DRAINING)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(answering / 2):
                    await self.registry.close()
            await self._work_ends(answering / 2)
        log.info("drained")

    async def close(self) -> None:
        """End every sandbox and close all parts, once; the failure of one keeps no other open."""
        if self.closed:
            return
        self.closed = True
        parts: list[_Part | None] = [
            self.spreader,
            self.readiness,
            self.registry,
            self.backend,
            self.replicas,
            self.records,
            self.journal,
            self.store,
            self.tracing,
        ]
        async with contextlib.AsyncExitStack() as closing:  # it calls the last one first
            closing.callback(self.held.close)
            for part in reversed(parts):
                if part is not None:
                    closing.push_async_callback(part.close)
            closing.callback(self.deadlines.close)
        log.info("closed")

    def _running(self) -> list[RequestTask[Any]]:
        return [*self.handler.running, *self.rollouts.running, *self.compat.running]

    async def _work_ends(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                for job in self._running():
                    await job.wait()
                await self.registry.idle()
                await self.replicas.drain()
        except TimeoutError:
            return False
        return True
