"""The result of merging Telemetries for one side of a workload: rules for each provider."""

from __future__ import annotations

import msgspec

from pilot.config.telemetry import SpanTag
from pilot.lib.duration import Duration


class LogRule(msgspec.Struct, frozen=True):
    """Access logging to one provider.

    `expression` selects the connections and requests to log. If it is "", all are logged. `disabled` turns logging off,
    even if the mesh config enables it.
    """

    provider: str
    expression: str = ""
    disabled: bool = False


class MetricOverride(msgspec.Struct, frozen=True):
    """Overrides for one metric. `tags` pairs each tag with the CEL expression of its value, or "" to remove it."""

    metric: str
    disabled: bool = False
    tags: tuple[tuple[str, str], ...] = ()


class MetricRules(msgspec.Struct, frozen=True):
    """Overrides for a provider's default metrics."""

    provider: str
    overrides: tuple[MetricOverride, ...] = ()
    interval: Duration | None = None


class SpanRules(msgspec.Struct, frozen=True, kw_only=True):
    """Provider, sampling and tags of spans. For values that are None or (), the proxy config applies."""

    provider: str = ""
    disabled: bool = False
    sampling: float | None = None
    tags: tuple[tuple[str, SpanTag], ...] = ()
    request_id_sampling: bool = True
    istio_tags: bool = True
    propagated: bool = True
