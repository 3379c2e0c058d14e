"""How much traffic a cluster takes at once. https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/cluster/v3/circuit_breaker.proto"""

from __future__ import annotations

from functools import lru_cache

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.destination_rule import ConnectionPoolSettings, RetryBudget

UNLIMITED = 2**32 - 1
RETRY_PERCENT, RETRY_CONCURRENCY = 20.0, 3


@lru_cache(maxsize=2)
def _unlimited(publish_remaining: bool) -> circuit_breaker_pb2.CircuitBreakers:
    """Returns thresholds that nothing reaches. Envoy's own are too low for the mesh: while pods come and go, retries alone exceed them."""
    limit = wrappers_pb2.UInt32Value(value=UNLIMITED)
    thresholds = circuit_breaker_pb2.CircuitBreakers.Thresholds(
        max_connections=limit,
        max_pending_requests=limit,
        max_requests=limit,
        max_retries=limit,
        track_remaining=publish_remaining,
    )
    return circuit_breaker_pb2.CircuitBreakers(thresholds=[thresholds])


def apply_circuit_breakers(
    cluster: cluster_pb2.Cluster,
    pool: ConnectionPoolSettings | None,
    budget: RetryBudget | None = None,
    publish_remaining: bool = False,
) -> None:
    """Sets the limits that a policy names, and no others; a limit of 0 counts as not named.

    The `budgetInterval` of a retry budget has no effect: Envoy's API, as packaged (xds-protos 1.85), has no field for it.
    """
    cluster.circuit_breakers.CopyFrom(_unlimited(publish_remaining))
    if pool is None and budget is None:
        return
    thresholds = cluster.circuit_breakers.thresholds[0]
    if pool is not None and pool.http is not None:
        _limit(thresholds.max_requests, pool.http.http2_max_requests)
        _limit(thresholds.max_pending_requests, pool.http.http1_max_pending_requests)
        _limit(thresholds.max_retries, pool.http.max_retries)
    if pool is not None and pool.tcp is not None:
        _limit(thresholds.max_connections, pool.tcp.max_connections)
    if budget is not None:
        to = thresholds.retry_budget
        to.budget_percent.CopyFrom(
            percent_pb2.Percent(value=RETRY_PERCENT if budget.percent is None else budget.percent)
        )
        to.min_retry_concurrency.CopyFrom(
            wrappers_pb2.UInt32Value(value=budget.min_retry_concurrency or RETRY_CONCURRENCY)
        )


def _limit(threshold: wrappers_pb2.UInt32Value, said: int) -> None:
    if said > 0:
        threshold.value = said
