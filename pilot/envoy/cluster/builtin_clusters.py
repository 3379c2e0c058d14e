"""Builds the clusters that all proxies of a type have: the black hole, passthrough and credential server clusters."""

from __future__ import annotations

from collections.abc import Mapping

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2
from google.protobuf import duration_pb2

from pilot.config.networking.destination_rule import ClientTLSSettings
from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.cluster.cluster_builder import build_metadata_exchange_filter
from pilot.envoy.cluster.cluster_defaults import ClusterDefaults, cluster_defaults
from pilot.envoy.cluster.cluster_draft import ClusterDraft
from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey
from pilot.envoy.cluster.endpoint_discovery import build_dynamic_forward_proxy, lookup_family
from pilot.envoy.cluster.policy.cluster_sockets import TlsPeer, build_context
from pilot.envoy.cluster.policy.connection_pool import PRESERVE_CASE, apply_connection_pool, build_bind_config
from pilot.envoy.cluster.policy.effective_policy import NO_POLICY, EffectivePolicy
from pilot.envoy.cluster.stat_name import with_stat_delimiter
from pilot.envoy.http_filter.dynamic_forward_proxy import build_allow_any_dns_cache
from pilot.envoy.resource import Resource
from pilot.envoy.transport_socket.transport_sockets import build_upstream_tls
from pilot.envoy.well_known_types import build_duration
from pilot.lib.xds_types import CLUSTER
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config

_Cluster = cluster_pb2.Cluster
# iptables lets connections from these addresses reach the application instead of redirecting them to the proxy.
BIND_IPV4, BIND_IPV6 = "127.0.0.6", "::6"
IDLE_SECONDS = 300
CREDENTIAL_SOCKET = "./var/run/secrets/credential-uds/socket"


def build_black_hole(defaults: ClusterDefaults) -> cluster_pb2.Cluster:
    """Return a cluster without endpoints, for routes whose destination does not exist."""
    name = names.BLACK_HOLE_CLUSTER
    return _Cluster(
        name=name,
        type=_Cluster.STATIC,
        alt_stat_name=with_stat_delimiter(name),
        connect_timeout=build_duration(defaults.connect_timeout),
    )


def build_passthrough(traits: ClusterTraitsKey, defaults: ClusterDefaults) -> cluster_pb2.Cluster:
    """Return the cluster for connections to unknown services. It forwards them to their original destination."""
    draft = _draft_passthrough(names.PASSTHROUGH_CLUSTER, traits, defaults)
    if defaults.metadata_exchange and traits.metadata_exchange:
        draft.cluster.filters.add().CopyFrom(build_metadata_exchange_filter(defaults.metadata_exchange_labels))
    return draft.build()


def build_inbound_passthrough(traits: ClusterTraitsKey, defaults: ClusterDefaults) -> cluster_pb2.Cluster:
    """Return the cluster that forwards inbound connections on ports without a service to the application."""
    draft = _draft_passthrough(names.INBOUND_PASSTHROUGH_CLUSTER, traits, defaults)
    addresses = (BIND_IPV4, BIND_IPV6) if traits.ipv6 else (BIND_IPV4,)
    draft.cluster.upstream_bind_config.CopyFrom(build_bind_config(addresses if traits.ipv4 else (BIND_IPV6,)))
    return draft.build()


def _draft_passthrough(name: str, traits: ClusterTraitsKey, defaults: ClusterDefaults) -> ClusterDraft:
    cluster = _Cluster(name=name, type=_Cluster.ORIGINAL_DST, lb_policy=_Cluster.CLUSTER_PROVIDED)
    # Metrics report inbound and outbound passthrough under one name.
    cluster.alt_stat_name = with_stat_delimiter(names.PASSTHROUGH_CLUSTER)
    draft = ClusterDraft(cluster)
    _use_downstream_protocol(draft, traits)
    pool = defaults.traffic_policy.connection_pool if defaults.traffic_policy is not None else None
    # A separate draft, because the mesh's pool sets limits, timeouts and keepalive, but must not change the HTTP
    # options.
    apply_connection_pool(ClusterDraft(cluster), EffectivePolicy(connection_pool=pool), defaults)
    return draft


def _use_downstream_protocol(draft: ClusterDraft, traits: ClusterTraitsKey) -> None:
    """Use the protocol of the downstream connection, and close connections that are idle for `IDLE_SECONDS`."""
    if traits.preserve_case:
        draft.options.explicit_http_config.http_protocol_options.CopyFrom(PRESERVE_CASE)
    draft.use_downstream_protocol()
    draft.options.common_http_protocol_options.idle_timeout.CopyFrom(duration_pb2.Duration(seconds=IDLE_SECONDS))


def build_allow_any_dynamic(
    traits: ClusterTraitsKey, defaults: ClusterDefaults, tls: ClientTLSSettings | None, max_hosts: int, dns_proxy: str
) -> cluster_pb2.Cluster:
    """Return the cluster for the outbound traffic policy ALLOW_ANY_DYNAMIC_DNS.

    It resolves the hosts of requests to unknown services.
    """
    plaintext = tls is None or tls.mode == "DISABLE"
    family = lookup_family(traits.ipv4, traits.ipv6, defaults.dual_stack, defaults.ipv6_only_has_ipv4)
    draft = build_dynamic_forward_proxy(
        names.ALLOW_ANY_DYNAMIC_DNS_CLUSTER, build_allow_any_dns_cache(family, max_hosts, dns_proxy), insecure=plaintext
    )
    apply_connection_pool(draft, NO_POLICY, defaults)
    if tls is not None and not plaintext:
        context = build_context(draft, tls, TlsPeer(), traits, defaults)
        if context is not None:
            draft.cluster.transport_socket.CopyFrom(build_upstream_tls(context))
    # With TLS that takes its SNI from the request, the cluster speaks HTTP/1.1.
    if not draft.has_options:
        _use_downstream_protocol(draft, traits)
    if defaults.metadata_exchange and traits.metadata_exchange:
        draft.cluster.filters.add().CopyFrom(build_metadata_exchange_filter(defaults.metadata_exchange_labels))
    return draft.build()


def build_credential_server(defaults: ClusterDefaults) -> cluster_pb2.Cluster:
    """Return the cluster for the user's SDS server, which listens on a socket in the pod."""
    name = names.SDS_EXTERNAL_CLUSTER
    cluster = _Cluster(
        name=name,
        type=_Cluster.STATIC,
        alt_stat_name=with_stat_delimiter(name),
        connect_timeout=build_duration(defaults.connect_timeout),
    )
    cluster.load_assignment.cluster_name = name
    address = address_pb2.Address(pipe=address_pb2.Pipe(path=CREDENTIAL_SOCKET))
    member = endpoint_components_pb2.LbEndpoint(endpoint=endpoint_components_pb2.Endpoint(address=address))
    cluster.load_assignment.endpoints.add().lb_endpoints.append(member)
    draft = ClusterDraft(cluster)
    draft.use_http2()
    return draft.build()


def _by_name(*clusters: cluster_pb2.Cluster) -> Mapping[str, Resource]:
    return {c.name: Resource.of(CLUSTER, c) for c in clusters}


@derived
def sidecar_builtin_clusters(db: Mesh, traits: ClusterTraitsKey) -> Mapping[str, Resource]:
    """Return the clusters that every sidecar has on its outbound side."""
    defaults = cluster_defaults(db)
    return _by_name(build_black_hole(defaults), build_passthrough(traits, defaults))


@derived
def inbound_builtin_clusters(db: Mesh, traits: ClusterTraitsKey) -> Mapping[str, Resource]:
    """Return the clusters that every sidecar has on its inbound side."""
    return _by_name(build_inbound_passthrough(traits, cluster_defaults(db)))


@derived
def router_builtin_clusters(db: Mesh) -> Mapping[str, Resource]:
    """Return the clusters that every router has.

    There is no passthrough cluster, because connections to a router have no original destination.
    """
    return _by_name(build_black_hole(cluster_defaults(db)))


@derived
def dynamic_dns_clusters(db: Mesh, traits: ClusterTraitsKey, dns_proxy: str) -> Mapping[str, Resource]:
    """Return the additional cluster of sidecars with the outbound traffic policy ALLOW_ANY_DYNAMIC_DNS."""
    tls = mesh_config(db).outbound_traffic_policy.tls
    return _by_name(
        build_allow_any_dynamic(
            traits, cluster_defaults(db), tls, db.settings.clusters.dynamic_dns_max_hosts, dns_proxy
        )
    )


@derived
def credential_server_clusters(db: Mesh) -> Mapping[str, Resource]:
    """Return the additional cluster of proxies that use the user's own SDS server."""
    return _by_name(build_credential_server(cluster_defaults(db)))
