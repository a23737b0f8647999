"""All metrics: names, labels and buckets; collectors, with labels known at collection time only.

`Metrics` is an observer; the parts of the service leave the counting to `Metrics`. Each app has its own
registry. A tenant sees its own jobs, the operator sees all jobs (`view`).
"""

from __future__ import annotations

import asyncio
import itertools
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, get_args, runtime_checkable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from proctor_client.wire import ErrorReason
from proctor_service.errors import Cancelled, Failure, HandedBack, PolicyUnavailable, SandboxLost
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.observe.collectors import LoopCounter, LoopHistogram, ScrapedGauge
from proctor_service.observe.observer import Observer
from proctor_service.outcomes import Item, NoCode, Outcome, Trajectory, TrajectoryPlan
from proctor_service.sandbox.interface import Backend, Spent
from proctor_service.scheduling.fair_share import Rate
from proctor_service.scheduling.queue import FairQueue

REWARD_BUCKETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

_SANDBOX_SECONDS = ("proctor_job_sandbox_seconds", "Seconds of sandboxes at Aviato.")
_SANDBOX_DOLLARS = ("proctor_job_sandbox_dollars", "Cost of sandboxes at Aviato.")


@dataclass(slots=True)
class JobCounts:
    """Counts of a job: rewards by verdict and by histogram bucket, items lost with a sandbox, cost."""

    buckets: list[int]
    verdicts: dict[str, int] = field(default_factory=dict)
    reward_sum: float = 0.0
    squares_sum: float = 0.0
    lost: int = 0
    sandbox_seconds: float = 0.0
    sandbox_dollars: float = 0.0
    seen_at: float = 0.0


SeenJobs = Callable[[str | None], Iterable[tuple[str, str, JobCounts]]]
"""Function returning tenant, job and counts of the recent jobs of a tenant, or of all."""


class JobCollector(Collector):
    """Metrics by job: of a tenant, or of all tenants, with a tenant label if there are several."""

    def __init__(self, seen: SeenJobs, tenant: str | None, by_tenant: bool) -> None:
        self._seen = seen
        self._tenant = tenant
        self._by_tenant = by_tenant

    def collect(self) -> Iterable[Metric]:
        """Yield all families with current values."""
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
        seconds = CounterMetricFamily(*_SANDBOX_SECONDS, labels=["job", *more])
        dollars = CounterMetricFamily(*_SANDBOX_DOLLARS, labels=["job", *more])
        bounds = [*map(str, REWARD_BUCKETS), "+Inf"]
        for tenant, job, counts in self._seen(self._tenant):
            labels = [job, tenant] if self._by_tenant else [job]
            for verdict, number in counts.verdicts.items():
                rewards.add_metric([verdict, *labels], number)
            cumulative = list(zip(bounds, itertools.accumulate(counts.buckets), strict=True))
            reward.add_metric(labels, cumulative, counts.reward_sum)
            squares.add_metric(labels, counts.squares_sum)
            if counts.lost:
                lost.add_metric(labels, counts.lost)
            if counts.sandbox_seconds:
                seconds.add_metric(labels, counts.sandbox_seconds)
                dollars.add_metric(labels, counts.sandbox_dollars)
        yield from (rewards, reward, squares, lost, seconds, dollars)

    def describe(self) -> Iterator[Metric]:
        """Yield the families without samples."""
        yield CounterMetricFamily("proctor_rewards", "")
        yield HistogramMetricFamily("proctor_reward", "")
        yield CounterMetricFamily("proctor_reward_squares", "")
        yield CounterMetricFamily("proctor_lost_items", "")
        yield CounterMetricFamily(*_SANDBOX_SECONDS)
        yield CounterMetricFamily(*_SANDBOX_DOLLARS)


class View(Collector):
    """Part of a registry: without the `_created` series, and with the jobs of a single tenant."""

    def __init__(self, registry: CollectorRegistry, jobs: JobCollector | None) -> None:
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


MOST_SIGNALS = 64
JOURNAL_LOSSES = ("full", "invalid", "stopped")
CLIENT_GONE_STATUS = 499  # nginx's status for a client that disconnected before its answer
PHASE_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
"""Buckets up to the longest wait of a submission, since alerts cover waits of over a minute."""
SHORT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
REQUEST_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
TURN_BUCKETS = (1, 2, 3, 5, 8, 13, 20, 30, 50, 100, 300, 1000)
MOST_JOBS = 100
KEPT_SECONDS = 3600.0
OTHER = "other"


@runtime_checkable
class FarBackend(Protocol):
    """Backend with remote sandboxes, which start slowly and have failures of their own."""

    def when_created(self, callback: Callable[[float], None]) -> None:
        """Call `callback(seconds)` for each started sandbox."""

    def when_failed(self, callback: Callable[[str], None]) -> None:
        """Call `callback(reason)` for each lost or unavailable sandbox or command."""

    def when_spent(self, callback: Spent) -> None:
        """Call `callback((tenant, job), seconds, dollars)` when sandboxes end; empty without a payer."""


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


class JobTable:
    """Counters of all recent jobs, by tenant and job name.

    The trainer chooses the job name. Each tenant may have at most 100 named jobs; further jobs are
    counted together as `other`. A job without results for an hour is removed.
    """

    def __init__(
        self, bounds: Sequence[float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bounds = tuple(bounds)
        self._clock = clock
        self._jobs: dict[tuple[str, str], JobCounts] = {}

    def add(self, tenant: str, job: str, verdict: str, reward: float) -> None:
        """Count a reward."""
        counts = self._of(tenant, job)
        counts.verdicts[verdict] = counts.verdicts.get(verdict, 0) + 1
        counts.buckets[bisect_left(self._bounds, reward)] += 1
        counts.reward_sum += reward
        counts.squares_sum += reward**2

    def add_lost(self, tenant: str, job: str) -> None:
        """Count an item that lost its sandbox in every attempt."""
        counts = self._of(tenant, job)
        counts.lost += 1

    def add_spent(self, tenant: str, job: str, seconds: float, dollars: float) -> None:
        """Count the time of a sandbox."""
        counts = self._of(tenant, job)
        counts.sandbox_seconds += seconds
        counts.sandbox_dollars += dollars

    def seen(self, tenant: str | None = None) -> Iterator[tuple[str, str, JobCounts]]:
        """Yield tenant, job and counts, of `tenant` or of all tenants, after removing old jobs."""
        self._forget()
        for (whose, job), counts in self._jobs.items():
            if tenant is None or tenant == whose:
                yield whose, job, counts

    def _of(self, tenant: str, job: str) -> JobCounts:
        found = self._jobs.get((tenant, job))
        if found is None and self._is_full(tenant):
            self._forget()
            if self._is_full(tenant):
                job = OTHER
                found = self._jobs.get((tenant, job))
        if found is None:
            found = JobCounts([0] * (len(self._bounds) + 1))
            self._jobs[tenant, job] = found
        found.seen_at = self._clock()
        return found

    def _is_full(self, tenant: str) -> bool:
        """True if the tenant has reached its own limit of named jobs.

        The limit is per tenant, since otherwise a tenant could use up the table alone.
        """
        return sum(whose == tenant and job != OTHER for whose, job in self._jobs) >= MOST_JOBS

    def _forget(self) -> None:
        """Remove jobs without results for an hour."""
        oldest = self._clock() - KEPT_SECONDS
        for key in [key for key, counts in self._jobs.items() if counts.seen_at < oldest]:
            del self._jobs[key]


class Metrics(Observer):
    """All metrics of an app. `by_tenant`: jobs carry a tenant label, for several tenants."""

    def __init__(self, by_tenant: bool = False) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        counter, histogram = self._counter, self._histogram
        self._jobs = JobTable(REWARD_BUCKETS)
        self.registry.register(JobCollector(self._jobs.seen, None, by_tenant))
        text = "Seconds of an evaluation: in the queue, in sandboxes, and judging around them."
        # A reward is counted five times: `LoopHistogram` and `LoopCounter` need no lock for it.
        phases = ("queue", "sandbox", "judge")
        self._phases = LoopHistogram("proctor_phase_seconds", text, PHASE_BUCKETS, "phase", phases)
        self.registry.register(self._phases)
        self._errors = counter(
            "proctor_infrastructure_errors", "Items without a verdict, by reason.", "reason"
        )
        text = "Verdicts, by the environment of the submission."
        self._environments = LoopCounter("proctor_environment_verdicts", text, "environment")
        self.registry.register(self._environments)
        self._attempts = counter(
            "proctor_failed_attempts", "Attempts at judging that failed, retried or not.", "reason"
        )
        self._signals = counter("proctor_hack_signals", "What submissions tried.", "kind")
        self._controls = counter(
            "proctor_negative_controls",
            "Passed programs that ran once more by other expected values: clear, caught or none.",
            "outcome",
            "kind",
            "language",
        )
        self._unreported = counter(
            "proctor_unreported_ends", "Programs that ended without a report, and had a verdict."
        )
        text = "Items by how the cache served them."
        self._cache = LoopCounter("proctor_cache", text, "result")
        self.registry.register(self._cache)
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
        text = "Until a policy had answered, with retries, or had failed."
        self._policy_seconds = histogram("proctor_policy_seconds", text, REQUEST_BUCKETS, "outcome")
        self._declare_parts_elsewhere()
        self._signal = _Bounded(MOST_SIGNALS)
        # Create these series at 0, since `rate()` cannot see the first count of a new series.
        for reason in get_args(ErrorReason):
            self._errors.labels(reason)
        self._trajectories.labels(PolicyUnavailable.reason)
        self.recent = Rate()

    def _declare_parts_elsewhere(self) -> None:
        """Declare the metrics of remote sandboxes, other replicas, the journal and judge processes."""
        counter, histogram = self._counter, self._histogram
        self._start_seconds = histogram(
            "proctor_sandbox_start_seconds", "Until a sandbox far away was ready.", SHORT_BUCKETS
        )
        self._sandbox_failures = counter(
            "proctor_sandbox_failures", "Sandboxes and commands far away that failed.", "reason"
        )
        self._forwarded = counter(
            "proctor_forwarded_requests", "Requests asked of another replica.", "outcome"
        )
        self._slices = counter(
            "proctor_slices", "Parts of batches sent to other replicas.", "outcome"
        )
        self._slice_items = counter(
            "proctor_slice_items", "Items that other replicas were to judge.", "outcome"
        )
        self._store_failures = counter(
            "proctor_store_failures", "Questions to the shared store that were not answered."
        )
        self._journal_written = counter("proctor_journal_written", "Records in the journal.")
        self._journal_dropped = counter(
            "proctor_journal_dropped", "Records that the journal has lost.", "reason"
        )
        self._worker_ends = counter(
            "proctor_worker_ends", "Judge processes that ended and were replaced.", "cause"
        )

    def watch(self, queue: FairQueue, backend: Backend) -> None:
        """Register the gauges of queue and backend, which are read at collection time."""
        for name, text, read in (
            ("proctor_slots", "Evaluations at once.", lambda: queue.slots),
            ("proctor_slots_busy", "Evaluations that run.", lambda: queue.running),
            ("proctor_queue_depth", "Submissions taken that do not run yet.", lambda: queue.queued),
            (
                "proctor_queue_portable",
                "Submissions that wait here and could be judged by any replica.",
                lambda: queue.handover.portable,
            ),
            (
                "proctor_items_at_peers",
                "Submissions that other replicas are to judge.",
                lambda: queue.handover.away,
            ),
            ("proctor_queue_limit", "Submissions that may wait.", lambda: queue.max_queued),
            ("proctor_draining", "1 while the service stops.", lambda: int(queue.draining)),
        ):
            Gauge(name, text, registry=self.registry).set_function(read)
        self.registry.register(
            ScrapedGauge("proctor_sandboxes", "Sandboxes, by status.", "status", backend.census)
        )
        self.registry.register(
            ScrapedGauge(
                "proctor_degraded",
                "1 for each protection that this machine cannot enforce.",
                "protection",
                lambda: dict.fromkeys(backend.traits.degraded, 1.0),
            )
        )
        if isinstance(backend, FarBackend):
            backend.when_created(self._start_seconds.observe)
            backend.when_failed(lambda reason: self._sandbox_failures.labels(reason).inc())
            backend.when_spent(
                lambda payer, seconds, dollars: self._jobs.add_spent(*payer, seconds, dollars)
            )

    def watch_stateful(self, census: Callable[[], Mapping[str, float]]) -> None:
        """Register the gauge of stateful sandboxes by status."""
        name, text = "proctor_stateful_sandboxes", "Sandboxes that keep their state, by status."
        self.registry.register(ScrapedGauge(name, text, "status", census))

    def watch_fingerprints(self, by_peer: Callable[[], Mapping[str, float]]) -> None:
        """Register the gauge of peers with another fingerprint."""
        name, text = (
            "proctor_mismatched_peers",
            "1 for each peer that judges otherwise, 0 for others.",
        )
        self.registry.register(ScrapedGauge(name, text, "peer", by_peer))

    def watch_store(self, up: Callable[[], bool]) -> None:
        """Register the gauge of the shared store."""
        name, text = "proctor_store_up", "1 while the shared store answers."
        Gauge(name, text, registry=self.registry).set_function(lambda: int(up()))

    def watch_images(self, size_bytes: Callable[[], int], waiting: Callable[[], int]) -> None:
        """Register the gauges of images by name."""
        text = "Size of the store of images."
        Gauge("proctor_images_bytes", text, registry=self.registry).set_function(size_bytes)
        text = "Submissions and sandboxes that wait for an image."
        Gauge("proctor_images_waiting", text, registry=self.registry).set_function(waiting)
        text = "Fetches of images, by their result."
        self._fetches = Counter("proctor_image_fetches", text, ["result"], registry=self.registry)

    def image_fetched(self, result: str) -> None:
        """Record the end of a fetch."""
        self._fetches.labels(result).inc()

    def watch_workers(self, working: Callable[[], int]) -> None:
        """Register the gauge of judge processes."""
        gauge = Gauge("proctor_workers", "Judge processes that work.", registry=self.registry)
        gauge.set_function(working)

    def worker_ended(self, cause: str) -> None:
        """Record the end of a replaced judge process."""
        self._worker_ends.labels(cause).inc()

    def watch_journal(self, unwritten: Callable[[], int]) -> None:
        """Register the gauge of unwritten records."""
        name, text = "proctor_journal_unwritten", "Records that wait to be written to the journal."
        Gauge(name, text, registry=self.registry).set_function(unwritten)
        for reason in JOURNAL_LOSSES:  # at 0, as the reasons of errors
            self._journal_dropped.labels(reason)

    def journal_written(self, records: int) -> None:
        """Record records written to the journal's database."""
        self._journal_written.inc(records)

    def journal_dropped(self, reason: str, records: int = 1) -> None:
        """Record lost records of the journal: `full`, `invalid` or `stopped`."""
        self._journal_dropped.labels(reason).inc(records)

    def store_failed(self) -> None:
        """Record a missing answer of the shared store."""
        self._store_failures.inc()

    def forwarded(self, outcome: str) -> None:
        """Record a request to another replica: `answered` or `unreachable`."""
        self._forwarded.labels(outcome).inc()

    def slice_ended(self, outcome: str) -> None:
        """Record a part of a batch: `answered`, `refused`, `lost` or `given_up`."""
        self._slices.labels(outcome).inc()

    def slice_items(self, outcome: str, items: int = 1) -> None:
        """Record items of these parts: `judged`, `returned`, or `ended` (cancelled or late)."""
        self._slice_items.labels(outcome).inc(items)

    def executed(self, outcome: str, seconds: float) -> None:
        """Record a command in a stateful sandbox."""
        self._execs.labels(outcome).inc()
        self._exec_seconds.observe(seconds)

    def spent(self, tenant: str | None) -> Iterator[tuple[str, str, float, float]]:
        """Yield tenant, job, seconds and dollars of sandboxes, of a tenant or of all tenants."""
        for whose, job, counts in self._jobs.seen(tenant):
            if counts.sandbox_seconds:
                yield whose, job, counts.sandbox_seconds, counts.sandbox_dollars

    def view(self, tenant: str | None) -> View:
        """Return the metrics visible to a tenant: all except the jobs of other tenants.

        None stands for the operator: all metrics.
        """
        jobs = None if tenant is None else JobCollector(self._jobs.seen, tenant, by_tenant=False)
        return View(self.registry, jobs)

    # ------------------------------------------------------------ events of an observer

    def item_ended(self, item: Item, outcome: Outcome, seconds: float) -> None:
        """Record the outcome of an evaluation; the rewards of a peer are in the peer's metrics."""
        judgement, is_new = outcome.judgement, outcome.cache == "miss"
        if judgement is None or outcome.reward is None:
            reason = outcome.failure.reason if outcome.failure is not None else "judge_failed"
            self._errors.labels(reason).inc()
            if reason == SandboxLost.reason:
                self._jobs.add_lost(item.tenant, item.job)
            return
        if outcome.peer_degraded is not None and is_new:
            return
        self.recent.add()
        self._jobs.add(item.tenant, item.job, judgement.verdict, outcome.reward)
        submission = item.submission
        if isinstance(submission, NoCode):
            return
        self._environments.add(submission.environment)
        self._cache.add(outcome.cache)
        if is_new:
            self._phases.observe("queue", outcome.queue_seconds)
            if judgement.negative_control is not None:
                kind, language = submission.grader.kind, submission.language
                self._controls.labels(judgement.negative_control, kind, language).inc()
        for signal in judgement.hack_signals:
            self._signals.labels(self._signal(signal)).inc()

    def item_interrupted(self, item: Item, error: BaseException) -> None:
        """Record an item cancelled before its outcome."""
        if isinstance(error, asyncio.CancelledError):
            self._errors.labels("cancelled").inc()

    def attempt_judged(self, submission: Submission, judgement: Judgement, seconds: float) -> None:
        """Record an attempt of the judge with a verdict."""
        if judgement.unreported:
            self._unreported.inc()
        sandbox_seconds = judgement.usage.wall_seconds
        self._phases.observe("sandbox", sandbox_seconds)
        # Sandboxes may have run in parallel, so their sum may exceed the elapsed time.
        self._phases.observe("judge", max(seconds - sandbox_seconds, 0.0))

    def attempt_failed(self, submission: Submission, error: BaseException) -> None:
        """Record an attempt without a verdict, unless cancelled."""
        if isinstance(error, Exception) and not isinstance(error, HandedBack):
            reason = error.reason if isinstance(error, Failure) else "judge_failed"
            self._attempts.labels(reason).inc()

    def trajectory_ended(self, plan: TrajectoryPlan, trajectory: Trajectory) -> None:
        """Record a trajectory."""
        failure = trajectory.failure
        self._trajectories.labels(trajectory.verdict if failure is None else failure.reason).inc()
        self._turns.observe(trajectory.metrics.get("turns", 0))

    def trajectory_interrupted(self, plan: TrajectoryPlan, error: BaseException) -> None:
        """Record a cancelled trajectory."""
        self._trajectories.labels(Cancelled.reason).inc()
        self._turns.observe(0)

    def policy_answered(self, model: str, seconds: float) -> None:
        """Record a reply of a policy."""
        self._policy_seconds.labels("answered").observe(seconds)

    def policy_failed(self, model: str, error: BaseException, seconds: float) -> None:
        """Record a request to a policy without a reply."""
        self._policy_seconds.labels("failed").observe(seconds)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record a request. `route` is the route template, free of parameters."""
        self._requests.labels(method, route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)
