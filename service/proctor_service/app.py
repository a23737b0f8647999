"""Composition root: makes the core, lets each feature add its parts, and serves the app.

`Parts` opens, drains and closes the service. On the first SIGTERM or Ctrl-C the service still
accepts connections, but refuses new work (503), and returns waiting items as `cancelled`. Running
work may finish until shortly before `grace_seconds` and is then cancelled too, so every running
request gets a complete answer. Requests that are still read or prepared have the same time, and get a
503. Then the server closes the connections, and finally the sandboxes. A second signal ends the
service at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from proctor_service.composition import feature_settings, make_backend, make_rules
from proctor_service.errors import StartError, StopError
from proctor_service.evaluate import Evaluator, Judge
from proctor_service.feature import Core, Feature, Sources, needing
from proctor_service.features import FEATURES
from proctor_service.http.fleet import Fleet
from proctor_service.http.health import Readiness, health_routes, judging_probe
from proctor_service.http.middleware import Entrance, Tokens
from proctor_service.http.openapi import BODIES, install_openapi
from proctor_service.http.problems import install_problems
from proctor_service.http.responses import RequestTask
from proctor_service.http.server import ANSWERING_SECONDS, Server, browser_url, server_config
from proctor_service.http.task_store import TaskStore
from proctor_service.judge.judge import Judge as OwnJudge
from proctor_service.observe.logs import configure_logging
from proctor_service.observe.metrics import Metrics
from proctor_service.observe.observer import Observer, Observers
from proctor_service.outcomes import Outcome, outcome_bytes
from proctor_service.rewards.fingerprint import code_digest
from proctor_service.rewards.machine import Machine
from proctor_service.rewards.routes import RewardHandler, reward_routes
from proctor_service.rewards.saved_tasks import SavedTasks, task_routes
from proctor_service.sandbox.environments import NO_ENVIRONMENTS, hold_nothing
from proctor_service.sandbox.interface import Backend
from proctor_service.sandbox.memory_room import memory_check, memory_room
from proctor_service.sandbox.open_files import fitted
from proctor_service.sandboxes.grading import Gradings
from proctor_service.sandboxes.registry import Bounds, Registry
from proctor_service.sandboxes.routes import SandboxHandler, sandbox_routes
from proctor_service.scheduling.fair_share import Shares
from proctor_service.scheduling.queue import DRAINING, Deadlines, FairQueue
from proctor_service.scheduling.result_cache import MAX_ENTRIES, Cache
from proctor_service.settings import Settings, start_warnings
from proctor_service.settings.garbage import spare_collector
from proctor_service.version import version

if TYPE_CHECKING:  # optional extras
    from proctor_service.observe.tracing import Tracing

log = logging.getLogger(__name__)

MEBIBYTE = 1024 * 1024
NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "auto_configure": False,
}
"""Settings that turn FastAPI's own telemetry off: its spans would contain whole paths and tokens.

See `tracing.py`.
"""


class _Part(Protocol):
    async def close(self) -> None: ...


@dataclass(slots=True)
class Parts:
    """The connected parts of a service, and their lifecycle.

    `holds_sandboxes`: sandboxes are in this process rather than in judge processes.
    """

    core: Core
    features: Sequence[Feature]
    readiness: Readiness
    holds_sandboxes: bool
    tracing: Tracing | None = None
    opened: bool = False
    closed: bool = False

    def feature(self, name: str) -> Any:
        """Return the feature with this name."""
        return next(feature for feature in self.features if feature.name == name)

    async def open(self) -> None:
        """Open the backend and the readiness probes, then the features, once. Raises StartError."""
        if self.opened:
            return
        self.opened = True
        backend = self.core.machine.backend
        hashing = asyncio.create_task(asyncio.to_thread(code_digest))  # while sandboxes start
        await backend.start()
        await hashing
        await self.readiness.open()
        for feature in self.features:
            await feature.open()
        fields = {"backend": backend.traits.name, "slots": self.core.queue.slots}
        log.info("open", extra={**fields, "fingerprint": self.core.machine.fingerprint.digest})
        if backend.traits.degraded:
            degraded = list(backend.traits.degraded)
            log.warning("isolation is incomplete", extra={"degraded": degraded})

    async def drain(self) -> None:
        """Refuse new work, and end the running work within the grace period."""
        core = self.core
        if core.queue.draining:
            return
        grace = core.settings.grace_seconds
        answering = min(ANSWERING_SECONDS, grace / 4)
        log.info("draining", extra={"busy": core.queue.running, "queued": core.queue.queued})
        for queue in (core.queue, *core.queues):
            await queue.drain()
        if not await self._work_ends(grace - answering):
            log.warning("cancelling what still runs", extra={"busy": core.queue.busy})
            for job in list(core.running):
                job.cancel(DRAINING)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(answering / 2):
                    await core.registry.close()
            await self._work_ends(answering / 2)
        log.info("drained")

    async def close(self) -> None:
        """End every sandbox and close all parts, once; the rest is closed after a failure, too."""
        if self.closed:
            return
        self.closed = True
        core = self.core
        parts: list[_Part] = [*self.features, core.machine.backend, core.registry, self.readiness]
        async with contextlib.AsyncExitStack() as closing:  # it calls the last one first
            if self.tracing is not None:
                closing.push_async_callback(self.tracing.close)
            for part in parts:
                closing.push_async_callback(part.close)
            closing.callback(core.deadlines.close)
        log.info("closed")

    async def _work_ends(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                for job in list(self.core.running):
                    await job.wait()
                await self.core.registry.idle()
                for finish in self.core.finishing:
                    await finish()
        except TimeoutError:
            return False
        return True


def build_app(
    settings: Settings,
    backend: Backend | None = None,
    judge: Judge | None = None,
    keeps_state: bool = False,
) -> FastAPI:
    """Return the service as an ASGI app, with its `Parts` in `state.parts`. Raises StartError.

    Tests pass their own judge. `keeps_state`: files in the user's state folder are allowed.
    """
    probed = backend is None and judge is None and settings.backend == "local"
    metrics = Metrics(by_tenant=len(settings.tokens_by_tenant()) > 1)
    features = [make() for make in FEATURES]
    sources = Sources(
        settings, metrics, NO_ENVIRONMENTS, Fleet(), backend, judge, keeps_state=keeps_state
    )
    for feature in features:
        sources = feature.backend(sources)
    machine, judge = _machine(sources)
    probe = None
    if probed:
        probe = judging_probe(judge, machine.backend, machine.limits(None, "limits"))
    parts = _parts(sources, machine, judge, features, Readiness(probe))
    core, settings = parts.core, machine.settings
    app = FastAPI(
        title="Proctor",
        version=version(),
        description="Judges model-written code in sandboxes, and says what it was worth.",
        lifespan=_lifespan,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would go to the host in the client's own Host header
        telemetry=NO_TELEMETRY,
    )
    app.state.parts = parts
    app.include_router(reward_routes(core.rewards, settings.max_body_mb))
    app.include_router(task_routes(core.rewards.tasks, settings.max_body_mb))
    app.include_router(sandbox_routes(_sandbox_handler(core, sources.fleet)))
    for feature in features:
        for router in feature.routes(core):
            app.include_router(router)
    app.include_router(
        health_routes(
            core.queue,
            core.metrics,
            parts.readiness,
            settings.metrics_tenants,
            lambda: machine.fingerprint,
            sources.fleet.mismatched,
        )
    )
    install_problems(app)
    install_openapi(app, (*BODIES, *core.bodies))
    # Requests pass the middleware in reverse order: the last added comes first.
    app.add_middleware(
        Entrance,
        tokens=core.tokens,
        metrics_public=settings.metrics_public,
        draining=lambda: core.queue.draining,
        answered=core.metrics.answered,
        own_url=settings.advertise_url,
        pages=next(iter(core.pages), None),
    )
    if parts.tracing is not None:
        from proctor_service.observe.tracing import TracedApp

        app.add_middleware(TracedApp, tracing=parts.tracing)
    return app


def _machine(sources: Sources) -> tuple[Machine, Judge]:
    """Return the settings with their backend, and the judge; by default this process's."""
    settings, backend = sources.settings, sources.backend
    if backend is None:
        if settings.backend == "local":
            settings = fitted(settings)
        backend = make_backend(settings, environments=sources.environments)
    graders, languages = make_rules(settings.languages)
    machine = Machine(
        settings,
        backend,
        graders,
        languages.texts,
        languages.named,
        sources.environments,
        settings.mcp_servers_by_name(),
        sources.verifiers,
    )
    return machine, sources.judge or OwnJudge(graders)


def _parts(
    sources: Sources, machine: Machine, judge: Judge, features: list[Feature], readiness: Readiness
) -> Parts:
    settings, backend, metrics = machine.settings, machine.backend, sources.metrics
    hold = sources.hold or hold_nothing
    deadlines = Deadlines()
    tracing = _tracing(settings)
    listeners: list[Observer] = [metrics, readiness, *([tracing] if tracing else [])]
    for feature in features:
        listeners += feature.observers(sources)
    observers = Observers(*listeners)
    shares = Shares(settings.tenant_weights, settings.tenant_slots, settings.tenant_sandboxes)
    queue = FairQueue(settings.slot_count(), settings.max_queued, deadlines, shares=shares)
    gradings = FairQueue(2 * queue.slots, settings.max_queued, deadlines)
    cache = Cache[Outcome](
        MAX_ENTRIES if settings.cache_mb else 0,
        settings.cache_mb * MEBIBYTE,
        outcome_bytes,
        deadlines,
    )
    evaluate = Evaluator(
        judge, backend, queue, cache, observers, hold, sources.fleet.image_owners()
    ).evaluate
    running: set[RequestTask[Any]] = set()
    bounds = Bounds(live=settings.stateful_count(), shares=shares)
    fleet = sources.fleet
    recall = observers.recalled if observers.hears(Observer.item_recalled) else None
    registry = Registry(backend, queue, bounds, metrics.executed, fleet.id_prefix, hold)
    # An evaluation may hold several sandboxes; it leaves its core when all of them do.
    backend.when_asleep(
        lambda yielding, lent, long_runners: queue.lend(
            min(yielding - max(0, lent - queue.busy), settings.max_sandboxes // 2), long_runners
        )
    )
    metrics.watch(queue, backend)
    metrics.watch_stateful(registry.census)
    core = Core(
        settings=settings,
        machine=machine,
        metrics=metrics,
        queue=queue,
        gradings=gradings,
        deadlines=deadlines,
        shares=shares,
        evaluate=evaluate,
        rewards=RewardHandler(
            *(machine, evaluate, queue, TaskStore(), running, fleet.answers, recall),
            SavedTasks(fleet.tasks),
        ),
        registry=registry,
        tokens=Tokens(settings.tokens_by_tenant()),
        observers=observers,
        running=running,
        queues=[gradings],
        finishing=[],
        listening=[],
        bodies=[],
        pages=[],
    )
    return Parts(core, features, readiness, sources.judge is None, tracing)


def _tracing(settings: Settings) -> Tracing | None:
    """Return the tracing, or None without a collector. Raises StartError."""
    if not settings.otlp_endpoint:
        return None
    with needing(["opentelemetry"], "PROCTOR_OTLP_ENDPOINT", "otel"):
        from proctor_service.observe.tracing import Tracing
    return Tracing(settings.otlp_endpoint, version(), settings.advertise_url)


def _sandbox_handler(core: Core, fleet: Fleet) -> SandboxHandler:
    gradings = Gradings(core.machine, core.registry, core.rewards, core.gradings)
    return SandboxHandler(core.machine, core.registry, gradings, TaskStore(), fleet)


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    parts: Parts = app.state.parts
    try:
        await parts.open()
        yield
        await parts.drain()
    finally:
        await parts.close()


def make_server(app: FastAPI) -> Server:
    """Return a server for an app of `build_app`."""
    parts: Parts = app.state.parts
    settings = parts.core.settings
    in_this_process = settings.max_sandboxes if parts.holds_sandboxes else 0

    def announce(port: int) -> None:
        url = browser_url(settings, port)
        for hear in parts.core.listening:
            hear(url)

    config = server_config(app, settings, in_this_process)
    return Server(config, parts, settings.grace_seconds, announce)


def serve(settings: Settings) -> None:
    """Run the service until a stop signal.

    Raises StartError if the service cannot start, StopError if a part failed to close.
    """
    warnings = start_warnings(feature_settings())
    app = build_app(settings, keeps_state=True)
    parts: Parts = app.state.parts
    fields = None
    if parts.tracing is not None:
        from proctor_service.observe.tracing import current_ids

        fields = current_ids
    configure_logging(settings.log_level, settings.log_format, fields)
    for warning in warnings:
        log.warning(warning)
    settings = parts.core.settings
    if settings.backend == "local":
        memory = memory_check(settings, memory_room())
        if not memory.ok:
            log.warning("%s; to mend: %s", memory.detail, memory.mend)
    server = make_server(app)
    spare_collector()
    try:
        server.run()
    except SystemExit:
        # uvicorn has logged the reason, and signals the error by SystemExit.
        raise StartError(f"cannot listen on {settings.host}:{settings.port}") from None
    if server.start_error is not None:
        raise server.start_error
    if server.close_failed:
        raise StopError("the service ended, but a part of it failed to close: see the log")
