"""Routes for the state of the service: /healthz, /readyz, /capacity, /metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from proctor_client.wire import Capacity, Health
from proctor_service.api.problems import problem
from proctor_service.api.rewards.examples import Answers, answers, problems
from proctor_service.errors import SandboxUnavailable
from proctor_service.observability.metrics import Metrics
from proctor_service.scheduling.queue import DRAINING, FairQueue

METRICS_ANSWERS: Answers = {
    200: {"content": {"text/plain": {"example": "proctor_slots 3.0\n"}}},
    **problems(401),
}
OPEN: dict[str, Any] = {"security": []}
"""OpenAPI mark of a route that needs no token."""


def health_routes(
    queue: FairQueue, metrics: Metrics, why_broken: Callable[[], str], operators: Collection[str]
) -> APIRouter:
    """Return the monitoring routes.

    `why_broken`: returns the problem of the sandboxes, or an empty text. `operators`: tenants that
    see all tenants' jobs.
    """
    routes = APIRouter()

    @routes.get("/healthz", responses=answers(Health), openapi_extra=OPEN)
    async def healthz() -> Health:
        """Report that the process is alive."""
        return Health(status="ok")

    @routes.get(
        "/readyz",
        responses=answers(Health, 503, example={"status": "ready", "reason": None}),
        response_model=Health,
        openapi_extra=OPEN,
    )
    async def readyz() -> Response | Health:
        """Report readiness: sandboxes work and the queue has room. Else 503 with the reason."""
        if queue.draining:
            return _not_ready("draining", DRAINING)
        if why := why_broken():
            message = f"sandboxes do not work: {why}"
            return _not_ready(SandboxUnavailable.reason, message)
        if not queue.has_room:
            return _not_ready("busy", "the queue is full")
        return Health(status="ready")

    @routes.get("/capacity", responses=answers(Capacity, 401))
    async def capacity() -> Capacity:
        """Return the capacity of the service, for a trainer to choose its batch size."""
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
        """Return metrics as Prometheus text; a tenant's token shows only the tenant's jobs."""
        tenant: str | None = getattr(request.state, "tenant", None)
        tenant = None if tenant is None or tenant in operators else tenant
        text = generate_latest(metrics.view(tenant))
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return routes


def _not_ready(reason: str, message: str) -> Response:
    more = {"status": "unavailable", "reason": reason}
    return problem(503, reason, message, retryable=True, more=more)
