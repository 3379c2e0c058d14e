"""Validation of fault injection."""

from __future__ import annotations

from pilot.config.networking.virtual_service import Abort, Delay, HTTPFaultInjection, Percent
from pilot.config.problem import Problems, below, error, warning
from pilot.config.validation import rules

GRPC_STATUS = (
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
"""Names of the gRPC status codes, in numerical order (https://grpc.io/docs/guides/status-codes/)."""


def validate_fault(fault: HTTPFaultInjection) -> Problems:
    if fault.abort is None and fault.delay is None:
        yield error("missing-field", "", "abort or delay is required")
    if fault.abort is not None:
        yield from below("abort", _validate_abort(fault.abort))
    if fault.delay is not None:
        yield from below("delay", _validate_delay(fault.delay))


def _validate_abort(abort: Abort) -> Problems:
    yield from _check_share(abort.percentage)
    if abort.grpc_status is not None:
        if abort.grpc_status not in GRPC_STATUS:
            yield error("bad-status", "grpcStatus", f"{abort.grpc_status!r} is not a gRPC status, such as NOT_FOUND")
    elif abort.http2_error is not None:
        yield error("not-supported", "http2Error", "aborting with an HTTP/2 error is not supported")
    elif abort.http_status is None:
        yield warning("missing-field", "", "an abort without a status has no effect")
    elif not 200 <= abort.http_status <= 599:
        yield error("bad-status", "httpStatus", f"{abort.http_status}: must be between 200 and 599")


def _validate_delay(delay: Delay) -> Problems:
    yield from _check_share(delay.percentage)
    yield from rules.check_percent("percent", delay.percent)
    yield from rules.check_duration("fixedDelay", delay.fixed_delay)
    if delay.exponential_delay is not None:
        yield error("not-supported", "exponentialDelay", "only fixedDelay is supported")


def _check_share(percentage: Percent | None) -> rules.Findings:
    """Return an error unless a percentage is 0, or between 0.0001, which is Envoy's smallest unit, and 100."""
    if percentage is None or percentage.value == 0 or 0.0001 <= percentage.value <= 100:
        return ()
    return (error("bad-percentage", "percentage.value", f"{percentage.value}: must be 0, or between 0.0001 and 100"),)
