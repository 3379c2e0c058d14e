"""Per-route configuration of the fault and CORS filters."""

from __future__ import annotations

from envoy.extensions.filters.common.fault.v3 import fault_pb2 as delay_pb2
from envoy.extensions.filters.http.cors.v3 import cors_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.virtual_service import Abort, CorsPolicy, Delay, HTTPFaultInjection, StringMatch
from pilot.envoy.route.action.fractional_percent import HUNDRED_PERCENT, build_fractional_percent, build_whole_percent
from pilot.envoy.route.route_match import build_string_matcher
from pilot.envoy.well_known_types import build_duration

# https://grpc.github.io/grpc/core/md_doc_statuscodes.html
_GRPC_CODES = {
    name: code
    for code, name in enumerate(
        (
            "OK",
            "CANCELLED",
            "UNKNOWN",
            "INVALID_ARGUMENT",
            "DEADLINE_EXCEEDED",
            "NOT_FOUND",
            "ALREADY_EXISTS",
            "PERMISSION_DENIED",
            "RESOURCE_EXHAUSTED",
            "FAILED_PRECONDITION",
            "ABORTED",
            "OUT_OF_RANGE",
            "UNIMPLEMENTED",
            "INTERNAL",
            "UNAVAILABLE",
            "DATA_LOSS",
            "UNAUTHENTICATED",
        )
    )
}


def build_fault(fault: HTTPFaultInjection) -> fault_pb2.HTTPFault:
    """Return the configuration of the fault filter.

    Faults that Envoy cannot inject are omitted: exponential delays and HTTP/2 errors.
    https://istio.io/latest/docs/reference/config/networking/virtual-service/#HTTPFaultInjection
    """
    return fault_pb2.HTTPFault(delay=_delay(fault.delay), abort=_abort(fault.abort))


def _delay(delay: Delay | None) -> delay_pb2.FaultDelay | None:
    if delay is None or delay.fixed_delay is None:
        return None
    percentage = (
        build_fractional_percent(delay.percentage)
        if delay.percentage is not None
        else build_whole_percent(delay.percent)
    )
    return delay_pb2.FaultDelay(fixed_delay=build_duration(delay.fixed_delay), percentage=percentage)


def _abort(abort: Abort | None) -> fault_pb2.FaultAbort | None:
    """Return the abort, or None if it has no status. If it has no percentage, Envoy aborts no requests."""
    if abort is None or (abort.http_status is None and abort.grpc_status is None):
        return None
    percentage = build_fractional_percent(abort.percentage) if abort.percentage is not None else None
    if abort.http_status is not None:
        return fault_pb2.FaultAbort(http_status=abort.http_status, percentage=percentage)
    return fault_pb2.FaultAbort(grpc_status=_GRPC_CODES.get(abort.grpc_status or "", 0), percentage=percentage)


def build_cors(policy: CorsPolicy) -> cors_pb2.CorsPolicy:
    """Return the CORS policy.

    Preflight requests from origins that are not allowed are forwarded to the service, unless `unmatchedPreflights` is
    IGNORE.
    https://istio.io/latest/docs/reference/config/networking/virtual-service/#CorsPolicy
    """
    origins = policy.allow_origins or tuple(StringMatch(exact=origin) for origin in policy.allow_origin)
    return cors_pb2.CorsPolicy(
        allow_origin_string_match=[m for origin in origins if (m := build_string_matcher(origin)) is not None],
        allow_methods=",".join(policy.allow_methods),
        allow_headers=",".join(policy.allow_headers),
        expose_headers=",".join(policy.expose_headers),
        max_age=str(policy.max_age // 1_000_000_000) if policy.max_age is not None else "",
        allow_credentials=_optional_bool(policy.allow_credentials),
        filter_enabled=HUNDRED_PERCENT,
        forward_not_matching_preflights=_optional_bool(policy.unmatched_preflights != "IGNORE"),
    )


def _optional_bool(value: bool | None) -> wrappers_pb2.BoolValue | None:
    return wrappers_pb2.BoolValue(value=value) if value is not None else None
