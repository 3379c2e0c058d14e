"""What Telemetries come to for one side of a workload: rules by the names of providers."""

from __future__ import annotations

import msgspec

from pilot.config.telemetry import SpanTag
from pilot.lib.duration import Duration


class LogRule(msgspec.Struct, frozen=True):
    """Says that connections and requests are logged by a provider: those that `expression` is true of, "" for all. With `disabled` none are, whatever
    the mesh config says."""

    provider: str
    expression: str = ""
    disabled: bool = False


class MetricOverride(msgspec.Struct, frozen=True):
    """Says what is different about a metric. `tags` have the expressions of their values, "" for tags that are removed."""

    metric: str
    disabled: bool = False
    tags: tuple[tuple[str, str], ...] = ()


class MetricRules(msgspec.Struct, frozen=True):
    """Says which metrics a provider is given, where they differ from the usual ones."""

    provider: str
    overrides: tuple[MetricOverride, ...] = ()
    interval: Duration | None = None


class SpanRules(msgspec.Struct, frozen=True, kw_only=True):
    """Says where spans go and how many; None and () where the proxy config is asked."""

    provider: str = ""
    disabled: bool = False
    sampling: float | None = None
    tags: tuple[tuple[str, SpanTag], ...] = ()
    request_id_sampling: bool = True
    istio_tags: bool = True
    propagated: bool = True
