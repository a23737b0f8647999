"""How the service is: /healthz, /readyz, /capacity, /metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from proctor_client.wire import Capacity, Health
from proctor_service.admission.queue import DRAINING, FairQueue
from proctor_service.api.examples import Answers, answers, problems
from proctor_service.api.problems import problem
from proctor_service.errors import SandboxUnavailable
from proctor_service.metrics import Metrics

METRICS_ANSWERS: Answers = {
    200: {"content": {"text/plain": {"example": "proctor_slots 3.0\n"}}},
    **problems(401),
}
OPEN: dict[str, Any] = {"security": []}
"""For the OpenAPI page: no token is needed."""
CAPACITY = {
    "slots": 3,
    "busy": 2,
    "queued": 120,
    "max_queued": 20000,
    "draining": False,
    "recent_rewards_per_second": 187.5,
}


def health_routes(
    queue: FairQueue, metrics: Metrics, why_broken: Callable[[], str], operators: Collection[str]
) -> APIRouter:
    """The routes around the work itself. `why_broken`: what is wrong with the
    sandboxes, or nothing. `operators`: tenants that see all tenants' jobs."""
    routes = APIRouter()

    @routes.get("/healthz", responses=answers({"status": "ok", "reason": None}), openapi_extra=OPEN)
    async def healthz() -> Health:
        """The process lives."""
        return Health(status="ok")

    @routes.get(
        "/readyz",
        responses=answers({"status": "ready", "reason": None}, 503),
        response_model=Health,
        openapi_extra=OPEN,
    )
    async def readyz() -> Response | Health:
        """Sandboxes work and the queue has room; else a 503 that says what is missing."""
        if queue.draining:
            return _not_ready("draining", DRAINING)
        if why := why_broken():
            message = f"sandboxes do not work: {why}"
            return _not_ready(SandboxUnavailable.reason, message)
        if not queue.has_room:
            return _not_ready("busy", "the queue is full")
        return Health(status="ready")

    @routes.get("/capacity", responses=answers(CAPACITY, 401))
    async def capacity() -> Capacity:
        """What a trainer sizes its batch by."""
        return Capacity(
            slots=queue.slots,
            busy=queue.busy,
            queued=queue.queued,
            max_queued=queue.max_queued,
            draining=queue.draining,
            recent_rewards_per_second=round(metrics.recent.per_second(), 3),
        )

    @routes.get("/metrics", response_class=Response, responses=METRICS_ANSWERS)
    async def scrape(request: Request) -> Response:
        """Prometheus text: with a tenant's token, of jobs those that are the tenant's."""
        tenant: str | None = getattr(request.state, "tenant", None)
        tenant = None if tenant is None or tenant in operators else tenant
        text = generate_latest(metrics.view(tenant))
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return routes


def _not_ready(reason: str, message: str) -> Response:
    more = {"status": "unavailable", "reason": reason}
    return problem(503, reason, message, retryable=True, more=more)
