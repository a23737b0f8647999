"""How the service is: /healthz, /readyz, /capacity, /metrics."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from proctor_client.wire import Capacity, Health, ProblemBody
from proctor_service.admission.queue import DRAINING, FairQueue
from proctor_service.api.examples import answers
from proctor_service.api.problems import problem
from proctor_service.metrics import Metrics


def health_routes(queue: FairQueue, metrics: Metrics) -> APIRouter:
    """The routes around the work itself."""
    routes = APIRouter()

    @routes.get("/healthz", responses=answers(Health, {"status": "ok"}))
    async def healthz() -> Health:
        """The process lives."""
        return Health(status="ok")

    @routes.get(
        "/readyz",
        responses=answers(Health, {"status": "ready"}, {503: ProblemBody}),
        response_model=Health,
    )
    async def readyz() -> Response | Health:
        """The pool is warm and the queue has room; else a 503 that says what is missing."""
        if queue.draining:
            return _not_ready("draining", DRAINING)
        if not queue.has_room:
            return _not_ready("busy", "the queue is full")
        return Health(status="ready")

    @routes.get("/capacity", responses=answers(Capacity, CAPACITY))
    async def capacity(request: Request) -> Capacity:
        """What a trainer sizes its batch by."""
        return Capacity(
            slots=queue.slots,
            busy=queue.busy,
            queued=queue.queued,
            max_queued=queue.max_queued,
            draining=queue.draining,
            recent_rewards_per_second=round(metrics.recent.per_second(), 3),
        )

    @routes.get("/metrics", response_class=Response, responses=_METRICS_TEXT)
    async def scrape() -> Response:
        """Prometheus text."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return routes


CAPACITY = {
    "slots": 3,
    "busy": 2,
    "queued": 120,
    "max_queued": 20000,
    "draining": False,
    "recent_rewards_per_second": 187.5,
}


def _not_ready(reason: str, message: str) -> Response:
    more = {"status": "unavailable", "reason": reason}
    return problem(503, reason, message, retryable=True, more=more)
