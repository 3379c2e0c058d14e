"""Sets which endpoints a cluster stops using because of their answers.

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


def _number(value: int) -> wrappers_pb2.UInt32Value:
    return wrappers_pb2.UInt32Value(value=value)


def _enforced(value: int) -> wrappers_pb2.UInt32Value:
    """Returns in how many percent of the cases a rule counts: 100, unless 0 turns it off."""
    return _number(100 if value > 0 else 0)


def apply_outlier_detection(draft: ClusterDraft, said: OutlierDetection, forced_unhealthy: bool) -> None:
    """Sets what ejects endpoints. `forced_unhealthy`: endpoints that are not ready are sent in any case, and must not be used for lack of
    others."""
    draft.cluster.outlier_detection.CopyFrom(build_outlier_detection(said))
    if said.min_health_percent >= 0:
        percent = 0 if forced_unhealthy else said.min_health_percent
        draft.cluster.common_lb_config.healthy_panic_threshold.CopyFrom(percent_pb2.Percent(value=percent))
    if said.outlier_detection_http_error_codes:
        draft.options.outlier_detection.error_matcher.CopyFrom(
            build_error_matcher(said.outlier_detection_http_error_codes)
        )


def build_outlier_detection(said: OutlierDetection) -> outlier_detection_pb2.OutlierDetection:
    """Returns the message. Success rates never count: Envoy's defaults for them eject endpoints of services with little traffic."""
    out = outlier_detection_pb2.OutlierDetection(enforcing_success_rate=_number(0))
    if said.consecutive_5xx_errors is not None:
        out.consecutive_5xx.CopyFrom(_number(said.consecutive_5xx_errors))
        out.enforcing_consecutive_5xx.CopyFrom(_enforced(said.consecutive_5xx_errors))
    if said.consecutive_gateway_errors is not None:
        out.consecutive_gateway_failure.CopyFrom(_number(said.consecutive_gateway_errors))
        out.enforcing_consecutive_gateway_failure.CopyFrom(_enforced(said.consecutive_gateway_errors))
    if said.interval is not None:
        out.interval.CopyFrom(build_duration(said.interval))
    if said.base_ejection_time is not None:
        out.base_ejection_time.CopyFrom(build_duration(said.base_ejection_time))
    if said.max_ejection_percent > 0:
        out.max_ejection_percent.CopyFrom(_number(said.max_ejection_percent))
    if said.split_external_local_origin_errors:
        out.split_external_local_origin_errors = True
        if said.consecutive_local_origin_failures:
            out.consecutive_local_origin_failure.CopyFrom(_number(said.consecutive_local_origin_failures))
            out.enforcing_consecutive_local_origin_failure.CopyFrom(_number(100))
        out.enforcing_local_origin_success_rate.CopyFrom(_number(0))
    return out


def build_error_matcher(codes: Sequence[int]) -> matcher_pb2.MatchPredicate:
    """Returns the matcher by which answers of these status codes, and no others, count as errors."""
    rules = [
        matcher_pb2.MatchPredicate(http_response_headers_match=matcher_pb2.HttpHeadersMatch(headers=[_status(code)]))
        for code in codes
    ]
    if len(rules) == 1:
        return rules[0]
    return matcher_pb2.MatchPredicate(or_match=matcher_pb2.MatchPredicate.MatchSet(rules=rules))


def _status(code: int) -> route_components_pb2.HeaderMatcher:
    return route_components_pb2.HeaderMatcher(name=":status", string_match=string_pb2.StringMatcher(exact=str(code)))


def without_panic(cluster: cluster_pb2.Cluster) -> None:
    """Makes the cluster never use endpoints that are not ready because too few are, unless a threshold is set already."""
    if not cluster.common_lb_config.HasField("healthy_panic_threshold"):
        cluster.common_lb_config.healthy_panic_threshold.SetInParent()
