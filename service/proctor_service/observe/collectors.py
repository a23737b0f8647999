"""Collectors of metrics with labels that are known only at collection time."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

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
"""Function that returns tenant, job and counts of the recent jobs of a tenant, or of all."""


class ScrapedGauge(Collector):
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


class LoopCounter(Collector):
    """Counter with a label, counted by the event loop alone: without the locks of a `Counter`."""

    def __init__(self, name: str, text: str, label: str) -> None:
        self._head = (name, text)
        self._label = label
        self._counts: dict[str, int] = {}

    def add(self, value: str) -> None:
        """Count an event with this label value."""
        self._counts[value] = self._counts.get(value, 0) + 1

    def collect(self) -> Iterable[Metric]:
        """Yield the family with current values."""
        family = CounterMetricFamily(*self._head, labels=[self._label])
        for value, number in self._counts.items():
            family.add_metric([value], number)
        yield family

    def describe(self) -> Iterator[Metric]:
        """Yield the family without samples."""
        yield CounterMetricFamily(*self._head, labels=[self._label])


class LoopHistogram(Collector):
    """Histogram with a label of few values, counted by the event loop alone.

    `bounds`: upper bounds of the buckets, rising.
    """

    def __init__(
        self, name: str, text: str, bounds: Sequence[float], label: str, values: Sequence[str]
    ) -> None:
        self._head = (name, text)
        self._label = label
        self._bounds = tuple(map(float, bounds))
        self._buckets = {value: [0] * (len(self._bounds) + 1) for value in values}
        self._sums = dict.fromkeys(values, 0.0)

    def observe(self, value: str, number: float) -> None:
        """Count a number under this label value."""
        self._buckets[value][bisect_left(self._bounds, number)] += 1
        self._sums[value] += number

    def collect(self) -> Iterable[Metric]:
        """Yield the family with current values."""
        family = HistogramMetricFamily(*self._head, labels=[self._label])
        bounds = [*map(str, self._bounds), "+Inf"]
        for value, counts in self._buckets.items():
            cumulative = list(zip(bounds, itertools.accumulate(counts), strict=True))
            family.add_metric([value], cumulative, self._sums[value])
        yield family

    def describe(self) -> Iterator[Metric]:
        """Yield the family without samples."""
        yield HistogramMetricFamily(*self._head, labels=[self._label])


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
