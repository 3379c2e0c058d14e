"""Merges the Telemetries for the mesh, the namespace and the workload. Later ones take precedence.

The results are rules for each provider. `mode` is the side of the workload: SERVER is the inbound side, and CLIENT is
the outbound side or a gateway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar, get_args

import msgspec

from pilot.config.kinds.istio import TELEMETRY
from pilot.config.object import ObjectKey
from pilot.config.telemetry import (
    AccessLogging,
    IstioMetric,
    Metrics,
    MetricSelector,
    MetricsOverrides,
    ModeSelector,
    Telemetry,
)
from pilot.derive import derived
from pilot.lib.duration import Duration
from pilot.mesh.model.facets import TelemetryFacet
from pilot.mesh.model.telemetry_rules import LogRule, MetricOverride, MetricRules, SpanRules
from pilot.mesh.tables.database import Mesh
from pilot.mesh.telemetry.providers import default_providers

T = TypeVar("T")
_EVERY_METRIC = tuple(sorted(name for name in get_args(IstioMetric) if name != "ALL_METRICS"))


def telemetry_facet(db: Mesh, keys: tuple[ObjectKey, ...], mode: str) -> TelemetryFacet:
    """Return the merged Telemetries for one side of a workload. Not memoised."""
    return TelemetryFacet(log_rules(db, keys, mode), metric_rules(db, keys, mode), span_rules(db, keys, mode))


def _specs(db: Mesh, keys: Iterable[ObjectKey]) -> Iterator[Telemetry]:
    for key in keys:
        if (row := TELEMETRY.get(db, key)) is not None:
            yield row.spec


def _is_for(match: ModeSelector | MetricSelector | None, mode: str) -> bool:
    return match is None or match.mode in ("CLIENT_AND_SERVER", mode)


def with_providers(entries: Sequence[T], defaults: tuple[str, ...]) -> Iterator[tuple[T, tuple[str, ...]]]:
    """Yield entries with their providers.

    An entry without providers has those of the previous entry. If the first entry has none, it has the mesh's default
    providers.
    """
    names = defaults
    for entry in entries:
        names = provider_names(entry) or names
        yield entry, names


def provider_names(entry: AccessLogging | Metrics | object) -> tuple[str, ...]:
    return tuple(provider.name for provider in getattr(entry, "providers", ()))


# -- access logs -------------------------------------------------------------------------------------------------------


@derived
def log_rules(db: Mesh, keys: tuple[ObjectKey, ...], mode: str) -> tuple[LogRule, ...]:
    """Return the access log rules for one side of a workload, one for each provider, sorted by provider.

    Without Telemetries for access logs, the rules are for the default providers. Otherwise, the last Telemetry that
    names providers for this side determines the providers. A filter applies to the providers that its entry names.
    """
    defaults = default_providers(db).access_logging
    levels = [spec.access_logging for spec in _specs(db, keys) if spec.access_logging]
    if not levels:
        return tuple(LogRule(name) for name in sorted(set(defaults)))
    providers = [
        frozenset(name for entry in level if _is_for(entry.match, mode) for name in provider_names(entry))
        for level in levels
    ]
    effective = next((names for names in reversed(providers) if names), frozenset(defaults))
    entries = [entry for level in levels for entry in level]
    filters = {name: entry.filter for entry in entries if _is_for(entry.match, mode) for name in provider_names(entry)}
    rules: dict[str, LogRule] = {}
    for entry, names in with_providers(entries, defaults):
        for name in effective.intersection(names) if _is_for(entry.match, mode) else ():
            log_filter = filters.get(name)
            rules[name] = (
                LogRule(name, disabled=True)
                if entry.disabled
                else LogRule(name, log_filter.expression if log_filter is not None else "")
            )
    return tuple(rules[name] for name in sorted(rules))


# -- metrics -----------------------------------------------------------------------------------------------------------


@derived
def metric_rules(db: Mesh, keys: tuple[ObjectKey, ...], mode: str) -> tuple[MetricRules, ...]:
    """Return the metric rules for one side of a workload, one for each provider that receives metrics, sorted by
    provider."""
    defaults = default_providers(db).metrics
    entries = [entry for spec in _specs(db, keys) for entry in spec.metrics]
    if not entries:
        return tuple(MetricRules(name) for name in sorted(set(defaults)))
    effective = next((names for entry in reversed(entries) if (names := provider_names(entry))), defaults)
    merged: dict[str, _Merged] = {}
    for entry, names in with_providers(entries, defaults):
        for name in names:
            if name in effective:
                merged.setdefault(name, _Merged()).add(entry, mode)
    return tuple(MetricRules(name, m.overrides(), m.interval) for name, m in sorted(merged.items()) if not m.off)


class _Merged:
    """Collects the metric settings for one provider. Later settings take precedence. `off` disables all metrics."""

    def __init__(self) -> None:
        self.off = False
        self.interval: Duration | None = None
        self._metrics: dict[str, tuple[bool, dict[str, str]]] = {}

    def add(self, entry: Metrics, mode: str) -> None:
        if entry.reporting_interval is not None:
            self.interval = entry.reporting_interval
        for override in entry.overrides:
            if not _is_for(override.match, mode):
                continue
            metrics = _metrics(override.match)
            self.off = bool(override.disabled) and metrics is _EVERY_METRIC
            if not self.off:
                self._override(metrics, override)

    def _override(self, metrics: Iterable[str], override: MetricsOverrides) -> None:
        for metric in metrics:
            disabled, tags = self._metrics.setdefault(metric, (False, {}))
            tags.update(
                (name, tag.value if tag.operation == "UPSERT" else "") for name, tag in override.tag_overrides.items()
            )
            self._metrics[metric] = (disabled if override.disabled is None else override.disabled, tags)

    def overrides(self) -> tuple[MetricOverride, ...]:
        return tuple(
            MetricOverride(name, disabled, tuple(sorted(tags.items())))
            for name, (disabled, tags) in sorted(self._metrics.items())
        )


def _metrics(match: MetricSelector | None) -> tuple[str, ...]:
    """Return the names of the metrics that an override applies to."""
    if match is not None and match.custom_metric is not None:
        return (match.custom_metric,)
    name = match.metric if match is not None else None
    return _EVERY_METRIC if name in (None, "ALL_METRICS") else (name,)


# -- spans -------------------------------------------------------------------------------------------------------------


@derived
def span_rules(db: Mesh, keys: tuple[ObjectKey, ...], mode: str) -> SpanRules | None:
    """Return the tracing rules for one side of a workload, or None if only the proxy config applies.

    The last setting of each field takes precedence.
    """
    defaults = default_providers(db).tracing
    entries = [entry for spec in _specs(db, keys) for entry in spec.tracing]
    if not entries and not defaults:
        return None
    rules = SpanRules(provider=defaults[0] if defaults else "")
    for entry in entries:
        if not _is_for(entry.match, mode):
            continue
        names, propagation = provider_names(entry), entry.disable_context_propagation
        settings = {
            "provider": names[0] if names else None,
            "disabled": entry.disable_span_reporting,
            "sampling": entry.random_sampling_percentage,
            "tags": tuple(sorted(entry.custom_tags.items(), key=lambda item: item[0])) or None,
            "request_id_sampling": entry.use_request_id_for_trace_sampling,
            "istio_tags": entry.enable_istio_tags,
            "propagated": None if propagation is None else not propagation,
        }
        rules = msgspec.structs.replace(
            rules, **{field: value for field, value in settings.items() if value is not None}
        )
    return rules
