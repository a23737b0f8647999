"""State of the service: /healthz, /readyz, /capacity, /fingerprint, /metrics.

The service is ready when the sandboxes work: a probe must pass at the start and after each failure. A
full pool or a slow machine is no fault: a probe without a sandbox in time counts as passed, except at the
start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from proctor_client.wire import Capacity, ExecGrader, Fingerprint, Health
from proctor_service.errors import (
    Failure,
    HandedBack,
    NoSandboxInTime,
    SandboxLost,
    SandboxUnavailable,
)
from proctor_service.evaluate import Judge
from proctor_service.http.openapi import Answers, answers, problems
from proctor_service.http.problems import problem
from proctor_service.judge.submission import Submission
from proctor_service.observe.metrics import Metrics
from proctor_service.observe.observer import Observer
from proctor_service.sandbox.interface import DEFAULT, Backend, Limits
from proctor_service.scheduling.queue import DRAINING, FairQueue
from proctor_service.version import version

log = logging.getLogger(__name__)
_FIRST_PROBE_SECONDS = 30.0
_PAUSES_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0)
_UNTRIED = "no sandbox has worked yet"
_SOURCE = "assert sum(range(4)) == 6\n"

METRICS_ANSWERS: Answers = {
    200: {"content": {"text/plain": {"example": "proctor_slots 3.0\n"}}},
    **problems(401),
}
OPEN: dict[str, Any] = {"security": []}
"""OpenAPI mark of a route without a token."""


Probe = Callable[[], Awaitable[None]]
"""Check that a sandbox works. Raises a Failure otherwise."""


class Readiness(Observer):
    """Readiness state: after the start and each sandbox failure, probes run until a probe passes.

    Without a `probe` (None) the service is always ready.
    """

    def __init__(self, probe: Probe | None) -> None:
        self._probe = probe
        self._broken = "" if probe is None else _UNTRIED
        self._failures = 0
        self._probing: asyncio.Task[None] | None = None

    @property
    def why_not(self) -> str:
        """Reason for a negative answer; empty if the service is ready."""
        return self._broken

    async def open(self) -> None:
        """Start probing, and wait up to 30 s for the first successful probe."""
        if self._probe is not None:
            self._start()
            assert self._probing is not None, "just started"
            await asyncio.wait({self._probing}, timeout=_FIRST_PROBE_SECONDS)

    async def close(self) -> None:
        """Stop probing."""
        if self._probing is not None:
            self._probing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._probing

    def attempt_failed(self, submission: Submission, error: BaseException) -> None:
        """Record a lost or missing sandbox of the default environment.

        A lost sandbox of another environment is no failure of the service, and probes would miss the
        loss.
        """
        if isinstance(error, NoSandboxInTime) or submission.environment != DEFAULT:
            return
        if isinstance(error, SandboxLost | SandboxUnavailable):
            self.failed(error.message)

    def failed(self, why: str) -> None:
        """Record a sandbox failure: the service is unready until a probe passes."""
        if self._probe is not None:
            self._broken = why
            self._failures += 1
            self._start()

    def _start(self) -> None:
        if self._probing is None or self._probing.done():
            self._probing = asyncio.get_running_loop().create_task(self._until_one_works())

    async def _until_one_works(self) -> None:
        assert self._probe is not None, "there is one where anything is probed"
        tries = 0
        while self._broken:
            failures = self._failures
            try:
                await self._probe()
            except NoSandboxInTime as full:
                worked = self._broken != _UNTRIED
                why = full.message
            except Exception as error:
                worked = False
                why = error.message if isinstance(error, Failure) else repr(error)
            else:
                worked = True
            if worked and failures == self._failures:
                self._broken = ""
                break
            if not worked:
                self._broken = why if self._broken != _UNTRIED else self._broken
                log.error("no sandbox works", extra={"why": why})
            await asyncio.sleep(_PAUSES_SECONDS[min(tries, len(_PAUSES_SECONDS) - 1)])
            tries += 1


def judging_probe(judge: Judge, backend: Backend, limits: Limits) -> Probe:
    """Return a probe that judges a small correct program."""

    async def probe() -> None:
        try:
            judgement = await judge(Submission(_SOURCE, ExecGrader(kind="exec"), limits), backend)
        except HandedBack as waited:
            raise NoSandboxInTime(str(waited)) from None
        if judgement.verdict == "timeout":
            raise NoSandboxInTime("a probe took too long")
        if judgement.verdict != "passed":
            raise SandboxUnavailable(f"a probe ended with {judgement.verdict}: {judgement.message}")

    return probe


def health_routes(
    queue: FairQueue,
    metrics: Metrics,
    readiness: Readiness,
    operators: Collection[str],
    fingerprint: Callable[[], Fingerprint],
    mismatched: Callable[[], Mapping[str, str]],
) -> APIRouter:
    """Return the monitoring routes.

    `operators`: tenants with a view of all tenants' jobs. `fingerprint`: of this replica. `mismatched`:
    the differences of peers with another fingerprint, by URL.
    """
    routes = APIRouter()
    shown_version = version()

    @routes.get("/healthz", responses=answers(Health), openapi_extra=OPEN)
    async def healthz() -> Health:
        """Report that the process is alive, with the version and the commit of the service."""
        return Health(status="ok", version=shown_version)

    @routes.get(
        "/readyz",
        responses=answers(Health, 503, example={"status": "ready", "reason": None}),
        response_model=Health,
        openapi_extra=OPEN,
    )
    async def readyz() -> Response | Health:
        """Report readiness: sandboxes work. Else 503 with the reason.

        A full queue is ready: where all replicas are full, a load balancer without a ready replica would
        refuse connections, and callers would miss their 429.
        """
        if queue.draining:
            return _not_ready("draining", DRAINING)
        if why := readiness.why_not:
            message = f"sandboxes do not work: {why}"
            return _not_ready(SandboxUnavailable.reason, message)
        return Health(status="ready", mismatched_peers=dict(mismatched()))

    @routes.get("/capacity", responses=answers(Capacity, 401))
    async def capacity() -> Capacity:
        """Return the capacity of the service, for a trainer to choose its batch size."""
        return Capacity(
            slots=queue.slots,
            busy=queue.running,
            queued=queue.queued,
            max_queued=queue.max_queued,
            draining=queue.draining,
            recent_rewards_per_second=round(metrics.recent.per_second(), 3),
            fingerprint=fingerprint().digest,
        )

    @routes.get("/fingerprint", responses=answers(Fingerprint, 401))
    async def own_fingerprint() -> Fingerprint:
        """Return the versions and settings that verdicts depend on, for other replicas to compare."""
        return fingerprint()

    @routes.get("/metrics", response_class=Response, responses=METRICS_ANSWERS)
    async def scrape(request: Request) -> Response:
        """Return metrics as Prometheus text; a tenant's token shows only the tenant's jobs."""
        tenant: str | None = getattr(request.state, "tenant", None)
        tenant = None if tenant is None or tenant in operators else tenant
        text = generate_latest(metrics.view(tenant))
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return routes


def _not_ready(reason: str, message: str) -> Response:
    more = {"status": "unavailable", "reason": reason}
    return problem(503, reason, message, retryable=True, more=more)
