"""Retry policies.

By default, a request that was certainly not processed is retried twice. Retries avoid hosts that were already tried,
unless a consistent hash selects the host.
https://istio.io/latest/docs/concepts/traffic-management/#retries
"""

from __future__ import annotations

import http

from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from envoy.extensions.retry.priority.previous_priorities.v3 import previous_priorities_config_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.virtual_service import HTTPRetry
from pilot.envoy.well_known_types import build_duration, pack

_Policy = route_components_pb2.RetryPolicy
ATTEMPTS = 2
OUTBOUND_CONDITIONS = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"
INBOUND_CONDITIONS = "reset-before-request"
STATUS_CODES = "retriable-status-codes"
HOST_SELECTION_ATTEMPTS = 5
_OTHER_HOSTS = _Policy.RetryHostPredicate(
    name="envoy.retry_host_predicates.previous_hosts", typed_config=pack(previous_hosts_pb2.PreviousHostsPredicate())
)
_OTHER_PRIORITIES = _Policy.RetryPriority(
    name="envoy.retry_priorities.previous_priorities",
    typed_config=pack(previous_priorities_config_pb2.PreviousPrioritiesConfig(update_frequency=2)),
)


def build_retry(policy: HTTPRetry | None, hashed: bool = False) -> route_components_pb2.RetryPolicy | None:
    """Return the retry policy of an outbound route, or None if the user disabled retries.

    `hashed` is set if a consistent hash selects the host. By default, the same host is then tried again.
    """
    if policy is None:
        return _HASHED_DEFAULT if hashed else _DEFAULT
    if policy.attempts <= 0:
        return None
    avoid_previous_hosts = (
        policy.retry_ignore_previous_hosts if policy.retry_ignore_previous_hosts is not None else not hashed
    )
    out = _Policy(
        num_retries=wrappers_pb2.UInt32Value(value=policy.attempts),
        retry_host_predicate=[_OTHER_HOSTS] if avoid_previous_hosts else [],
        host_selection_retry_max_attempts=HOST_SELECTION_ATTEMPTS,
        retry_priority=_OTHER_PRIORITIES if policy.retry_remote_localities else None,
    )
    _set_conditions(out, policy, OUTBOUND_CONDITIONS)
    if policy.per_try_timeout is not None:
        out.per_try_timeout.CopyFrom(build_duration(policy.per_try_timeout))
    return out


def build_inbound_retry(policy: HTTPRetry | None) -> route_components_pb2.RetryPolicy | None:
    """Return the retry policy of a route to the workload itself, or None if the user disabled retries.

    There is only one host. By default, a request is not retried if the host may have processed it.
    """
    if policy is None:
        return _INBOUND_DEFAULT
    if policy.attempts <= 0:
        return None
    out = _Policy(num_retries=wrappers_pb2.UInt32Value(value=policy.attempts))
    _set_conditions(out, policy, INBOUND_CONDITIONS)
    return out


def _set_conditions(out: route_components_pb2.RetryPolicy, policy: HTTPRetry, default: str) -> None:
    """Set the retry conditions, status codes and backoff. `retryOn` may contain both conditions and status codes."""
    out.retry_on = default
    if policy.retry_on:
        parts = [part for p in policy.retry_on.split(",") if (part := p.strip())]
        codes = [part for part in parts if _is_status(part)]
        conditions = ",".join(part for part in parts if not _is_status(part))
        out.retriable_status_codes.extend(map(int, codes))
        out.retry_on = f"{conditions},{STATUS_CODES}" if codes and STATUS_CODES not in conditions else conditions
    if policy.backoff is not None:
        out.retry_back_off.base_interval.CopyFrom(build_duration(policy.backoff))


def _is_status(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) in _STATUSES


_STATUSES = frozenset(http.HTTPStatus)


def _build_default(conditions: str, other_hosts: bool, max_attempts: int) -> route_components_pb2.RetryPolicy:
    return _Policy(
        num_retries=wrappers_pb2.UInt32Value(value=ATTEMPTS),
        retry_on=conditions,
        retry_host_predicate=[_OTHER_HOSTS] if other_hosts else [],
        host_selection_retry_max_attempts=max_attempts,
    )


_DEFAULT = _build_default(OUTBOUND_CONDITIONS, True, HOST_SELECTION_ATTEMPTS)
_HASHED_DEFAULT = _build_default(OUTBOUND_CONDITIONS, False, HOST_SELECTION_ATTEMPTS)
_INBOUND_DEFAULT = _build_default(INBOUND_CONDITIONS, False, 0)
