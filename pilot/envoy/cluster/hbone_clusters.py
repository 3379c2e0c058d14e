"""Builds the clusters for HBONE tunnels. Some connect to internal listeners, others to the remote end of a tunnel.

https://istio.io/latest/docs/ambient/architecture/hbone/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2
from envoy.type.metadata.v3 import metadata_pb2
from google.protobuf import duration_pb2

from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.cluster.baggage import UPSTREAM_PEER
from pilot.envoy.cluster.builtin_clusters import IDLE_SECONDS, build_black_hole
from pilot.envoy.cluster.cluster_defaults import ClusterDefaults, cluster_defaults
from pilot.envoy.cluster.cluster_draft import ClusterDraft
from pilot.envoy.cluster.policy.connection_pool import apply_circuit_breakers
from pilot.envoy.cluster.stat_name import with_stat_delimiter
from pilot.envoy.resource import Resource
from pilot.envoy.transport_socket.hbone_sockets import (
    ORIGINAL_DST,
    TLS_INSIDE,
    build_internal_upstream,
    build_tunnel_client,
    build_tunnel_context,
)
from pilot.envoy.well_known_types import build_duration
from pilot.lib.duration import Duration
from pilot.lib.spiffe import PREFIX
from pilot.lib.xds_types import CLUSTER
from pilot.mesh.model.ambient_features import exchanges_baggage
from pilot.mesh.registry.networks import HBONE_PORT
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config
from pilot.mesh.tables.trust import trust_domains

_Cluster = cluster_pb2.Cluster
WAYPOINT = "waypoint"  # endpoint metadata: address of the waypoint where the tunnel ends, or none for the destination
_HOUR = Duration.of(3600)
_CLEANUP = duration_pb2.Duration(seconds=60)


def build_internal_listener_cluster(name: str, listener: str, socket: base_pb2.TransportSocket) -> ClusterDraft:
    """Return a cluster that connects to an internal listener."""
    cluster = _Cluster(
        name=name, type=_Cluster.STATIC, alt_stat_name=with_stat_delimiter(name), transport_socket=socket
    )
    apply_circuit_breakers(cluster, None)
    endpoint = endpoint_components_pb2.LbEndpoint()
    endpoint.endpoint.address.envoy_internal_address.server_listener_name = listener
    cluster.load_assignment.cluster_name = name
    cluster.load_assignment.endpoints.add().lb_endpoints.append(endpoint)
    return ClusterDraft(cluster)


def build_decapsulation_cluster(name: str, listener: str) -> cluster_pb2.Cluster:
    """Return a cluster that connects to an internal listener and uses the protocol of the downstream connection."""
    draft = build_internal_listener_cluster(name, listener, build_internal_upstream())
    draft.use_downstream_protocol()
    draft.options.common_http_protocol_options.idle_timeout.CopyFrom(duration_pb2.Duration(seconds=IDLE_SECONDS))
    return draft.build()


def build_origination_cluster(
    name: str, socket: base_pb2.TransportSocket, defaults: ClusterDefaults, to_waypoints: bool, pooled: bool = True
) -> cluster_pb2.Cluster:
    """Return the cluster that connects to the remote end of tunnels.

    If `to_waypoints` is set, the metadata of an endpoint may name a waypoint as the remote end.
    """
    cluster = _Cluster(
        name=name,
        type=_Cluster.ORIGINAL_DST,
        lb_policy=_Cluster.CLUSTER_PROVIDED,
        alt_stat_name=with_stat_delimiter(name),
    )
    cluster.connect_timeout.CopyFrom(build_duration(defaults.connect_timeout))
    cluster.cleanup_interval.CopyFrom(_CLEANUP)
    cluster.original_dst_lb_config.upstream_port_override.value = HBONE_PORT
    if to_waypoints:
        _allow_waypoints(cluster)
    cluster.transport_socket.CopyFrom(socket)
    apply_circuit_breakers(cluster, None)
    return finish_connect_cluster(ClusterDraft(cluster), defaults, pooled)


def finish_connect_cluster(draft: ClusterDraft, defaults: ClusterDefaults, pooled: bool) -> cluster_pb2.Cluster:
    """Return the finished cluster, which requests tunnels by HTTP/2 CONNECT.

    If `pooled` is not set, each tunnel has its own connection. This is required for double HBONE, because the inner
    tunnel cannot be shared.
    """
    common = draft.options.common_http_protocol_options
    common.idle_timeout.CopyFrom(
        build_duration(_HOUR if defaults.hbone_idle_timeout is None else defaults.hbone_idle_timeout)
    )
    if not pooled:
        common.max_requests_per_connection.value = 1
    http2 = draft.options.explicit_http_config.http2_protocol_options
    http2.allow_connect = True
    if defaults.hbone_stream_window:
        http2.initial_stream_window_size.value = defaults.hbone_stream_window
    if defaults.hbone_connection_window:
        http2.initial_connection_window_size.value = defaults.hbone_connection_window
    return draft.build()


def build_forwarding_cluster(defaults: ClusterDefaults) -> cluster_pb2.Cluster:
    """Return the cluster through which an east-west gateway forwards a tunnel unchanged to its workload or waypoint."""
    name = names.FORWARD_INNER_CONNECT
    cluster = _Cluster(
        name=name,
        type=_Cluster.ORIGINAL_DST,
        lb_policy=_Cluster.CLUSTER_PROVIDED,
        alt_stat_name=with_stat_delimiter(name),
    )
    cluster.connect_timeout.CopyFrom(build_duration(defaults.connect_timeout))
    cluster.cleanup_interval.CopyFrom(_CLEANUP)
    _allow_waypoints(cluster)
    apply_circuit_breakers(cluster, None)
    return cluster


def _allow_waypoints(cluster: cluster_pb2.Cluster) -> None:
    """Allow the metadata of an endpoint to name a waypoint as the remote end of the tunnel."""
    segment = metadata_pb2.MetadataKey.PathSegment(key=WAYPOINT)
    cluster.original_dst_lb_config.upstream_port_override.value = HBONE_PORT
    cluster.original_dst_lb_config.metadata_key.CopyFrom(metadata_pb2.MetadataKey(key=ORIGINAL_DST, path=[segment]))


def _by_name(clusters: Iterable[cluster_pb2.Cluster]) -> Mapping[str, Resource]:
    return {c.name: Resource.of(CLUSTER, c) for c in clusters}


def _tunnel_client(db: Mesh, prefixes: tuple[str, ...] = ()) -> base_pb2.TransportSocket:
    return build_tunnel_client(build_tunnel_context(trust_domains(db), db.settings.tls.compliance_policy, prefixes))


@derived
def originating_clusters(db: Mesh) -> Mapping[str, Resource]:
    """Return the additional cluster of sidecars and gateways that originate HBONE tunnels."""
    return _by_name(
        (
            build_origination_cluster(
                names.CONNECT_ORIGINATE, _tunnel_client(db), cluster_defaults(db), to_waypoints=True
            ),
        )
    )


@derived
def terminating_clusters(db: Mesh) -> Mapping[str, Resource]:
    """Return the additional cluster of proxies that accept HBONE."""
    return _by_name((build_decapsulation_cluster(names.MAIN_INTERNAL, names.MAIN_INTERNAL),))


@derived
def waypoint_builtin_clusters(db: Mesh, namespace: str, tunnel_metadata: bool) -> Mapping[str, Resource]:
    """Return the clusters that every waypoint in a namespace has.

    Upstream peers may have any identity in the waypoint's namespace. `tunnel_metadata` is as in `FeaturesFacet`.
    """
    exchanges = exchanges_baggage(db.settings.ambient) and tunnel_metadata
    skip_trust_domain = db.settings.tls.skip_validate_trust_domain
    prefixes = () if skip_trust_domain else (f"{PREFIX}{mesh_config(db).trust_domain}/ns/{namespace}/sa/",)
    return _by_name(
        (
            build_decapsulation_cluster(names.MAIN_INTERNAL, names.MAIN_INTERNAL),
            _encapsulation_cluster(exchanges),
            build_origination_cluster(
                names.CONNECT_ORIGINATE, _tunnel_client(db, prefixes), cluster_defaults(db), to_waypoints=True
            ),
        )
    )


def _encapsulation_cluster(exchanges: bool) -> cluster_pb2.Cluster:
    """Return the cluster through which a waypoint opens tunnels. With `exchanges`, it receives their baggage."""
    cluster = build_decapsulation_cluster(names.ENCAP_CLUSTER, names.CONNECT_ORIGINATE)
    if exchanges:
        cluster.filters.append(UPSTREAM_PEER)
    return cluster


@derived
def forwarding_clusters(db: Mesh) -> Mapping[str, Resource]:
    """Return the clusters that every east-west gateway has."""
    defaults = cluster_defaults(db)
    return _by_name(
        (
            build_decapsulation_cluster(names.MAIN_INTERNAL, names.MAIN_INTERNAL),
            build_internal_listener_cluster(
                names.ENCAP_CLUSTER, names.FORWARD_INNER_CONNECT, build_internal_upstream()
            ).build(),
            build_forwarding_cluster(defaults),
            build_black_hole(defaults),
        )
    )


@derived
def double_hbone_clusters(db: Mesh) -> Mapping[str, Resource]:
    """Return the clusters for double HBONE: a tunnel inside a tunnel, through which clients reach other networks.

    The inner tunnel ends at the workload or its waypoint. The outer tunnel ends at the gateway of the network.
    """
    defaults, socket = cluster_defaults(db), _tunnel_client(db)
    inner = build_internal_listener_cluster(
        names.INNER_CONNECT_ORIGINATE, names.OUTER_CONNECT_ORIGINATE, build_internal_upstream(socket, name=TLS_INSIDE)
    )
    return _by_name(
        (
            finish_connect_cluster(inner, defaults, pooled=False),
            build_origination_cluster(
                names.OUTER_CONNECT_ORIGINATE, socket, defaults, to_waypoints=False, pooled=False
            ),
        )
    )
