"""Composition root: creates the parts of the service, connects them, and serves the app.

Only this module knows the concrete classes of all parts. `lifecycle.py` opens, drains and
closes the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from proctor_service.errors import StartError, StopError
from proctor_service.evaluate import Evaluator, Judge, Outcome, outcome_bytes
from proctor_service.features.compat import COMPAT_BODIES, CompatHandler, compat_routes
from proctor_service.features.compat.program_runner import Runner
from proctor_service.features.environments.built import BuiltEnvironment, Environments
from proctor_service.features.environments.loading import default_environment, load_environments
from proctor_service.features.environments.routes import environment_routes
from proctor_service.features.journal.answering.routes import JournalHandler, journal_routes
from proctor_service.features.journal.console.cookies import Cookies
from proctor_service.features.journal.console.costs import Costs
from proctor_service.features.journal.console.routes import ConsoleHandler, console_routes
from proctor_service.features.replicas import Identity, Peers, Replicas, Spreader, base_url
from proctor_service.features.replicas.fleet import Fleet
from proctor_service.features.replicas.judge_processes.pool import Pool
from proctor_service.features.replicas.reward_slices import RewardSlices
from proctor_service.features.replicas.shared_answers import SharedAnswers
from proctor_service.features.rollouts.agent import Play, Player
from proctor_service.features.rollouts.policy import Policies
from proctor_service.features.rollouts.routes import (
    MAX_ROLLOUTS,
    RolloutContext,
    RolloutHandler,
    rollout_routes,
)
from proctor_service.features.rollouts.workplaces import workplaces
from proctor_service.http.health import Readiness, health_routes, judging_probe
from proctor_service.http.job_store import JobStore
from proctor_service.http.middleware import AnswerHeaders, Guard
from proctor_service.http.problems import install_problems
from proctor_service.http.server import Server as Server
from proctor_service.http.server import make_server as make_server
from proctor_service.http.tokens import Tokens
from proctor_service.lifecycle import AppState
from proctor_service.observe.instrumented import (
    MeasuredApp,
    measured_connect,
    measured_evaluate,
    measured_judge,
    measured_play,
)
from proctor_service.observe.logs import configure_logging
from proctor_service.observe.metrics import Metrics
from proctor_service.optional import (
    make_journal,
    make_store,
    make_tracing,
    with_own_journal,
)
from proctor_service.rewards.examples import BODIES, install_openapi
from proctor_service.rewards.items import Machine
from proctor_service.rewards.routes import RewardHandler, reward_routes
from proctor_service.sandbox.interface import Backend
from proctor_service.sandbox.linux.delegation import enable_limits
from proctor_service.sandbox.memory_room import memory_check, memory_room
from proctor_service.sandbox.open_files import allowed_open_files, raise_open_files
from proctor_service.sandboxes import Bounds, Registry
from proctor_service.sandboxes.grading import Gradings
from proctor_service.sandboxes.routes import SandboxHandler, sandbox_routes
from proctor_service.scheduling.deadlines import Deadlines
from proctor_service.scheduling.fair_share import Shares
from proctor_service.scheduling.queue import FairQueue
from proctor_service.scheduling.result_cache import MAX_ENTRIES, Cache
from proctor_service.settings import Settings, start_warnings, worker_environment
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


def build_app(
    settings: Settings, backend: Backend | None = None, judge: Judge | None = None
) -> FastAPI:
    """Return the service as an ASGI app, with the app state in `state.parts`.

    Tests pass their own judge.
    """
    probed = backend is None and judge is None and settings.backend == "local"
    held = ExitStack()
    environments = load_environments(settings, held)
    metrics = Metrics(by_tenant=len(settings.tokens_by_tenant()) > 1)
    workers = None
    if backend is None and judge is None and settings.worker_count():
        settings, workers = _workers(settings, metrics, environments)
        backend, judge = workers.backend, workers.judge
    elif backend is None and settings.backend == "local":
        settings = _fitted(settings)
    backend, judge = backend or _backend(settings, environments), judge or _judge(settings)
    machine = Machine(settings, backend, environments, settings.mcp_servers_by_name())
    probe = judging_probe(judge, backend, machine.limits(None, "limits")) if probed else None
    parts = _parts(machine, judge, Readiness(probe), metrics)
    parts.held = held
    if workers is not None:
        workers.send_ahead = parts.queue.send_ahead
        if parts.tracing is not None:
            workers.when_leased = parts.tracing.leased
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
    app.include_router(reward_routes(parts.handler, settings.max_body_mb))
    app.include_router(sandbox_routes(parts.sandboxes))
    app.include_router(rollout_routes(parts.rollouts, settings.max_body_mb))
    app.include_router(journal_routes(parts.records))
    app.include_router(environment_routes(machine, partial(_default_environment, settings)))
    app.include_router(compat_routes(parts.compat))
    tokens = Tokens(settings.tokens_by_tenant())
    costs = None
    if settings.backend == "aviato":
        everybody = settings.metrics_tenants if len(settings.tokens_by_tenant()) > 1 else None
        costs = Costs(metrics.spent, everybody)
    console = ConsoleHandler(parts.records, parts.handler, Cookies(tokens), parts.backend, costs)
    app.include_router(console_routes(console))
    app.include_router(
        health_routes(parts.queue, parts.metrics, parts.readiness, settings.metrics_tenants)
    )
    install_problems(app)
    install_openapi(app, BODIES + COMPAT_BODIES)
    # Requests pass the middleware in reverse order: the last added comes first.
    app.add_middleware(
        Guard,
        tokens=tokens,
        metrics_public=settings.metrics_public,
        own_url=settings.advertise_url,
    )
    if parts.tracing is not None:
        from proctor_service.observe.tracing import TracedApp

        app.add_middleware(TracedApp, tracing=parts.tracing)
    app.add_middleware(MeasuredApp, metrics=parts.metrics)
    app.add_middleware(AnswerHeaders, draining=lambda: parts.queue.draining)
    return app


def _fitted(settings: Settings) -> Settings:
    """Return the settings, with fewer sandboxes if the limit of open files is low.

    Raises StartError.
    """
    raise_open_files()
    fitted = settings.fitted(allowed_open_files())
    if fitted is not settings:
        most = {"sandboxes": fitted.max_sandboxes, "slots": fitted.slots}
        log.warning("few open files are allowed: fewer sandboxes", extra=most)
    return fitted


def _workers(
    settings: Settings, metrics: Metrics, environments: Environments
) -> tuple[Settings, Pool]:
    """Return the judge processes, and the settings with the sandboxes of all of them.

    Raises StartError.
    """
    each = settings.for_workers()
    if settings.backend == "local":
        each = [_fitted(part) for part in each]
    totals = ("slots", "max_sandboxes", "max_stateful_sandboxes")
    settings = settings.model_copy(
        update={name: sum(getattr(part, name) for part in each) for name in totals}
    )
    if settings.backend == "local":
        enable_limits()
    workers = Pool(
        each,
        worker_environment(),
        metrics.worker_ended,
        _clear_cgroups,
        environments=environments,
    )
    metrics.watch_workers(lambda: len(workers.working()))
    return settings, workers


async def _clear_cgroups(pid: int) -> None:
    """Remove the cgroups of a killed judge process."""
    from proctor_service.sandbox.backends import clear_cgroups

    await asyncio.to_thread(clear_cgroups, pid)


def _parts(machine: Machine, judge: Judge, readiness: Readiness, metrics: Metrics) -> AppState:
    settings, backend = machine.settings, machine.backend
    deadlines = Deadlines()
    tracing = make_tracing(settings)
    shares = Shares(settings.tenant_weights, settings.tenant_slots, settings.tenant_sandboxes)
    queue = FairQueue(settings.slot_count(), settings.max_queued, deadlines, shares=shares)
    cache = Cache[Outcome](
        MAX_ENTRIES if settings.cache_mb else 0,
        settings.cache_mb * MEBIBYTE,
        outcome_bytes,
        deadlines,
    )
    judge = measured_judge(readiness.judged(judge), metrics)
    judge = judge if tracing is None else tracing.judge(judge)
    evaluate = measured_evaluate(Evaluator(judge, backend, queue, cache).evaluate, metrics)
    journal, questions = make_journal(settings, metrics)
    evaluate = evaluate if journal is None else journal.recorded_evaluate(evaluate)
    evaluate = evaluate if tracing is None else tracing.evaluate(evaluate)
    store = make_store(settings, metrics)
    shared = None if store is None else SharedAnswers(store)
    handler = RewardHandler(machine, evaluate, queue, JobStore(), shared)
    replicas = _replicas(settings, metrics)
    bounds = Bounds(live=settings.stateful_count(), shares=shares)
    registry = Registry(backend, queue, bounds, metrics.executed, replicas.identity.new_id)
    gradings = FairQueue(2 * queue.slots, settings.max_queued, deadlines)
    sandboxes = SandboxHandler(
        machine,
        registry,
        Gradings(machine, registry, handler, gradings),
        JobStore(),
        Fleet(replicas),
    )
    turns = FairQueue(
        MAX_ROLLOUTS, settings.max_queued, deadlines, shares=replace(shares, slots={})
    )
    player = Player(
        evaluate,
        workplaces(registry),
        lambda plan: gradings.admit(
            plan.tenant, plan.job, plan.deadline, plan.priority, begun=True
        ),
        machine.mcp_servers,
    )
    play = player.play if journal is None else journal.recorded_play(player.play)
    rollouts = RolloutHandler(machine, _rollout_context(settings, play, turns, metrics, tracing))
    runner = Runner(backend, queue, settings.languages, metrics.executed)
    compat = CompatHandler(machine, evaluate, runner, queue)
    records = JournalHandler(questions, handler, version())
    # An evaluation may hold several sandboxes; it leaves its core when all of them do.
    backend.when_asleep(
        lambda yielding, lent: queue.lend(
            min(yielding - max(0, lent - queue.busy), settings.max_sandboxes // 2)
        )
    )
    metrics.watch(queue, backend)
    metrics.watch_stateful(registry.census)
    return AppState(
        settings, backend, queue, deadlines, cache, handler, registry, sandboxes, rollouts, compat,
        records, metrics, replicas, readiness, store, tracing, _spreader(settings, replicas, queue, metrics),
        journal,
    )  # fmt: skip


def _rollout_context(
    settings: Settings,
    play: Play,
    turns: FairQueue,
    metrics: Metrics,
    tracing: Tracing | None,
) -> RolloutContext:
    policies = Policies(settings.policy_hosts)
    play = measured_play(play, metrics)
    connect = measured_connect(policies.connect, metrics)
    if tracing is None:
        return RolloutContext(play, connect, turns)
    return RolloutContext(tracing.play(play), tracing.connect(connect), turns)


def _replicas(settings: Settings, metrics: Metrics) -> Replicas:
    own = settings.advertise_url
    own = own and base_url(own, "PROCTOR_ADVERTISE_URL")
    return Replicas(Identity(own), Peers(settings.peers, own), metrics.forwarded)


def _spreader(
    settings: Settings, replicas: Replicas, queue: FairQueue, metrics: Metrics
) -> Spreader | None:
    if not (settings.peers and settings.spread):
        return None
    return Spreader(replicas, queue, RewardSlices(settings.tokens_by_tenant()), metrics)


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    parts: AppState = app.state.parts
    try:
        await parts.open()
        yield
        await parts.drain()
    finally:
        await parts.close()


def _backend(settings: Settings, environments: Environments) -> Backend:
    from proctor_service.sandbox.backends import make_backend

    return make_backend(settings, environments=environments)


def _default_environment(settings: Settings) -> BuiltEnvironment | None:
    try:
        return default_environment(settings)
    except StartError:  # it is not asked for a second time
        return None


def _seen_in_sandboxes(settings: Settings, path: Path) -> bool:
    from proctor_service.sandbox.backends import seen_in_sandboxes

    return seen_in_sandboxes(settings, path)


def _judge(settings: Settings) -> Judge:
    from proctor_service.judge.judge import Judge as OwnJudge

    return OwnJudge(settings.languages)


def _warn_of_memory(settings: Settings) -> None:
    """Logs how much memory the slots may want, where that is more than there is."""
    if settings.backend == "local":
        check = memory_check(settings, memory_room())
        if not check.ok:
            log.warning("%s; to mend: %s", check.detail, check.mend)


def serve(settings: Settings) -> None:
    """Run the service until a stop signal.

    Raises StartError if the service cannot start, StopError if a part of it failed to close.
    """
    warnings = start_warnings()
    settings, no_journal = with_own_journal(settings, _seen_in_sandboxes)
    app = build_app(settings)
    fields = None
    if app.state.parts.tracing is not None:
        from proctor_service.observe.tracing import current_ids

        fields = current_ids
    configure_logging(settings.log_level, settings.log_format, fields)
    for warning in warnings:
        log.warning(warning)
    _warn_of_memory(app.state.parts.settings)
    if no_journal:
        expected = "sqlite:////path/to/file, postgresql://… or off"
        log.warning("no journal is kept: %s; set PROCTOR_JOURNAL to %s", no_journal, expected)
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
