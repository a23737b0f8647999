"""Traces from the client's call through queue, judge and sandbox.

`Tracing` is an observer; `TracedApp` adds the request. Without an endpoint the service does not import
this module. A span contains names, times and outcomes, but neither texts of submissions, paths, tokens
nor messages. A separate thread exports the spans. With a slow or unreachable collector, spans are lost,
and requests are unaffected.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor_service.judge.submission import Judgement, Submission
from proctor_service.observe.observer import Observer, reason_of
from proctor_service.outcomes import Item, Outcome, Trajectory, TrajectoryPlan

EXPORT_SECONDS = 5.0
LAST_SPANS_SECONDS = 3.0
MOST_WAITING_SPANS = 32_768
UNTRACED_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
_OPEN = context.create_key("proctor-open-span")
"""Key of the innermost `_OpenSpan` in the context of a task."""


def current_ids() -> Mapping[str, str]:
    """Return the ids of the current trace and span for the logs; empty outside a trace."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {
        "trace_id": trace.format_trace_id(context.trace_id),
        "span_id": trace.format_span_id(context.span_id),
    }


@dataclass(frozen=True, slots=True)
class _OpenSpan:
    """Span of begun work. `work`: the begun work. `outer`: the context before."""

    work: object
    span: Span
    outer: Context
    begun_ns: int


class Tracing(Observer):
    """Creator of spans, with export to an OTLP endpoint over HTTP.

    The variables OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG say which of the traces beginning here
    are kept; by default all.
    """

    def __init__(self, endpoint: str, version: str, instance: str) -> None:
        resource = Resource.create(
            {
                "service.name": "proctor",
                "service.version": version,
                **({"service.instance.id": instance} if instance else {}),
            }
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
        processor = BatchSpanProcessor(
            exporter, max_queue_size=MOST_WAITING_SPANS, schedule_delay_millis=1000
        )
        self._provider.add_span_processor(processor)
        self.tracer = self._provider.get_tracer("proctor_service")

    async def close(self) -> None:
        """Send the last spans, for up to 3 s."""
        gone = asyncio.Event()
        loop = asyncio.get_running_loop()

        def shut_down() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(gone.set)

        # A daemon thread, since the loop's own threads would wait for an unreachable collector.
        threading.Thread(target=shut_down, daemon=True).start()
        try:
            async with asyncio.timeout(LAST_SPANS_SECONDS):
                await gone.wait()
        except TimeoutError:
            return

    # ------------------------------------------------------------ events of an observer

    def item_begun(self, item: Item) -> None:
        """Open the span of an item."""
        ids = {"evaluation_id": item.evaluation_id, "job": item.job, "tenant": item.tenant}
        self._begin("evaluate", item.evaluation_id, **ids)

    def item_ended(self, item: Item, outcome: Outcome, seconds: float) -> None:
        """End the span of an item, and record its time in the queue as a span."""
        opened = _leave(item.evaluation_id)
        if opened is None:
            return
        span = opened.span
        span.set_attribute("cache", outcome.cache)
        if outcome.queue_seconds:
            inside = trace.set_span_in_context(span)
            queue = self.tracer.start_span("queue", inside, start_time=opened.begun_ns)
            queue.end(opened.begun_ns + int(outcome.queue_seconds * 1e9))
        if outcome.judgement is not None:
            span.set_attribute("verdict", outcome.judgement.verdict)
        elif outcome.failure is not None:
            failed(span, outcome.failure.reason)
        span.end()

    def item_interrupted(self, item: Item, error: BaseException) -> None:
        """End the span of an item as failed."""
        _end(item.evaluation_id, error)

    def attempt_begun(self, submission: Submission) -> None:
        """Open the span of an attempt of the judge."""
        self._begin("judge", submission, grader=submission.grader.kind)

    def attempt_judged(self, submission: Submission, judgement: Judgement, seconds: float) -> None:
        """End the span of an attempt."""
        _end(submission, verdict=judgement.verdict)

    def attempt_failed(self, submission: Submission, error: BaseException) -> None:
        """End the span of an attempt as failed, unless the submission waits for another ticket."""
        _end(submission, error)

    def leased(self, sandbox_id: str, begun_ns: int, ended_ns: int, reason: str) -> None:
        """Record a lease as a span. A lease outside of a trace, by a probe, is left out."""
        if not trace.get_current_span().get_span_context().is_valid:
            return
        attributes = {"sandbox_id": sandbox_id} if sandbox_id else None
        span = self.tracer.start_span("sandbox", attributes=attributes, start_time=begun_ns)
        if reason:
            failed(span, reason)
        span.end(ended_ns)

    def trajectory_begun(self, plan: TrajectoryPlan) -> None:
        """Open the span of a trajectory."""
        ids = {"rollout_id": plan.rollout_id, "job": plan.job, "tenant": plan.tenant}
        self._begin("trajectory", plan, **ids)

    def trajectory_ended(self, plan: TrajectoryPlan, trajectory: Trajectory) -> None:
        """End the span of a trajectory."""
        verdict = "" if trajectory.verdict is None else trajectory.verdict
        _end(plan, trajectory.failure, verdict)

    def trajectory_interrupted(self, plan: TrajectoryPlan, error: BaseException) -> None:
        """End the span of a trajectory as failed."""
        _end(plan, error)

    def policy_asked(self, model: str) -> None:
        """Open the span of a request to a policy."""
        self._begin("policy", model, model=model)

    def policy_answered(self, model: str, seconds: float) -> None:
        """End the span of a request to a policy."""
        _end(model)

    def policy_failed(self, model: str, error: BaseException, seconds: float) -> None:
        """End the span of a request to a policy as failed."""
        _end(model, error)

    def traceparent(self) -> str:
        """Return the current span in the form of the header; empty outside a trace."""
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        return carrier.get("traceparent", "")

    def _begin(self, name: str, work: object, **attributes: str) -> None:
        """Open a span: the current span in this task until the work has ended."""
        outer, begun_ns = context.get_current(), time.time_ns()
        span = self.tracer.start_span(name, attributes=attributes, start_time=begun_ns)
        inner = trace.set_span_in_context(span, outer)
        opened = _OpenSpan(work, span, outer, begun_ns)
        context.attach(context.set_value(_OPEN, opened, inner))


def _leave(work: object) -> _OpenSpan | None:
    """Make the span around the work current again; return the span of the work, if any."""
    opened = context.get_value(_OPEN)
    if not isinstance(opened, _OpenSpan) or opened.work is not work:
        return None
    context.attach(opened.outer)
    return opened


def _end(work: object, error: BaseException | None = None, verdict: str = "") -> None:
    """End the span of the work. Of an error, the span has the reason alone."""
    opened = _leave(work)
    if opened is None:
        return
    if error is not None and (reason := reason_of(error)):
        failed(opened.span, reason)
    if verdict:
        opened.span.set_attribute("verdict", verdict)
    opened.span.end()


class TracedApp:
    """ASGI middleware with a span for each request, below the caller's span in `traceparent`."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http" or scope["path"] in UNTRACED_PATHS:
            await self._app(scope, receive, send)
            return
        with self._tracing.tracer.start_as_current_span(
            scope["method"],
            context=self._propagator.extract(dict(Headers(scope=scope))),
            kind=SpanKind.SERVER,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:

            async def noting(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        failed(span, str(message["status"]))
                await send(message)

            span.set_attribute("http.request.method", scope["method"])
            try:
                await self._app(scope, receive, noting)
            finally:
                # The route template instead of the path, since a path may contain secrets.
                if (route := getattr(scope.get("route"), "path", None)) is not None:
                    span.update_name(f"{scope['method']} {route}")
                    span.set_attribute("http.route", route)


def failed(span: Span, reason: str) -> None:
    """Mark a span as failed, with the stable name of the reason."""
    span.set_status(Status(StatusCode.ERROR, reason))
    span.set_attribute("error.type", reason)
