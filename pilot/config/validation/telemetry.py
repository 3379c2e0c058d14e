"""Validation of Telemetry objects."""

from __future__ import annotations

from collections.abc import Sequence

from pilot.config.object import Object
from pilot.config.problem import Problems, below, each, error, warning
from pilot.config.telemetry import (
    AccessLogging,
    Metrics,
    MetricsOverrides,
    ProviderRef,
    SpanTag,
    TagOverride,
    Telemetry,
    TelemetryTracing,
)
from pilot.config.validation import rules
from pilot.config.validation.expansion import check_telemetry
from pilot.config.validation.policy import check_attachment
from pilot.config.validation.traffic.headers import check_format, check_strict_name
from pilot.lib import cel


def validate_telemetry(o: Object[Telemetry]) -> Problems:
    """Yield the problems of a Telemetry object that do not depend on other objects."""
    yield from below("spec", check_telemetry(o.spec))
    yield from below("spec", _validate(o.spec))


def _validate(spec: Telemetry) -> Problems:
    yield from check_attachment(spec.selector, spec.target_ref, spec.target_refs)
    if not (spec.tracing or spec.metrics or spec.access_logging):
        yield warning("no-effect", "", "tracing, metrics or accessLogging should be set")
    yield from _find_overridden(spec.tracing)
    yield from each("tracing", spec.tracing, _validate_tracing)
    yield from each("metrics", spec.metrics, _validate_metrics)
    yield from _validate_logs(spec.access_logging)


def _find_overridden(entries: Sequence[TelemetryTracing]) -> Problems:
    """Yield a warning for each entry that a later entry for the same mode overrides."""
    modes = [entry.match.mode if entry.match is not None else "CLIENT_AND_SERVER" for entry in entries]
    last_indexes = {mode: index for index, mode in enumerate(modes)}
    last_of_both = last_indexes.get("CLIENT_AND_SERVER", -1)
    for index, mode in enumerate(modes):
        last = len(modes) - 1 if mode == "CLIENT_AND_SERVER" else max(last_indexes[mode], last_of_both)
        if index < last:
            yield warning("no-effect", f"tracing[{index}]", "a later entry for the same mode overrides this one")


def _check_providers(providers: Sequence[ProviderRef]) -> Problems:
    names: set[str] = set()
    for index, provider in enumerate(providers):
        if not provider.name:
            yield error("missing-field", f"providers[{index}].name", "a name is required")
        elif provider.name in names:
            yield warning("duplicate-provider", f"providers[{index}].name", f"duplicate {provider.name}")
        names.add(provider.name)


# Tracing


def _validate_tracing(tracing: TelemetryTracing) -> Problems:
    yield from _check_providers(tracing.providers)
    if len(tracing.providers) > 1:
        yield warning("no-effect", "providers[1]", "only the first provider is used")
    yield from rules.check_percent("randomSamplingPercentage", tracing.random_sampling_percentage)
    if tracing.disable_span_reporting and (
        tracing.providers or tracing.custom_tags or tracing.random_sampling_percentage is not None
    ):
        yield warning(
            "no-effect",
            "disableSpanReporting",
            "providers, tags and sampling have no effect if span reporting is disabled",
        )
    for name, tag in tracing.custom_tags.items():
        if not name:
            yield error("missing-field", f"customTags[{name}]", "a tag name is required")
        yield from below(f"customTags[{name}]", _validate_tag(tag))


def _validate_tag(tag: SpanTag) -> Problems:
    if tag.literal is not None:
        yield from _check_text("literal.value", tag.literal.value)
    elif tag.environment is not None:
        yield from _check_text("environment.name", tag.environment.name)
    elif tag.header is not None and not tag.header.name:
        yield error("missing-field", "header.name", "a header is required")
    elif tag.header is not None:
        yield from check_strict_name("header.name", tag.header.name)
    elif tag.formatter is not None and not tag.formatter.value:
        yield error("missing-field", "formatter.value", "a format is required")
    elif tag.formatter is not None:
        yield from check_format("formatter.value", tag.formatter.value)
    else:
        yield warning("no-effect", "", "has no effect without one of literal, environment, header and formatter")


def _check_text(path: str, text: str) -> Problems:
    if not text:
        yield error("missing-field", path, "a non-empty string is required")


# Metrics


def _validate_metrics(metrics: Metrics) -> Problems:
    yield from _check_providers(metrics.providers)
    yield from rules.check_duration("reportingInterval", metrics.reporting_interval)
    yield from each("overrides", metrics.overrides, _validate_override)


def _validate_override(override: MetricsOverrides) -> Problems:
    custom = override.match.custom_metric if override.match is not None else None
    if custom is not None and not custom:
        yield error("missing-field", "match.customMetric", "a name is required")
    if override.disabled is None and not override.tag_overrides:
        yield warning("no-effect", "", "disabled or tagOverrides should be set")
    if override.disabled and override.tag_overrides:
        yield warning("no-effect", "tagOverrides", "has no effect on a disabled metric")
    for name, tag in override.tag_overrides.items():
        if not name:
            yield warning("missing-field", f"tagOverrides[{name}]", "a tag name is required")
        yield from below(f"tagOverrides[{name}]", _validate_tag_override(tag))


def _validate_tag_override(tag: TagOverride) -> Problems:
    if tag.operation == "REMOVE":
        if tag.value:
            yield error("exclusive-fields", "value", "REMOVE does not take a value")
    elif not tag.value:
        yield error("missing-field", "value", "UPSERT requires a value")


# Access logs


def _validate_logs(logs: Sequence[AccessLogging]) -> Problems:
    length = sum(len(logging.filter.expression) for logging in logs if logging.filter is not None)
    if length > cel.MAX_LENGTH:
        yield error("too-long", "accessLogging", f"filters of {length} characters; at most {cel.MAX_LENGTH} in total")
    else:
        yield from each("accessLogging", logs, _validate_logging)


def _validate_logging(logging: AccessLogging) -> Problems:
    yield from _check_providers(logging.providers)
    if logging.filter is None:
        return
    if not logging.filter.expression:
        yield error("missing-field", "filter.expression", "an expression is required")
    elif fault := cel.find_fault(logging.filter.expression):
        yield error("bad-expression", "filter.expression", fault)
    else:
        for text in cel.find_unknown_attributes(logging.filter.expression):
            yield warning("unknown-attribute", "filter.expression", text)
    if logging.disabled:
        yield warning("no-effect", "filter", "has no effect if access logging is disabled")
    elif not logging.providers:
        yield warning("no-effect", "filter", "has no effect without providers in the same entry")
