"""Settings that are shared by all listeners of a mesh or of a class of proxies."""

from __future__ import annotations

import ipaddress

import msgspec
from envoy.config.cluster.v3 import cluster_pb2

from pilot.derive import derived, hub
from pilot.envoy.cluster.endpoint_discovery import lookup_family
from pilot.envoy.listener.access_logging import access_logs
from pilot.envoy.listener.extension_filters import network_extensions
from pilot.envoy.listener.policy_filters import network_policy_filters, network_statistics_filters
from pilot.envoy.network_filter.tcp_filters import NetworkOptions
from pilot.lib.duration import Duration
from pilot.mesh.model.facets import ListeningFacet
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config, mesh_networks


class ListenerDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the mesh config that affects listeners. Changes to other parts do not affect listeners."""

    outbound_port: int
    inbound_port: int
    http_proxy_port: int
    detection_timeout: Duration
    normalization: str
    inbound_stat_name: str = ""
    outbound_stat_name: str = ""


@hub
def listener_defaults(db: Mesh) -> ListenerDefaults:
    """Return the part of the mesh config that affects listeners."""
    mesh = mesh_config(db)
    return ListenerDefaults(
        outbound_port=mesh.proxy_listen_port,
        inbound_port=mesh.proxy_inbound_listen_port,
        http_proxy_port=mesh.proxy_http_port,
        detection_timeout=mesh.protocol_detection_timeout,
        normalization=mesh.path_normalization.normalization if mesh.path_normalization is not None else "DEFAULT",
        inbound_stat_name=mesh.inbound_cluster_stat_name,
        outbound_stat_name=mesh.outbound_cluster_stat_name,
    )


@hub
def internal_networks(db: Mesh) -> tuple[str, ...]:
    """Return the address ranges of the mesh networks, sorted."""
    ranges = set()
    for network in mesh_networks(db).networks.values():
        for endpoints in network.endpoints:
            try:
                ranges.add(ipaddress.ip_interface(endpoints.from_cidr or ""))
            except ValueError:
                continue
    return tuple(i.with_prefixlen for i in sorted(ranges, key=lambda i: (i.version, i.ip.packed, i.network.prefixlen)))


class ListenerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that the listeners of a proxy share.

    `max_accepts` limits the connections that a worker accepts at once, and 0 means no limit. `handshake_timeout` is in
    nanoseconds, and 0 disables it.
    """

    network: NetworkOptions = NetworkOptions()
    exact_balance: bool = False
    detection_timeout: Duration = Duration(0)
    handshake_timeout: int = 0
    max_accepts: int = 1
    dual_stack: bool = False
    idle_timeout: Duration | None = None
    lookup_family: cluster_pb2.Cluster.DnsLookupFamily = cluster_pb2.Cluster.V4_ONLY


@derived
def listener_options(db: Mesh, listening: ListeningFacet) -> ListenerOptions:
    """Return the options for all proxies with an equal facet."""
    settings, mesh, features = db.settings, listener_defaults(db), listening.features
    network = NetworkOptions(
        access_logs=access_logs(db, listening),
        mongo=settings.listeners.mongo_filter,
        redis=settings.listeners.redis_filter,
        mysql=settings.listeners.mysql_filter and features.mysql_proxy,
        exchange=settings.telemetry.metadata_exchange and features.metadata_exchange,
        exchanged_labels=settings.telemetry.metadata_exchange_labels,
        authorization=tuple(network_policy_filters(db, listening)),
        extensions=network_extensions(db, listening),
        statistics=tuple(network_statistics_filters(db, listening)),
    )
    return ListenerOptions(
        network=network,
        exact_balance=listening.exact_balance,
        detection_timeout=mesh.detection_timeout,
        handshake_timeout=settings.gateways.handshake_timeout,
        max_accepts=settings.listeners.connections_per_event,
        dual_stack=settings.registry.dual_stack,
        idle_timeout=listening.idle_timeout,
        lookup_family=lookup_family(
            listening.ipv4, listening.ipv6, settings.registry.dual_stack, settings.listeners.ipv6_only_has_ipv4
        ),
    )
