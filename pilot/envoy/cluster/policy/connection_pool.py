"""Connection settings of a cluster: limits, timeouts, keepalive, lifetime and HTTP protocol.

https://istio.io/latest/docs/reference/config/networking/destination-rule/#ConnectionPoolSettings
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2
from envoy.config.core.v3 import address_pb2, extension_pb2, protocol_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import any_pb2, wrappers_pb2

from pilot.config.networking.destination_rule import ConnectionPoolSettings, HTTPSettings, RetryBudget, TcpKeepalive
from pilot.config.protocol import Protocol
from pilot.envoy.cluster.cluster_defaults import ClusterDefaults
from pilot.envoy.cluster.cluster_draft import ClusterDraft
from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey
from pilot.envoy.cluster.policy.effective_policy import EffectivePolicy
from pilot.envoy.newer_fields import BUDGET_INTERVAL
from pilot.envoy.well_known_types import build_duration
from pilot.mesh.model.proxy import NodeType

_EMPTY_HTTP = HTTPSettings()
PRESERVE_CASE = protocol_pb2.Http1ProtocolOptions(
    header_key_format=protocol_pb2.Http1ProtocolOptions.HeaderKeyFormat(
        stateful_formatter=extension_pb2.TypedExtensionConfig(
            name="preserve_case",
            typed_config=any_pb2.Any(
                type_url="type.googleapis.com/envoy.extensions.http.header_formatters.preserve_case.v3.PreserveCaseFormatterConfig"
            ),
        )
    )
)


def apply_protocol(draft: ClusterDraft, protocol: Protocol, traits: ClusterTraitsKey) -> None:
    """Set the HTTP protocol of the port. If it is unknown, a sidecar uses the protocol of the downstream connection.

    A router uses HTTP/1.1 for an unknown protocol. It always offers HTTP/2 to its clients, but the service may not
    support HTTP/2.
    """
    if protocol.is_http2:
        draft.use_http2()
        return
    unknown = protocol is Protocol.UNSUPPORTED
    if traits.preserve_case and (protocol.is_http or unknown):
        draft.options.explicit_http_config.http_protocol_options.CopyFrom(PRESERVE_CASE)
    if unknown and traits.type is not NodeType.ROUTER:
        draft.use_downstream_protocol()


def apply_h2_upgrade(
    draft: ClusterDraft, protocol: Protocol | None, pool: ConnectionPoolSettings | None, mesh_upgrade: bool
) -> None:
    """Use HTTP/2 if the rule requests it, or if the mesh config requests it and the port is known to be HTTP."""
    http = pool.http if pool is not None and pool.http is not None else _EMPTY_HTTP
    if http.use_client_protocol or http.h2_upgrade_policy == "DO_NOT_UPGRADE":
        return
    if http.h2_upgrade_policy == "UPGRADE" or (mesh_upgrade and (protocol is None or protocol.is_http)):
        draft.use_http2()


def apply_connection_pool(draft: ClusterDraft, policy: EffectivePolicy, defaults: ClusterDefaults) -> None:
    """Set the connection settings, except for the upgrade to HTTP/2."""
    pool = policy.connection_pool
    apply_circuit_breakers(draft.cluster, pool, policy.retry_budget, defaults.publish_remaining)
    tcp = pool.tcp if pool is not None else None
    timeout = tcp.connect_timeout if tcp is not None and tcp.connect_timeout is not None else defaults.connect_timeout
    draft.cluster.connect_timeout.CopyFrom(build_duration(timeout))
    apply_keepalive(
        draft,
        [
            layer
            for layer in (defaults.tcp_keepalive, tcp.tcp_keepalive if tcp is not None else None)
            if layer is not None
        ],
    )
    if pool is not None:
        _apply_lifetime(draft, pool)
        if pool.http is not None and pool.http.use_client_protocol:
            draft.use_downstream_protocol()


def apply_keepalive(draft: ClusterDraft, layers: Iterable[TcpKeepalive]) -> None:
    """Set TCP keepalive.

    Later layers take precedence. A layer without values enables keepalive with the operating system's values.
    """
    for layer in layers:
        keepalive = draft.cluster.upstream_connection_options.tcp_keepalive
        keepalive.SetInParent()
        if layer.probes:
            keepalive.keepalive_probes.value = layer.probes
        if layer.time is not None:
            keepalive.keepalive_time.CopyFrom(wrappers_pb2.UInt32Value(value=int(layer.time.seconds)))
        if layer.interval is not None:
            keepalive.keepalive_interval.CopyFrom(wrappers_pb2.UInt32Value(value=int(layer.interval.seconds)))


def _apply_lifetime(draft: ClusterDraft, pool: ConnectionPoolSettings) -> None:
    """Set the idle timeout, maximum duration and HTTP limits of connections, if the pool configures any of them."""
    http = pool.http or _EMPTY_HTTP
    tcp = pool.tcp
    idle = http.idle_timeout if http.idle_timeout is not None else (tcp.idle_timeout if tcp is not None else None)
    max_duration = tcp.max_connection_duration if tcp is not None else None
    requests, streams, keepalive = http.max_requests_per_connection, http.max_concurrent_streams, http.http2_keep_alive
    if idle is None and max_duration is None and requests <= 0 and streams <= 0 and keepalive is None:
        return
    common = draft.options.common_http_protocol_options
    common.SetInParent()
    if idle is not None:
        common.idle_timeout.CopyFrom(build_duration(idle))
    if requests > 0:
        common.max_requests_per_connection.value = requests
    if max_duration is not None:
        common.max_connection_duration.CopyFrom(build_duration(max_duration))
    if not draft.is_http2:
        return
    http2 = draft.options.explicit_http_config.http2_protocol_options
    if streams > 0:
        http2.max_concurrent_streams.value = streams
    if keepalive is not None:
        http2.connection_keepalive.SetInParent()
        if keepalive.interval is not None:
            http2.connection_keepalive.interval.CopyFrom(build_duration(keepalive.interval))
        if keepalive.timeout is not None:
            http2.connection_keepalive.timeout.CopyFrom(build_duration(keepalive.timeout))


def build_bind_config(addresses: tuple[str, ...]) -> address_pb2.BindConfig:
    """Return a bind configuration with these source addresses, one per IP family, and any source port."""
    first, *others = (address_pb2.SocketAddress(address=a, port_value=0) for a in addresses)
    return address_pb2.BindConfig(
        source_address=first, extra_source_addresses=[address_pb2.ExtraSourceAddress(address=a) for a in others]
    )


UNLIMITED = 2**32 - 1
RETRY_PERCENT, RETRY_CONCURRENCY = 20.0, 3


@lru_cache(maxsize=2)
def _unlimited(publish_remaining: bool) -> circuit_breaker_pb2.CircuitBreakers:
    """Return circuit breakers without effective limits.

    Envoy's default limits are too low for a mesh. Retries exceed them while pods are replaced.
    """
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
    """Set the circuit breakers from a connection pool and a retry budget. A limit of 0 is ignored.

    https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/cluster/v3/circuit_breaker.proto
    """
    cluster.circuit_breakers.CopyFrom(_unlimited(publish_remaining))
    if pool is None and budget is None:
        return
    thresholds = cluster.circuit_breakers.thresholds[0]
    if pool is not None and pool.http is not None:
        _set_limit(thresholds.max_requests, pool.http.http2_max_requests)
        _set_limit(thresholds.max_pending_requests, pool.http.http1_max_pending_requests)
        _set_limit(thresholds.max_retries, pool.http.max_retries)
    if pool is not None and pool.tcp is not None:
        _set_limit(thresholds.max_connections, pool.tcp.max_connections)
    if budget is not None:
        retry_budget = thresholds.retry_budget
        retry_budget.budget_percent.CopyFrom(
            percent_pb2.Percent(value=RETRY_PERCENT if budget.percent is None else budget.percent)
        )
        retry_budget.min_retry_concurrency.CopyFrom(
            wrappers_pb2.UInt32Value(value=budget.min_retry_concurrency or RETRY_CONCURRENCY)
        )
        if budget.budget_interval is not None:
            retry_budget.MergeFromString(BUDGET_INTERVAL.encode(build_duration(budget.budget_interval)))


def _set_limit(threshold: wrappers_pb2.UInt32Value, value: int) -> None:
    if value > 0:
        threshold.value = value
