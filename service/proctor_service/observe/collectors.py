"""Collectors of Prometheus beside those of its client: read at collection, or counted by the event loop."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector


class ScrapedGauge(Collector):
    """Gauge with labels known only at collection time."""

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
        """Yield the family without samples: the registration reads no values."""
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
