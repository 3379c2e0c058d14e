"""Connections of a cluster: timeouts, keepalive, lifetime, and the HTTP protocol that they speak.

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
    """Sets the HTTP protocol that the port says; where it says none, a sidecar follows its client.

    A router does not follow its clients: it offers them HTTP/2 always, which the service may not speak.
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
    draft: ClusterDraft, protocol: Protocol | None, pool: ConnectionPoolSettings | None, mesh_upgrades: bool
) -> None:
    """Sets HTTP/2 where the rule asks for it, or where the mesh does and the port is known to be HTTP."""
    http = pool.http if pool is not None and pool.http is not None else _EMPTY_HTTP
    if http.use_client_protocol or http.h2_upgrade_policy == "DO_NOT_UPGRADE":
        return
    if http.h2_upgrade_policy == "UPGRADE" or (mesh_upgrades and (protocol is None or protocol.is_http)):
        draft.use_http2()


def apply_connection_pool(draft: ClusterDraft, policy: EffectivePolicy, defaults: ClusterDefaults) -> None:
    """Sets everything about connections but the choice of HTTP/2."""
    pool = policy.connection_pool
    apply_circuit_breakers(draft.cluster, pool, policy.retry_budget, defaults.publish_remaining)
    tcp = pool.tcp if pool is not None else None
    timeout = tcp.connect_timeout if tcp is not None and tcp.connect_timeout is not None else defaults.connect_timeout
    draft.cluster.connect_timeout.CopyFrom(build_duration(timeout))
    apply_keepalive(
        draft, [k for k in (defaults.tcp_keepalive, tcp.tcp_keepalive if tcp is not None else None) if k is not None]
    )
    if pool is not None:
        _apply_lifetime(draft, pool)
        if pool.http is not None and pool.http.use_client_protocol:
            draft.use_downstream_protocol()


def apply_keepalive(draft: ClusterDraft, layers: Iterable[TcpKeepalive]) -> None:
    """Sets TCP keepalive: a later layer's parts win; a layer without parts turns keepalive on with the system's values."""
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
    """Sets how long connections live and how much each carries, where the pool says anything about that."""
    http = pool.http or _EMPTY_HTTP
    tcp = pool.tcp
    idle = http.idle_timeout if http.idle_timeout is not None else (tcp.idle_timeout if tcp is not None else None)
    longest = tcp.max_connection_duration if tcp is not None else None
    requests, streams, keepalive = http.max_requests_per_connection, http.max_concurrent_streams, http.http2_keep_alive
    if idle is None and longest is None and requests <= 0 and streams <= 0 and keepalive is None:
        return
    common = draft.options.common_http_protocol_options
    common.SetInParent()
    if idle is not None:
        common.idle_timeout.CopyFrom(build_duration(idle))
    if requests > 0:
        common.max_requests_per_connection.value = requests
    if longest is not None:
        common.max_connection_duration.CopyFrom(build_duration(longest))
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
    """Returns the source addresses of connections: the first, and others for other IP families, each with any port."""
    first, *others = (address_pb2.SocketAddress(address=a, port_value=0) for a in addresses)
    return address_pb2.BindConfig(
        source_address=first, extra_source_addresses=[address_pb2.ExtraSourceAddress(address=a) for a in others]
    )


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


# DOC """How much traffic a cluster takes at once. https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/cluster/v3/circuit_breaker.proto"""
