"""The composition root, and the service's life: open, serve, drain, close.

Here the rooms are put together, and nowhere else does one of them know a concrete other.

The end of it is in `Rooms.drain`. On the first SIGTERM or Ctrl-C the service goes on listening, but
takes no new work (503), and hands back what waits as `cancelled`. What runs may finish until a
little before `grace_seconds`, and is then cancelled too, so that every request under way gets a
whole answer. Only then are connections closed, and last the sandboxes. A second signal ends it at
once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from proctor_service.admission.cache import Cache
from proctor_service.admission.deadlines import Deadlines
from proctor_service.admission.queue import DRAINING, FairQueue
from proctor_service.api.auth import Authenticated
from proctor_service.api.batch import Batch
from proctor_service.api.compat import COMPAT_BODIES, CompatDesk, Work, compat_routes
from proctor_service.api.examples import BODIES, install_openapi
from proctor_service.api.health import health_routes
from proctor_service.api.idempotency import Ledger
from proctor_service.api.problems import CatchAll, install_problems
from proctor_service.api.rewards import RewardDesk, reward_routes
from proctor_service.api.rollouts import Rollout, RolloutDesk, Stage, rollout_routes
from proctor_service.api.sandboxes import Creation, SandboxDesk, sandbox_routes
from proctor_service.api.translate import Machine
from proctor_service.api.workplaces import workplaces
from proctor_service.errors import StartError
from proctor_service.evaluate import Corridor, Judge, Outcome, outcome_bytes
from proctor_service.logs import configure_logging
from proctor_service.measured import (
    MeasuredApp,
    measured_connect,
    measured_evaluate,
    measured_judge,
    measured_play,
)
from proctor_service.metrics import Metrics
from proctor_service.registry import Bounds, Registry
from proctor_service.rollout.agent import Player
from proctor_service.rollout.policy import Policies
from proctor_service.running import Runner
from proctor_service.sandbox.interface import Backend
from proctor_service.settings import Settings

log = logging.getLogger(__name__)

MEBIBYTE = 1024 * 1024
ANSWERING_SECONDS = 2.0
"""Kept back from `grace_seconds` for ending sandboxes and sending the last answers."""
KEEP_ALIVE_SECONDS = 75  # longer than clients keep idle connections, so that they close them first
BACKLOG = 2048


@dataclass(slots=True)
class Rooms:
    """What was put together, and its life in plain verbs."""

    settings: Settings
    backend: Backend
    queue: FairQueue
    deadlines: Deadlines
    cache: Cache[Outcome]
    desk: RewardDesk
    registry: Registry
    sandboxes: SandboxDesk
    rollouts: RolloutDesk
    compat: CompatDesk
    metrics: Metrics
    opened: bool = False
    closed: bool = False

    async def open(self) -> None:
        """Opens the sandboxes, once. Raises StartError when they cannot be."""
        if self.opened:
            return
        self.opened = True
        await self.backend.open()
        traits = self.backend.traits
        log.info("open", extra={"backend": traits.name, "slots": self.queue.slots})
        if traits.degraded:
            log.warning("isolation is incomplete", extra={"degraded": list(traits.degraded)})

    async def drain(self) -> None:
        """Takes no new work, and sees what is under way to an end within the grace."""
        if self.queue.draining:
            return
        grace = self.settings.grace_seconds
        answering = min(ANSWERING_SECONDS, grace / 4)
        log.info("draining", extra={"busy": self.queue.busy, "queued": self.queue.queued})
        await self.queue.drain()
        await self.sandboxes.drain()
        await self.rollouts.drain()
        if not await self._work_ends(grace - answering):
            log.warning("cancelling what still runs", extra={"busy": self.queue.busy})
            for work in self._at_work():
                work.cancel(DRAINING)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(answering / 2):
                    await self.registry.close()
            await self._work_ends(answering / 2)
        log.info("drained")

    async def close(self) -> None:
        """Ends every sandbox, once."""
        if self.closed:
            return
        self.closed = True
        self.deadlines.close()
        await self.registry.close()
        await self.backend.close()
        log.info("closed")

    def _at_work(self) -> list[Batch | Rollout | Work]:
        return [*self.desk.running, *self.rollouts.running, *self.compat.running]

    async def _work_ends(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                for work in self._at_work():
                    await work.wait()
                await self.registry.idle()
        except TimeoutError:
            return False
        return True


def build_app(
    settings: Settings, backend: Backend | None = None, judge: Judge | None = None
) -> FastAPI:
    """The service as an ASGI app; its `state.rooms` are the Rooms. Tests bring their own judge."""
    rooms = _rooms(settings, backend or _backend(settings), judge or _judge(settings))
    app = FastAPI(
        title="Proctor",
        version=_version(),
        description="Judges model-written code in sandboxes, and says what it was worth.",
        lifespan=_lifespan,
        redoc_url=None,
    )
    app.state.rooms = rooms
    app.include_router(reward_routes(rooms.desk, settings.max_body_mb))
    app.include_router(sandbox_routes(rooms.sandboxes))
    app.include_router(rollout_routes(rooms.rollouts, settings.max_body_mb))
    app.include_router(compat_routes(rooms.compat))
    app.include_router(health_routes(rooms.queue, rooms.metrics))
    install_problems(app)
    install_openapi(app, BODIES + COMPAT_BODIES)
    # The last one added is the first that a request meets.
    app.add_middleware(
        Authenticated, tokens=settings.tokens_by_tenant(), metrics_public=settings.metrics_public
    )
    app.add_middleware(CatchAll)
    app.add_middleware(MeasuredApp, metrics=rooms.metrics)
    return app


def _rooms(settings: Settings, backend: Backend, judge: Judge) -> Rooms:
    deadlines = Deadlines()
    metrics = Metrics()
    queue = FairQueue(settings.slot_count(), settings.max_queued, deadlines)
    cache = Cache[Outcome](
        settings.cache_entries, settings.cache_mb * MEBIBYTE, outcome_bytes, deadlines
    )
    corridor = Corridor(measured_judge(judge, metrics), backend, queue, cache)
    machine = Machine(settings, backend)
    ledger: Ledger[Batch] = _ledger(settings)
    evaluate = measured_evaluate(corridor.evaluate, metrics)
    desk = RewardDesk(machine, evaluate, queue, ledger)
    registry = Registry(backend, queue, _bounds(settings), metrics.executed)
    creations: Ledger[Creation] = _ledger(settings)
    gradings = FairQueue(2 * queue.slots, settings.max_queued, deadlines)
    sandboxes = SandboxDesk(machine, registry, desk, gradings, creations)
    policies = Policies(settings.policy_hosts, settings.policy_attempts)
    stage = Stage(
        measured_play(Player(evaluate, workplaces(registry)).play, metrics),
        measured_connect(policies.connect, metrics),
        FairQueue(settings.max_rollouts, settings.max_queued, deadlines),
    )
    rollouts = RolloutDesk(machine, stage)
    runner = Runner(backend, queue, settings.languages, metrics.executed)
    compat = CompatDesk(machine, evaluate, runner, queue)
    # An evaluation may hold several sandboxes; it rests when all of them do.
    backend.when_asleep(
        lambda asleep, lent: queue.lend(
            min(asleep - max(0, lent - queue.busy), settings.max_sandboxes // 2)
        )
    )
    metrics.watch(queue, backend)
    metrics.watch_stateful(registry.census)
    return Rooms(
        settings, backend, queue, deadlines, cache, desk, registry, sandboxes, rollouts, compat,
        metrics,
    )  # fmt: skip


def _ledger(settings: Settings) -> Ledger[Any]:
    return Ledger(settings.idempotency_seconds, settings.idempotency_mb * MEBIBYTE)


def _bounds(settings: Settings) -> Bounds:
    return Bounds(
        live=settings.stateful_count(),
        remembered=settings.ended_sandboxes,
        remembered_seconds=settings.ended_sandbox_seconds,
        file_bytes=settings.max_file_mb * MEBIBYTE,
    )


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    rooms: Rooms = app.state.rooms
    try:
        await rooms.open()
        yield
        await rooms.drain()
    finally:
        await rooms.close()


def _backend(settings: Settings) -> Backend:
    from proctor_service.sandbox.backends import make_backend

    return make_backend(settings)


def _judge(settings: Settings) -> Judge:
    from proctor_service.judge.judge import Judge as OwnJudge

    return OwnJudge(settings.languages)


def _version() -> str:
    try:
        return version("proctor-service")
    except PackageNotFoundError:  # run from the sources
        return "0"


class Server(uvicorn.Server):
    """Drains before it stops listening; uvicorn alone would close its sockets first.

    While it drains, a new request gets a 503 that says so, and not a refused connection.
    """

    def __init__(self, config: uvicorn.Config, rooms: Rooms) -> None:
        super().__init__(config)
        self.start_error: StartError | None = None
        self._rooms = rooms
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._signals = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Opens the rooms, then listens."""
        try:
            await self._rooms.open()
        except StartError as error:
            self.start_error = error
            self.should_exit = True
            await self._rooms.close()
            return
        await super().startup(sockets)

    async def main_loop(self) -> None:
        """Serves until it is told to stop."""
        self._loop = asyncio.get_running_loop()
        if self._signals:  # one came while the rooms were opened
            self._begin_drain()
        await super().main_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, the second ends it at once."""
        self._signals += 1
        if self._signals > 1:
            self.force_exit = self.should_exit = True
        elif self._loop is not None:
            # A signal's handler runs between any two instructions; the loop is where we may act.
            self._loop.call_soon_threadsafe(self._begin_drain)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the connections, then the rooms; when forced it waits for nobody."""
        if self.force_exit:
            for connection in list(self.server_state.connections):
                connection.transport.abort()
        await super().shutdown(sockets)

    def _begin_drain(self) -> None:
        log.info("stopping; a second signal ends it at once")
        self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            await self._rooms.drain()
        finally:
            self.should_exit = True


def make_server(app: FastAPI) -> Server:
    """A server for an app of `build_app`."""
    rooms: Rooms = app.state.rooms
    settings = rooms.settings
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(ANSWERING_SECONDS / 2)),
    )
    return Server(config, rooms)


def serve(settings: Settings) -> None:
    """Runs the service until it is told to stop. Raises StartError when it cannot start."""
    configure_logging(settings.log_level, settings.log_format)
    server = make_server(build_app(settings))
    # What is there now stays: without it each full collection would hold the loop up for 25 ms.
    gc.collect()
    gc.freeze()
    try:
        server.run()
    except SystemExit:
        # uvicorn has logged why, and knows no other way to say it.
        raise StartError(f"cannot listen on {settings.host}:{settings.port}") from None
    if server.start_error is not None:
        raise server.start_error
