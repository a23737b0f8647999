"""Traces from the client's call through queue, judge and sandbox.

As in `instrumented.py`, wrappers add the spans from outside the traced parts. Without an endpoint the
service does not import this module. A span contains names, times and outcomes, and never the text
of a submission, a path, a token or a message. A separate thread exports the spans. With a slow or
unreachable collector, spans are lost, and requests are unaffected.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor_client.wire import Policy
from proctor_service.errors import Failure, HandedBack
from proctor_service.evaluate import Evaluate, Item, Judge, Outcome
from proctor_service.features.rollouts.agent import Play
from proctor_service.features.rollouts.policy import Ask, Connect
from proctor_service.features.rollouts.reply import Reply
from proctor_service.features.rollouts.trajectory import Plan, Trajectory
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Limits, Sandbox, Sandboxes, StatefulSandbox, Traits

EXPORT_SECONDS = 5.0
LAST_SPANS_SECONDS = 3.0
MOST_WAITING_SPANS = 32_768
UNTRACED_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})


def current_ids() -> Mapping[str, str]:
    """Return the ids of the current trace and span for the logs; empty outside a trace."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {
        "trace_id": trace.format_trace_id(context.trace_id),
        "span_id": trace.format_span_id(context.span_id),
    }


def traceparent() -> str:
    """Return the current span in the form of the header; empty outside a trace."""
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")


class Tracing:
    """Creator of spans, with export to an OTLP endpoint over HTTP.

    The variables OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG say which of the traces that begin
    here are kept; by default all are.
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

    @contextmanager
    def span(self, name: str, **attributes: str) -> Iterator[Span]:
        """Open a span around the block. For an exception, the span records only its kind."""
        with self.tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except HandedBack:
                raise
            except BaseException as error:
                reason = error.reason if isinstance(error, Failure) else type(error).__name__
                failed(span, reason)
                raise

    def leased(self, sandbox_id: str, begun_ns: int, ended_ns: int) -> None:
        """Record a lease in a judge process as a span; times in nanoseconds since the epoch.

        A lease outside of a trace, by a probe, is not recorded.
        """
        if not trace.get_current_span().get_span_context().is_valid:
            return
        attributes = {"sandbox_id": sandbox_id}
        span = self.tracer.start_span("sandbox", attributes=attributes, start_time=begun_ns)
        span.end(ended_ns)

    # ------------------------------------------------------------ wrappers

    def evaluate(self, evaluate: Evaluate) -> Evaluate:
        """Return the evaluator, with a span for each item and a span for its time in the queue."""

        async def traced(item: Item) -> Outcome:
            ids = {"evaluation_id": item.evaluation_id, "job": item.job, "tenant": item.tenant}
            with self.span("evaluate", **ids) as span:
                begun = time.time_ns()
                if item.portable:
                    item = replace(item, traceparent=traceparent())
                outcome = await evaluate(item)
                span.set_attribute("cache", outcome.cache)
                if outcome.queue_seconds:
                    queue = self.tracer.start_span("queue", start_time=begun)
                    queue.end(begun + int(outcome.queue_seconds * 1e9))
                if outcome.judgement is not None:
                    span.set_attribute("verdict", outcome.judgement.verdict)
                elif outcome.failure is not None:
                    failed(span, outcome.failure.reason)
                return outcome

        return traced

    def judge(self, judge: Judge) -> Judge:
        """Return the judge, with a span for each attempt and for each leased sandbox."""

        async def traced(submission: Submission, backend: Sandboxes) -> Judgement:
            with self.span("judge", grader=submission.grader.kind) as span:
                judgement = await judge(submission, _TracedLeases(backend, self))
                span.set_attribute("verdict", judgement.verdict)
                return judgement

        return traced

    def play(self, play: Play) -> Play:
        """Return the player, with a span for each trajectory."""

        async def traced(plan: Plan, ask: Ask) -> Trajectory:
            ids = {"rollout_id": plan.rollout_id, "job": plan.job, "tenant": plan.tenant}
            with self.span("trajectory", **ids) as span:
                trajectory = await play(plan, ask)
                if trajectory.failure is not None:
                    failed(span, trajectory.failure.reason)
                elif trajectory.verdict is not None:
                    span.set_attribute("verdict", trajectory.verdict)
                return trajectory

        return traced

    def connect(self, connect: Connect) -> Connect:
        """Return the policy connection, with a span for each answer."""

        @asynccontextmanager
        async def traced(policy: Policy) -> AsyncIterator[Ask]:
            async with connect(policy) as ask:

                async def asked(messages: Any, tools: Any, seed: int | None = None) -> Reply:
                    with self.span("policy", model=policy.model):
                        return await ask(messages, tools, seed)

                yield asked

        return traced


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


class _TracedLeases:
    """Source of sandboxes with a span for each leased sandbox."""

    def __init__(self, backend: Sandboxes, tracing: Tracing) -> None:
        self._backend = backend
        self._tracing = tracing

    @property
    def traits(self) -> Traits:
        return self._backend.traits

    @asynccontextmanager
    async def lease(self, limits: Limits) -> AsyncIterator[Sandbox]:
        with self._tracing.span("sandbox") as span:
            async with self._backend.lease(limits) as sandbox:
                span.set_attribute("sandbox_id", sandbox.id)
                yield sandbox

    def open_stateful(
        self, limits: Limits, tags: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[StatefulSandbox]:
        return self._backend.open_stateful(limits, tags)


def failed(span: Span, reason: str) -> None:
    """Mark a span as failed, with the stable name of the reason."""
    span.set_status(Status(StatusCode.ERROR, reason))
    span.set_attribute("error.type", reason)
