"""Holds what the listeners of a proxy are made by beside what they are for."""

from __future__ import annotations

import msgspec
from envoy.config.cluster.v3 import cluster_pb2

from pilot.derive import derived
from pilot.envoy.cluster.endpoint_discovery import lookup_family
from pilot.envoy.listener.access_logging import access_logs
from pilot.envoy.listener.defaults import listener_defaults
from pilot.envoy.listener.extension_filters import network_extensions
from pilot.envoy.listener.policy_filters import network_policy_filters, network_statistics_filters
from pilot.envoy.network_filter.tcp_filters import NetworkOptions
from pilot.lib.duration import Duration
from pilot.mesh.model.facets import ListeningFacet
from pilot.mesh.tables.database import Mesh


class ListenerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the listeners of a proxy have in common.

    `accepts`: how many connections a worker takes at once, 0 for all. `handshake_timeout`: nanoseconds, 0 for none.
    """

    network: NetworkOptions = NetworkOptions()
    exact_balance: bool = False
    detection_timeout: Duration = Duration(0)
    handshake_timeout: int = 0
    accepts: int = 1
    dual_stack: bool = False
    idle_timeout: Duration | None = None
    lookup_family: cluster_pb2.Cluster.DnsLookupFamily = cluster_pb2.Cluster.V4_ONLY


@derived
def listener_options(db: Mesh, listening: ListeningFacet) -> ListenerOptions:
    """Returns the options of all sides of proxies that listen alike."""
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
        accepts=settings.listeners.connections_per_event,
        dual_stack=settings.registry.dual_stack,
        idle_timeout=listening.idle_timeout,
        lookup_family=lookup_family(
            listening.ipv4, listening.ipv6, settings.registry.dual_stack, settings.listeners.ipv6_only_has_ipv4
        ),
    )
