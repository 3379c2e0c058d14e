"""Decides which network filters a chain of TCP has, in their order, for sidecars and gateways, inbound and outbound."""
from __future__ import annotations

from collections.abc import Iterator

import msgspec
from envoy.config.listener.v3 import listener_components_pb2

from pilot.model.service import Protocol
from pilot.translate.access_log import AccessLogs, build_tcp_access_logs
from pilot.translate.filter_phase import Phase, in_order
from pilot.translate.network_filter.metadata_exchange import build_metadata_exchange
from pilot.translate.network_filter.mongo_proxy import build_mongo_proxy
from pilot.translate.network_filter.mysql_proxy import build_mysql_proxy
from pilot.translate.network_filter.redis_proxy import build_redis_proxy
from pilot.translate.network_filter.tcp_proxy import TcpRoute, build_tcp_proxy

PhasedFilter = tuple[Phase, listener_components_pb2.Filter]


class NetworkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Says what the network filters of a proxy depend on.

    `mongo`, `redis`, `mysql`: filters that the settings ask for and the proxy has. `exchange`: the proxy exchanges metadata with the
    peers that connect to it; `exchanged_labels`: more labels of workloads to exchange. `authorization`: filters that say who may connect.
    """

    access_logs: AccessLogs = AccessLogs()
    mongo: bool = True
    redis: bool = False
    mysql: bool = False
    exchange: bool = False
    exchanged_labels: tuple[str, ...] = ()
    authorization: tuple[PhasedFilter, ...] = ()


def build_first_filters(options: NetworkOptions, inbound: bool) -> list[listener_components_pb2.Filter]:
    """Returns what stands before an HTTP connection manager. `inbound`: peers of the mesh connect to the chain."""
    return in_order(_exchange(options, inbound))


def build_tcp_filters(
    route: TcpRoute, protocol: Protocol, options: NetworkOptions, inbound: bool = False, logged: bool = True, guarded: bool = False
) -> list[listener_components_pb2.Filter]:
    """Returns the filters of a chain of TCP. `inbound`: peers of the mesh connect to it; `logged`: its connections are; `guarded`: policies say
    who may connect."""
    authorization = options.authorization if guarded else ()
    return in_order((*_exchange(options, inbound), *authorization, *_route_filters(route, protocol, options, logged)))


def _exchange(options: NetworkOptions, inbound: bool) -> Iterator[PhasedFilter]:
    if inbound and options.exchange:
        yield Phase.PEER_METADATA, build_metadata_exchange(options.exchanged_labels)


def _route_filters(route: TcpRoute, protocol: Protocol, options: NetworkOptions, logged: bool) -> Iterator[PhasedFilter]:
    """Yields what sends connections on, behind what looks into the protocol."""
    if protocol is Protocol.REDIS and options.redis:
        yield Phase.END, build_redis_proxy(route.stat_prefix, route.clusters[0][0])
        return
    if protocol is Protocol.MONGO and options.mongo:
        yield Phase.PROTOCOL, build_mongo_proxy(route.stat_prefix)
    elif protocol is Protocol.MYSQL and options.mysql:
        yield Phase.PROTOCOL, build_mysql_proxy(route.stat_prefix)
    yield Phase.END, build_tcp_proxy(route, build_tcp_access_logs(options.access_logs) if logged else ())
