"""Histograms that cost little to observe, because every response is observed several times."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client import Metric

from pilot.lib.metrics.metric_catalogue import DeclaredMetric


class Histogram:
    """The counts of values up to each bound, and the sum of all values. It may be used in any thread."""

    __slots__ = ("_bounds", "_lock", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self._lock = bounds, threading.Lock()
        self.counts, self.sum = [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Add a value."""
        with self._lock:
            self.counts[bisect_left(self._bounds, value)] += 1
            self.sum += value


class HistogramFamily:
    """The histograms of a metric by their label values, as a collector of prometheus-client."""

    def __init__(self, declared: DeclaredMetric) -> None:
        self._declared = declared
        self._histograms: dict[tuple[str, ...], Histogram] = {}

    def labels(self, *values: str) -> Histogram:
        """Return the histogram with some label values. Create it on first use."""
        return self._histograms.setdefault(values, Histogram(self._declared.buckets))

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        name = self._declared.name
        metric = Metric(name, self._declared.help, "histogram")
        for values, histogram in list(self._histograms.items()):
            labels, total = dict(zip(self._declared.labels, values, strict=True)), 0
            for bound, count in zip((*self._declared.buckets, float("inf")), list(histogram.counts), strict=True):
                total += count
                metric.add_sample(f"{name}_bucket", {**labels, "le": str(bound)}, total)
            metric.add_sample(f"{name}_count", labels, total)
            metric.add_sample(f"{name}_sum", labels, histogram.sum)
        yield metric
