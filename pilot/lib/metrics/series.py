"""Time series of all metrics.

A series is created at its first observation, with the name and labels in the catalogue.
"""

from __future__ import annotations

from collections import Counter as Counters
from collections.abc import Callable
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)

from pilot.lib.metrics.exposition import render
from pilot.lib.metrics.histogram import HistogramFamily
from pilot.lib.metrics.metric_catalogue import CATALOGUE, DeclaredMetric

OTHER = "other"
LABEL_LENGTH = 200
_FACTORIES: dict[str, Any] = {"counter": Counter, "gauge": Gauge}


class Series:
    """All series of one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._families: dict[str, Any] = {}
        self._series: dict[tuple[str, ...], Any] = {}
        self._sizes: Counters[str] = Counters()
        self._exact: dict[str, str] = {}
        self._before: list[Callable[[], None]] = []
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    def before_reading(self, update: Callable[[], None]) -> None:
        """Call `update` before every read of the metrics. Use this for values that are maintained elsewhere."""
        self._before.append(update)

    def exposition(self) -> bytes:
        """Return all metrics as text of the type `pilot.lib.metrics.exposition.CONTENT_TYPE`."""
        for update in self._before:
            update()
        return render(self._registry.collect(), self._exact)

    def value(self, name: str) -> float:
        """Return the value of a gauge without labels, or 0.0 if it has not been set."""
        family = self._families.get(name)
        return float(next(iter(family.collect())).samples[0].value) if family is not None else 0.0

    def at(self, *series: str) -> Any:
        """Return the series with a metric name and label values, which are in the catalogue's order.

        Create it on first use. Label values are truncated. Beyond the metric's limit, values that clients or users
        choose are replaced with `OTHER`.
        """
        metric = self._series.get(series)
        if metric is None:
            series = (series[0], *(label[:LABEL_LENGTH] for label in series[1:]))
            if series not in self._series and self._sizes[series[0]] >= CATALOGUE[series[0]].limit:
                series = _folded(CATALOGUE[series[0]], series)
            metric = self._series.get(series)
        if metric is None:
            self._sizes[series[0]] += 1
            metric = self._series[series] = self._create(series[0], series[1:])
        return metric

    def _create(self, name: str, labels: tuple[str, ...]) -> Any:
        family = self._families.get(name)
        if family is None:
            declared = CATALOGUE[name]
            if declared.kind == "histogram":
                family = HistogramFamily(declared)
                self._registry.register(family)
            else:
                family = _FACTORIES[declared.kind](
                    _inner(declared), declared.help, declared.labels, registry=self._registry
                )
            self._families[name] = family
            self._exact[_inner(declared)] = name
        return family.labels(*labels) if labels or isinstance(family, HistogramFamily) else family


def _inner(declared: DeclaredMetric) -> str:
    """Return the name of a metric family in prometheus-client.

    In prometheus-client, the names of counters do not end in `_total`, and differ from the names of gauges.
    """
    base = declared.name.removesuffix("_total")
    return (
        declared.name
        if declared.kind != "counter"
        else f"{base}_counted"
        if base != declared.name and base in CATALOGUE
        else base
    )


def _folded(declared: DeclaredMetric, series: tuple[str, ...]) -> tuple[str, ...]:
    """Return the series that a series beyond the limit is merged into. The values of its foreign labels are `OTHER`."""
    return (
        series[0],
        *(
            OTHER if label in declared.foreign else value
            for label, value in zip(declared.labels, series[1:], strict=True)
        ),
    )
