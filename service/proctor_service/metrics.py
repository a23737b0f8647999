"""Every metric: name, labels, buckets, in one place.

No room counts anything itself: `measured.py` wraps them from outside, and tells what passes. Each app has its
own registry. A tenant sees the jobs of its own, who operates the service those of all (`view`).
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
from proctor_service.admission.job_counts import OTHER, JobTable
from proctor_service.admission.queue import FairQueue
from proctor_service.admission.rate import Rate
from proctor_service.errors import PolicyUnavailable, SandboxLost
from proctor_service.evaluate import Outcome
from proctor_service.judge.submission import Judgement
from proctor_service.rollout.trajectory import Trajectory
from proctor_service.sandbox.interface import Backend

MOST_SIGNALS = 64
CLIENT_GONE_STATUS = 499  # nginx's number for a client that went away before its answer
PHASE_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
"""As far as a submission may wait: alerts ask for more than a minute."""
SHORT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
REQUEST_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
TURN_BUCKETS = (1, 2, 3, 5, 8, 13, 20, 30, 50, 100, 300, 1000)
REWARD_BUCKETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@runtime_checkable
class FarBackend(Protocol):
    """A backend whose sandboxes take a while to come up, and fail in ways of their own."""

    def when_created(self, tell: Callable[[float], None]) -> None:
        """Calls `tell(seconds)` for each sandbox that came up."""

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """Calls `tell(reason)` for each sandbox or command that was lost, or not to be had."""


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


class _Jobs(Collector):
    """What is counted by job: of one tenant, or of all, by tenant where there are several."""

    def __init__(self, table: JobTable, tenant: str | None, by_tenant: bool) -> None:
        self._table = table
        self._tenant = tenant
        self._by_tenant = by_tenant

    def collect(self) -> Iterable[Metric]:
        """Four families, read now."""
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
        """The families without samples."""
        yield CounterMetricFamily("proctor_rewards", "")
        yield HistogramMetricFamily("proctor_reward", "")
        yield CounterMetricFamily("proctor_reward_squares", "")
        yield CounterMetricFamily("proctor_lost_items", "")


class View(Collector):
    """Part of a registry: without the series that say when others began, and with one tenant's jobs."""

    def __init__(self, registry: CollectorRegistry, jobs: _Jobs | None) -> None:
        self._registry = registry
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """All families, read now."""
        jobs = () if self._jobs is None else {family.name for family in self._jobs.describe()}
        for family in self._registry.collect():
            if family.name not in jobs:
                family.samples = [s for s in family.samples if not s.name.endswith("_created")]
                yield family
        if self._jobs is not None:
            yield from self._jobs.collect()


class Metrics:
    """All metrics of one app. `by_tenant`: there are several tenants, and jobs are told apart by them."""

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
        # A rate sees nothing of the first count: so these are there, at nought, before it.
        for reason in get_args(ErrorReason):
            self._errors.labels(reason)
        self._trajectories.labels(PolicyUnavailable.reason)
        # A look-up of labels takes a lock and a tuple; these few are looked up once.
        self._phases = {name: self._phase.labels(name) for name in ("queue", "sandbox", "judge")}
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
        if isinstance(backend, FarBackend):
            backend.when_created(self._start_seconds.observe)
            backend.when_failed(lambda reason: self._sandbox_failures.labels(reason).inc())

    def watch_stateful(self, census: Callable[[], Mapping[str, float]]) -> None:
        """Registers the gauge of stateful sandboxes by status."""
        name, text = "proctor_stateful_sandboxes", "Sandboxes that keep their state, by status."
        self.registry.register(_Scraped(name, text, "status", census))

    def watch_store(self, up: Callable[[], bool]) -> None:
        """Registers the gauge of a store that replicas share."""
        name, text = "proctor_store_up", "1 while the shared store answers."
        Gauge(name, text, registry=self.registry).set_function(lambda: int(up()))

    def store_failed(self) -> None:
        """Records that the shared store did not answer."""
        self._store_failures.inc()

    def forwarded(self, outcome: str) -> None:
        """Records what came of asking another replica: `answered` or `unreachable`."""
        self._forwarded.labels(outcome).inc()

    def executed(self, outcome: str, seconds: float) -> None:
        """Records a command that ran in a stateful sandbox."""
        self._execs.labels(outcome).inc()
        self._exec_seconds.observe(seconds)

    def played(self, trajectory: Trajectory) -> None:
        """Records a trajectory that came to its end."""
        failure = trajectory.failure
        self._trajectories.labels(trajectory.verdict if failure is None else failure.reason).inc()
        self._turns.observe(trajectory.metrics.get("turns", 0))

    def asked_policy(self, outcome: str, seconds: float) -> None:
        """Records a request to a policy: `answered` or `failed`."""
        self._policy_seconds.labels(outcome).observe(seconds)

    def view(self, tenant: str | None) -> View:
        """What a tenant may see: everything but the jobs of others. None: the operator, who sees all."""
        jobs = None if tenant is None else _Jobs(self._jobs, tenant, by_tenant=False)
        return View(self.registry, jobs)

    def evaluated(self, job: str, outcome: Outcome, tenant: str = "local") -> None:
        """Records what came of an evaluation."""
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
        """Records an item that was cancelled on its way."""
        self._errors.labels("cancelled").inc()

    def attempted(self, judgement: Judgement, seconds: float) -> None:
        """Records one attempt of the judge that ended with a verdict."""
        if judgement.unreported:
            self._unreported.inc()
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

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)
