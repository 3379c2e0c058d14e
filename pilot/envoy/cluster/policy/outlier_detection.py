"""Outlier detection: ejects endpoints from a cluster because of their responses.

https://istio.io/latest/docs/reference/config/networking/destination-rule/#OutlierDetection
"""

from __future__ import annotations

from collections.abc import Sequence

from envoy.config.cluster.v3 import cluster_pb2, outlier_detection_pb2
from envoy.config.common.matcher.v3 import matcher_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.destination_rule import OutlierDetection
from pilot.envoy.cluster.cluster_draft import ClusterDraft
from pilot.envoy.well_known_types import build_duration


def _uint32(value: int) -> wrappers_pb2.UInt32Value:
    return wrappers_pb2.UInt32Value(value=value)


def _enforcement(value: int) -> wrappers_pb2.UInt32Value:
    """Return the enforcement percentage for a limit. It is 0 if the limit is 0, and otherwise 100."""
    return _uint32(100 if value > 0 else 0)


def apply_outlier_detection(draft: ClusterDraft, settings: OutlierDetection, forced_unhealthy: bool) -> None:
    """Set outlier detection.

    If `forced_unhealthy` is set, clients always receive unhealthy endpoints, and panic mode must not route to them.
    """
    draft.cluster.outlier_detection.CopyFrom(build_outlier_detection(settings))
    if settings.min_health_percent >= 0:
        percent = 0 if forced_unhealthy else settings.min_health_percent
        draft.cluster.common_lb_config.healthy_panic_threshold.CopyFrom(percent_pb2.Percent(value=percent))
    if settings.outlier_detection_http_error_codes:
        draft.options.outlier_detection.error_matcher.CopyFrom(
            build_error_matcher(settings.outlier_detection_http_error_codes)
        )


def build_outlier_detection(settings: OutlierDetection) -> outlier_detection_pb2.OutlierDetection:
    """Return the outlier detection message.

    Ejection by success rate is disabled, because it ejects endpoints that receive little traffic.
    """
    out = outlier_detection_pb2.OutlierDetection(enforcing_success_rate=_uint32(0))
    if settings.consecutive_5xx_errors is not None:
        out.consecutive_5xx.CopyFrom(_uint32(settings.consecutive_5xx_errors))
        out.enforcing_consecutive_5xx.CopyFrom(_enforcement(settings.consecutive_5xx_errors))
    if settings.consecutive_gateway_errors is not None:
        out.consecutive_gateway_failure.CopyFrom(_uint32(settings.consecutive_gateway_errors))
        out.enforcing_consecutive_gateway_failure.CopyFrom(_enforcement(settings.consecutive_gateway_errors))
    if settings.interval is not None:
        out.interval.CopyFrom(build_duration(settings.interval))
    if settings.base_ejection_time is not None:
        out.base_ejection_time.CopyFrom(build_duration(settings.base_ejection_time))
    if settings.max_ejection_percent > 0:
        out.max_ejection_percent.CopyFrom(_uint32(settings.max_ejection_percent))
    if settings.split_external_local_origin_errors:
        out.split_external_local_origin_errors = True
        if settings.consecutive_local_origin_failures:
            out.consecutive_local_origin_failure.CopyFrom(_uint32(settings.consecutive_local_origin_failures))
            out.enforcing_consecutive_local_origin_failure.CopyFrom(_uint32(100))
        out.enforcing_local_origin_success_rate.CopyFrom(_uint32(0))
    return out


def build_error_matcher(codes: Sequence[int]) -> matcher_pb2.MatchPredicate:
    """Return the matcher that treats only responses with these status codes as errors."""
    rules = [
        matcher_pb2.MatchPredicate(http_response_headers_match=matcher_pb2.HttpHeadersMatch(headers=[_status(code)]))
        for code in codes
    ]
    if len(rules) == 1:
        return rules[0]
    return matcher_pb2.MatchPredicate(or_match=matcher_pb2.MatchPredicate.MatchSet(rules=rules))


def _status(code: int) -> route_components_pb2.HeaderMatcher:
    return route_components_pb2.HeaderMatcher(name=":status", string_match=string_pb2.StringMatcher(exact=str(code)))


def disable_panic(cluster: cluster_pb2.Cluster) -> None:
    """Disable panic mode, unless a threshold is already set. In panic mode, Envoy routes to unhealthy endpoints."""
    if not cluster.common_lb_config.HasField("healthy_panic_threshold"):
        cluster.common_lb_config.healthy_panic_threshold.SetInParent()
