"""Every metric: name, labels, buckets, in one place, and wrappers that measure from outside.

No room counts anything itself; what is measured here is what passes between them. Each app has its
own registry. A `job` comes from a trainer, so its label is bounded: after a hundred names it is
`other`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor_service.admission.queue import FairQueue
from proctor_service.admission.rate import Rate
from proctor_service.errors import Failure
from proctor_service.evaluate import Evaluate, Item, Judge, Outcome
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend

MOST_JOBS = 100
MOST_SIGNALS = 64
OTHER = "other"
CLIENT_GONE_STATUS = 499  # nginx's number for a client that went away before its answer
SHORT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
REQUEST_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
REWARD_BUCKETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class _Bounded:
    """Lets the first so many different names through; the rest are `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: set[str] = set()

    def __call__(self, name: str) -> str:
        if name in self._names:
            return name
        if len(self._names) >= self._most:
            return OTHER
        self._names.add(name)
        return name


class _Scraped(Collector):
    """Gauges whose labels are only known when somebody asks."""

    def __init__(
        self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        self._head = (name, text)
        self._label = label
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """One family, read now."""
        family = GaugeMetricFamily(*self._head, labels=[self._label])
        for value, number in self._read().items():
            family.add_metric([value], number)
        yield family

    def describe(self) -> Iterator[Metric]:
        """The family without samples, so that registering reads nothing yet."""
        yield GaugeMetricFamily(*self._head, labels=[self._label])


class Metrics:
    """All metrics of one app."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        counter, histogram = self._counter, self._histogram
        self._rewards = counter(
            "proctor_rewards", "Judged submissions, by verdict.", "verdict", "job"
        )
        self._reward = histogram("proctor_reward", "Rewards given.", REWARD_BUCKETS, "job")
        self._phase = histogram(
            "proctor_phase_seconds",
            "Seconds of an evaluation: in the queue, in sandboxes, and judging around them.",
            SHORT_BUCKETS,
            "phase",
        )
        self._errors = counter(
            "proctor_infrastructure_errors", "Items without a verdict, by reason.", "reason"
        )
        self._attempts = counter(
            "proctor_failed_attempts", "Attempts at judging that failed, retried or not.", "reason"
        )
        self._signals = counter("proctor_hack_signals", "What submissions tried.", "kind")
        self._cache = counter("proctor_cache", "Items by how the cache served them.", "result")
        self._requests = counter(
            "proctor_http_requests", "Requests answered.", "method", "route", "status"
        )
        self._request_seconds = histogram(
            "proctor_http_request_seconds", "Until the answer's end.", REQUEST_BUCKETS, "route"
        )
        self._job = _Bounded(MOST_JOBS)
        self._signal = _Bounded(MOST_SIGNALS)
        # A look-up of labels takes a lock and a tuple; these few are looked up once.
        self._phases = {name: self._phase.labels(name) for name in ("queue", "sandbox", "judge")}
        self._by_job: dict[tuple[str, str], tuple[Counter, Histogram]] = {}
        self.recent = Rate()

    def watch(self, queue: FairQueue, backend: Backend) -> None:
        """Registers the gauges, which are read when somebody asks."""
        for name, text, read in (
            ("proctor_slots", "Evaluations at once.", lambda: queue.slots),
            ("proctor_slots_busy", "Evaluations that run.", lambda: queue.busy),
            ("proctor_queue_depth", "Submissions taken that do not run yet.", lambda: queue.queued),
            ("proctor_queue_limit", "Submissions that may wait.", lambda: queue.max_queued),
            ("proctor_draining", "1 while the service stops.", lambda: int(queue.draining)),
        ):
            Gauge(name, text, registry=self.registry).set_function(read)
        self.registry.register(
            _Scraped("proctor_sandboxes", "Sandboxes, by status.", "status", backend.census)
        )
        self.registry.register(
            _Scraped(
                "proctor_degraded",
                "1 for each protection that this machine cannot enforce.",
                "protection",
                lambda: dict.fromkeys(backend.traits.degraded, 1.0),
            )
        )

    def evaluated(self, job: str, outcome: Outcome) -> None:
        """Records what came out of the corridor."""
        judgement = outcome.judgement
        if judgement is None or outcome.reward is None:
            reason = outcome.failure.reason if outcome.failure is not None else "judge_failed"
            self._errors.labels(reason).inc()
            return
        self.recent.add()
        rewards, reward = self._of_job(judgement.verdict, self._job(job))
        rewards.inc()
        reward.observe(outcome.reward)
        if judgement.verdict == "no_code":
            return
        self._cache.labels(outcome.cache).inc()
        if outcome.cache == "miss":
            self._phases["queue"].observe(outcome.queue_seconds)
        for signal in judgement.hack_signals:
            self._signals.labels(self._signal(signal)).inc()

    def cancelled(self) -> None:
        """Records an item that was cancelled on its way."""
        self._errors.labels("cancelled").inc()

    def attempted(self, judgement: Judgement, seconds: float) -> None:
        """Records one attempt of the judge that ended with a verdict."""
        sandbox_seconds = judgement.usage.wall_seconds
        self._phases["sandbox"].observe(sandbox_seconds)
        # Sandboxes may have run side by side, so that their sum is more than what passed.
        self._phases["judge"].observe(max(seconds - sandbox_seconds, 0.0))

    def attempt_failed(self, reason: str) -> None:
        """Records one attempt of the judge that ended without a verdict."""
        self._attempts.labels(reason).inc()

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Records a request. `route` is the template, never the path."""
        self._requests.labels(method, route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def _of_job(self, verdict: str, job: str) -> tuple[Counter, Histogram]:
        found = self._by_job.get((verdict, job))
        if found is None:
            found = self._rewards.labels(verdict, job), self._reward.labels(job)
            self._by_job[verdict, job] = found
        return found

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)


def measured_judge(judge: Judge, metrics: Metrics) -> Judge:
    """The judge, with each attempt's seconds and failures recorded."""

    async def measured(submission: Submission, backend: Backend) -> Judgement:
        begun = time.perf_counter()
        try:
            judgement = await judge(submission, backend)
        except Failure as failure:
            metrics.attempt_failed(failure.reason)
            raise
        except Exception:
            metrics.attempt_failed("judge_failed")
            raise
        metrics.attempted(judgement, time.perf_counter() - begun)
        return judgement

    return measured


def measured_evaluate(evaluate: Evaluate, metrics: Metrics) -> Evaluate:
    """The corridor, with each outcome recorded."""

    async def measured(item: Item) -> Outcome:
        try:
            outcome = await evaluate(item)
        except asyncio.CancelledError:
            metrics.cancelled()
            raise
        metrics.evaluated(item.job, outcome)
        return outcome

    return measured


class MeasuredApp:
    """The app, with each request's route, status and seconds recorded."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(self._metrics, scope)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                request.status = message["status"]
            elif not message.get("more_body", False):
                # Before the client has its answer, so that it finds itself counted after it.
                request.end()
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            request.end()


class _Request:
    """One request, recorded once, at its end."""

    def __init__(self, metrics: Metrics, scope: Scope) -> None:
        self.status = CLIENT_GONE_STATUS
        self._metrics = metrics
        self._scope = scope
        self._begun = time.perf_counter()
        self._ended = False

    def end(self) -> None:
        """Records it; nothing happens the second time."""
        if self._ended:
            return
        self._ended = True
        route: Any = self._scope.get("route")
        template = getattr(route, "path", None)
        seconds = time.perf_counter() - self._begun
        if template is None:
            self._metrics.answered("any", "none", self.status, seconds)
        else:
            self._metrics.answered(self._scope["method"], template, self.status, seconds)
