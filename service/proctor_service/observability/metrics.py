"""All metrics: names, labels and buckets.

The parts of the service count nothing themselves: the wrappers in `instrumented.py` report events to
this module. Each app has its own registry. A tenant sees its own jobs, the operator sees all jobs
(`view`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, get_args, runtime_checkable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from proctor_client.wire import ErrorReason
from proctor_service.errors import PolicyUnavailable, SandboxLost
from proctor_service.evaluate import Outcome
from proctor_service.judge.submission import Judgement
from proctor_service.rollout.trajectory import Trajectory
from proctor_service.sandbox.interface import Backend
from proctor_service.scheduling.capacity import Rate
from proctor_service.scheduling.job_counts import OTHER, JobTable
from proctor_service.scheduling.queue import FairQueue

MOST_SIGNALS = 64
CLIENT_GONE_STATUS = 499  # nginx's status for a client that disconnected before its answer
PHASE_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
"""Buckets up to the longest wait of a submission, since alerts cover waits of over a minute."""
SHORT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
REQUEST_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
TURN_BUCKETS = (1, 2, 3, 5, 8, 13, 20, 30, 50, 100, 300, 1000)
REWARD_BUCKETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@runtime_checkable
class FarBackend(Protocol):
    """Backend with remote sandboxes, which start slowly and have failures of their own."""

    def when_created(self, tell: Callable[[float], None]) -> None:
        """Call `tell(seconds)` for each started sandbox."""

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """Call `tell(reason)` for each sandbox or command that was lost or unavailable."""


class _Bounded:
    """Filter for label values: keeps the first `most` different names, maps the rest to `other`."""

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
    """Gauge with labels that are known only at collection time."""

    def __init__(
        self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        self._head = (name, text)
        self._label = label
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Yield the family with current values."""
        family = GaugeMetricFamily(*self._head, labels=[self._label])
        for value, number in self._read().items():
            family.add_metric([value], number)
        yield family

    def describe(self) -> Iterator[Metric]:
        """Yield the family without samples, so that the registration reads no values."""
        yield GaugeMetricFamily(*self._head, labels=[self._label])


class _Jobs(Collector):
    """Metrics by job: of a tenant, or of all tenants, with a tenant label if there are several."""

    def __init__(self, table: JobTable, tenant: str | None, by_tenant: bool) -> None:
        self._table = table
        self._tenant = tenant
        self._by_tenant = by_tenant

    def collect(self) -> Iterable[Metric]:
        """Yield four families with current values."""
        more = ["tenant"] if self._by_tenant else []
        rewards = CounterMetricFamily(
            "proctor_rewards", "Judged submissions, by verdict.", labels=["verdict", "job", *more]
        )
        reward = HistogramMetricFamily("proctor_reward", "Rewards given.", labels=["job", *more])
        squares = CounterMetricFamily(
            "proctor_reward_squares", "Sum of squared rewards.", labels=["job", *more]
        )
        lost = CounterMetricFamily(
            "proctor_lost_items",
            "Items whose sandbox was lost in every attempt.",
            labels=["job", *more],
        )
        bounds = [*map(str, REWARD_BUCKETS), "+Inf"]
        for tenant, job, counts in self._table.seen(self._tenant):
            labels = [job, tenant] if self._by_tenant else [job]
            for verdict, number in counts.verdicts.items():
                rewards.add_metric([verdict, *labels], number)
            cumulative = list(zip(bounds, itertools.accumulate(counts.buckets), strict=True))
            reward.add_metric(labels, cumulative, counts.reward_sum)
            squares.add_metric(labels, counts.squares_sum)
            if counts.lost:
                lost.add_metric(labels, counts.lost)
        yield from (rewards, reward, squares, lost)

    def describe(self) -> Iterator[Metric]:
        """Yield the families without samples."""
        yield CounterMetricFamily("proctor_rewards", "")
        yield HistogramMetricFamily("proctor_reward", "")
        yield CounterMetricFamily("proctor_reward_squares", "")
        yield CounterMetricFamily("proctor_lost_items", "")


class View(Collector):
    """Part of a registry: without the `_created` series, and with the jobs of a single tenant."""

    def __init__(self, registry: CollectorRegistry, jobs: _Jobs | None) -> None:
        self._registry = registry
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """Yield all families with current values."""
        jobs = () if self._jobs is None else {family.name for family in self._jobs.describe()}
        for family in self._registry.collect():
            if family.name not in jobs:
                family.samples = [s for s in family.samples if not s.name.endswith("_created")]
                yield family
        if self._jobs is not None:
            yield from self._jobs.collect()


class Metrics:
    """All metrics of an app. `by_tenant`: jobs carry a tenant label, for several tenants."""

    def __init__(self, by_tenant: bool = False) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        counter, histogram = self._counter, self._histogram
        self._jobs = JobTable(REWARD_BUCKETS)
        self.registry.register(_Jobs(self._jobs, None, by_tenant))
        self._phase = histogram(
            "proctor_phase_seconds",
            "Seconds of an evaluation: in the queue, in sandboxes, and judging around them.",
            PHASE_BUCKETS,
            "phase",
        )
        self._errors = counter(
            "proctor_infrastructure_errors", "Items without a verdict, by reason.", "reason"
        )
        self._attempts = counter(
            "proctor_failed_attempts", "Attempts at judging that failed, retried or not.", "reason"
        )
        self._signals = counter("proctor_hack_signals", "What submissions tried.", "kind")
        self._unreported = counter(
            "proctor_unreported_ends", "Programs that ended without a report, and had a verdict."
        )
        self._cache = counter("proctor_cache", "Items by how the cache served them.", "result")
        self._requests = counter(
            "proctor_http_requests", "Requests answered.", "method", "route", "status"
        )
        self._request_seconds = histogram(
            "proctor_http_request_seconds", "Until the answer's end.", REQUEST_BUCKETS, "route"
        )
        self._execs = counter("proctor_execs", "Commands in stateful sandboxes.", "outcome")
        self._exec_seconds = histogram(
            "proctor_exec_seconds", "Seconds of a command, without the queue.", SHORT_BUCKETS
        )
        self._trajectories = counter(
            "proctor_trajectories", "Trajectories, by verdict or reason of error.", "outcome"
        )
        self._turns = histogram("proctor_trajectory_turns", "Turns of each.", TURN_BUCKETS)
        self._policy_seconds = histogram(
            "proctor_policy_seconds",
            "Until a policy had answered, with retries, or had failed.",
            REQUEST_BUCKETS,
            "outcome",
        )
        self._start_seconds = histogram(
            "proctor_sandbox_start_seconds", "Until a sandbox far away was ready.", SHORT_BUCKETS
        )
        self._sandbox_failures = counter(
            "proctor_sandbox_failures", "Sandboxes and commands far away that failed.", "reason"
        )
        self._forwarded = counter(
            "proctor_forwarded_requests", "Requests asked of another replica.", "outcome"
        )
        self._store_failures = counter(
            "proctor_store_failures", "Questions to the shared store that were not answered."
        )
        self._signal = _Bounded(MOST_SIGNALS)
        # Create these series at 0, since `rate()` cannot see the first count of a new series.
        for reason in get_args(ErrorReason):
            self._errors.labels(reason)
        self._trajectories.labels(PolicyUnavailable.reason)
        # Look these labels up once, since each lookup takes a lock and a tuple.
        self._phases = {name: self._phase.labels(name) for name in ("queue", "sandbox", "judge")}
        self.recent = Rate()

    def watch(self, queue: FairQueue, backend: Backend) -> None:
        """Register the gauges of queue and backend, which are read at collection time."""
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
        if isinstance(backend, FarBackend):
            backend.when_created(self._start_seconds.observe)
            backend.when_failed(lambda reason: self._sandbox_failures.labels(reason).inc())

    def watch_stateful(self, census: Callable[[], Mapping[str, float]]) -> None:
        """Register the gauge of stateful sandboxes by status."""
        name, text = "proctor_stateful_sandboxes", "Sandboxes that keep their state, by status."
        self.registry.register(_Scraped(name, text, "status", census))

    def watch_store(self, up: Callable[[], bool]) -> None:
        """Register the gauge of the shared store."""
        name, text = "proctor_store_up", "1 while the shared store answers."
        Gauge(name, text, registry=self.registry).set_function(lambda: int(up()))

    def store_failed(self) -> None:
        """Record a missing answer of the shared store."""
        self._store_failures.inc()

    def forwarded(self, outcome: str) -> None:
        """Record a request to another replica: `answered` or `unreachable`."""
        self._forwarded.labels(outcome).inc()

    def executed(self, outcome: str, seconds: float) -> None:
        """Record a command in a stateful sandbox."""
        self._execs.labels(outcome).inc()
        self._exec_seconds.observe(seconds)

    def played(self, trajectory: Trajectory) -> None:
        """Record a finished trajectory."""
        failure = trajectory.failure
        self._trajectories.labels(trajectory.verdict if failure is None else failure.reason).inc()
        self._turns.observe(trajectory.metrics.get("turns", 0))

    def asked_policy(self, outcome: str, seconds: float) -> None:
        """Record a request to a policy: `answered` or `failed`."""
        self._policy_seconds.labels(outcome).observe(seconds)

    def view(self, tenant: str | None) -> View:
        """Return the metrics visible to a tenant: all except the jobs of other tenants.

        None stands for the operator, who sees all.
        """
        jobs = None if tenant is None else _Jobs(self._jobs, tenant, by_tenant=False)
        return View(self.registry, jobs)

    def evaluated(self, job: str, outcome: Outcome, tenant: str = "local") -> None:
        """Record the outcome of an evaluation."""
        judgement = outcome.judgement
        if judgement is None or outcome.reward is None:
            reason = outcome.failure.reason if outcome.failure is not None else "judge_failed"
            self._errors.labels(reason).inc()
            if reason == SandboxLost.reason:
                self._jobs.add_lost(tenant, job)
            return
        self.recent.add()
        self._jobs.add(tenant, job, judgement.verdict, outcome.reward)
        if judgement.verdict == "no_code":
            return
        self._cache.labels(outcome.cache).inc()
        if outcome.cache == "miss":
            self._phases["queue"].observe(outcome.queue_seconds)
        for signal in judgement.hack_signals:
            self._signals.labels(self._signal(signal)).inc()

    def cancelled(self) -> None:
        """Record an item that was cancelled before its outcome."""
        self._errors.labels("cancelled").inc()

    def attempted(self, judgement: Judgement, seconds: float) -> None:
        """Record an attempt of the judge that ended with a verdict."""
        if judgement.unreported:
            self._unreported.inc()
        sandbox_seconds = judgement.usage.wall_seconds
        self._phases["sandbox"].observe(sandbox_seconds)
        # Sandboxes may have run in parallel, so their sum may exceed the elapsed time.
        self._phases["judge"].observe(max(seconds - sandbox_seconds, 0.0))

    def attempt_failed(self, reason: str) -> None:
        """Record an attempt of the judge that ended without a verdict."""
        self._attempts.labels(reason).inc()

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record a request. `route` is the route template, never the path."""
        self._requests.labels(method, route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)
