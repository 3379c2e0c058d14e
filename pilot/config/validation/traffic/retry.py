"""Validation of retry policies."""

from __future__ import annotations

from http import HTTPStatus

from pilot.config.networking.virtual_service import HTTPRetry
from pilot.config.problem import Problems, error
from pilot.config.validation import rules
from pilot.lib.suggestion import did_you_mean

# https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/router_filter#x-envoy-retry-on
RETRY_ON = frozenset(
    {
        "5xx",
        "gateway-error",
        "reset",
        "reset-before-request",
        "connect-failure",
        "retriable-4xx",
        "refused-stream",
        "retriable-status-codes",
        "retriable-headers",
        "envoy-ratelimited",
        "http3-post-connect-failure",
        "cancelled",
        "deadline-exceeded",
        "internal",
        "resource-exhausted",
        "unavailable",
    }
)
_CODES = frozenset(str(int(status)) for status in HTTPStatus)


def validate_retry(retry: HTTPRetry) -> Problems:
    yield from rules.check_not_negative("attempts", retry.attempts)
    if retry.attempts == 0 and (
        retry.per_try_timeout is not None or retry.retry_on or retry.retry_remote_localities is not None
    ):
        yield error("retry-without-attempts", "attempts", "0 disables retries, but other retry settings are set")
    yield from rules.check_duration("perTryTimeout", retry.per_try_timeout)
    for condition in retry.retry_on.split(",") if retry.retry_on else ():
        if condition not in RETRY_ON and condition not in _CODES:
            yield error(
                "bad-retry-on",
                "retryOn",
                f"unknown retry condition {condition!r}{did_you_mean(condition, sorted(RETRY_ON))}",
            )
    yield from rules.check_duration("backoff", retry.backoff)
