"""Percentages of requests."""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2
from envoy.type.v3 import percent_pb2

from pilot.config.networking.virtual_service import Percent

HUNDRED_PERCENT = base_pb2.RuntimeFractionalPercent(
    default_value=percent_pb2.FractionalPercent(numerator=100, denominator=percent_pb2.FractionalPercent.HUNDRED)
)


def build_fractional_percent(percent: Percent) -> percent_pb2.FractionalPercent:
    """Return the fraction for a percentage, truncated to four decimal places."""
    return percent_pb2.FractionalPercent(
        numerator=int(percent.value * 10_000), denominator=percent_pb2.FractionalPercent.MILLION
    )


def build_whole_percent(percent: int) -> percent_pb2.FractionalPercent:
    """Return the fraction for a whole percentage."""
    return percent_pb2.FractionalPercent(numerator=percent, denominator=percent_pb2.FractionalPercent.HUNDRED)


def build_runtime_percent(fraction: percent_pb2.FractionalPercent) -> base_pb2.RuntimeFractionalPercent:
    return base_pb2.RuntimeFractionalPercent(default_value=fraction)
