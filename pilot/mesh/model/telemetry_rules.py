"""Telemetries merged for one side of a workload: rules by provider name."""

from __future__ import annotations

import msgspec

from pilot.config.telemetry import SpanTag
from pilot.lib.duration import Duration


class LogRule(msgspec.Struct, frozen=True):
    """Access logging by one provider.

    `expression` selects the connections and requests to log; "" logs all. `disabled` turns logging off, even if the
    mesh config enables it.
    """

    provider: str
    expression: str = ""
    disabled: bool = False


class MetricOverride(msgspec.Struct, frozen=True):
    """Overrides of one metric. `tags` map a tag to the CEL expression of its value, or to "" to remove the tag."""

    metric: str
    disabled: bool = False
    tags: tuple[tuple[str, str], ...] = ()


class MetricRules(msgspec.Struct, frozen=True):
    """Overrides of a provider's default metrics."""

    provider: str
    overrides: tuple[MetricOverride, ...] = ()
    interval: Duration | None = None


class SpanRules(msgspec.Struct, frozen=True, kw_only=True):
    """Provider, sampling and tags of spans. None and () defer to the proxy config."""

    provider: str = ""
    disabled: bool = False
    sampling: float | None = None
    tags: tuple[tuple[str, SpanTag], ...] = ()
    request_id_sampling: bool = True
    istio_tags: bool = True
    propagated: bool = True
