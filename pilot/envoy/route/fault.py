"""Builds injected delays and aborts, as the configuration of the fault filter for one route.

https://istio.io/latest/docs/reference/config/networking/virtual-service/#HTTPFaultInjection
"""

from __future__ import annotations

from envoy.extensions.filters.common.fault.v3 import fault_pb2 as delay_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2

from pilot.config.networking.virtual_service import Abort, Delay, HTTPFaultInjection
from pilot.envoy.route.percent import build_fraction, build_whole
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
    """Returns the configuration; what there is no way to inject (an exponential delay, an HTTP/2 error) is left out."""
    return fault_pb2.HTTPFault(delay=_delay(fault.delay), abort=_abort(fault.abort))


def _delay(delay: Delay | None) -> delay_pb2.FaultDelay | None:
    if delay is None or delay.fixed_delay is None:
        return None
    share = build_fraction(delay.percentage) if delay.percentage is not None else build_whole(delay.percent)
    return delay_pb2.FaultDelay(fixed_delay=build_duration(delay.fixed_delay), percentage=share)


def _abort(abort: Abort | None) -> fault_pb2.FaultAbort | None:
    """Returns the abort; without a percentage Envoy aborts no request."""
    if abort is None or (abort.http_status is None and abort.grpc_status is None):
        return None
    share = build_fraction(abort.percentage) if abort.percentage is not None else None
    if abort.http_status is not None:
        return fault_pb2.FaultAbort(http_status=abort.http_status, percentage=share)
    return fault_pb2.FaultAbort(grpc_status=_GRPC_CODES.get(abort.grpc_status or "", 0), percentage=share)
