"""Decides which network filters a chain of TCP has, in their order, for sidecars and gateways, inbound and outbound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from envoy.config.listener.v3 import listener_components_pb2

from pilot.config.protocol import Protocol
from pilot.envoy.access_log.build import AccessLogs, build_tcp_access_logs
from pilot.envoy.filter_phase import Phase, in_order
from pilot.envoy.network_filter.simple_network_filters import (
    build_metadata_exchange,
    build_mongo_proxy,
    build_mysql_proxy,
    build_redis_proxy,
)
from pilot.envoy.network_filter.tcp_proxy import TcpRoute, build_tcp_proxy

PhasedFilter = tuple[Phase, listener_components_pb2.Filter]


class NetworkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Says what the network filters of a proxy depend on.

    `mongo`, `redis`, `mysql`: filters that the settings ask for and the proxy has. `exchange`: the proxy exchanges metadata with the
    peers that connect to it; `exchanged_labels`: more labels of workloads to exchange. `authorization`: filters that say who may connect;
    `statistics`: filters that count connections; `extensions`: of the user's, by port, those of 0 for all ports that are not there.
    """

    access_logs: AccessLogs = AccessLogs()
    mongo: bool = True
    redis: bool = False
    mysql: bool = False
    exchange: bool = False
    exchanged_labels: tuple[str, ...] = ()
    authorization: tuple[PhasedFilter, ...] = ()
    statistics: tuple[PhasedFilter, ...] = ()
    extensions: Mapping[int, tuple[PhasedFilter, ...]] = {}

    def extensions_at(self, port: int | None) -> tuple[PhasedFilter, ...]:
        """Returns the extensions at a port; none where it is None."""
        return () if port is None else self.extensions.get(port, self.extensions.get(0, ()))


def build_first_filters(
    options: NetworkOptions, port: int, inbound: bool = False
) -> list[listener_components_pb2.Filter]:
    """Returns what stands before an HTTP connection manager at a port, 0 for ports that nothing names. `inbound`: peers of the mesh connect to
    the chain."""
    return in_order((*_exchange(options, inbound), *options.extensions_at(port)))


def build_tcp_filters(
    route: TcpRoute,
    protocol: Protocol,
    options: NetworkOptions,
    port: int | None = None,
    *,
    inbound: bool = False,
    logged: bool = True,
    guarded: bool = False,
    resolving: tuple[listener_components_pb2.Filter, ...] = (),
) -> list[listener_components_pb2.Filter]:
    """Returns the filters of a chain of TCP.

    `port`: for which extensions are looked up, 0 for ports that nothing names, None for a chain that has none. `inbound`: peers of the mesh
    connect to it; `logged`: its connections are; `guarded`: policies say who may connect; `resolving`: look up the host to send to.
    """
    ours = (*(options.authorization if guarded else ()), *options.statistics)
    added = (*options.extensions_at(port), *((Phase.RESOLUTION, f) for f in resolving))
    return in_order((*_exchange(options, inbound), *ours, *added, *_route_filters(route, protocol, options, logged)))


def _exchange(options: NetworkOptions, inbound: bool) -> Iterator[PhasedFilter]:
    if inbound and options.exchange:
        yield Phase.PEER_METADATA, build_metadata_exchange(options.exchanged_labels)


def _route_filters(
    route: TcpRoute, protocol: Protocol, options: NetworkOptions, logged: bool
) -> Iterator[PhasedFilter]:
    """Yields what sends connections on, behind what looks into the protocol."""
    if protocol is Protocol.REDIS and options.redis:
        yield Phase.END, build_redis_proxy(route.stat_prefix, route.clusters[0][0])
        return
    if protocol is Protocol.MONGO and options.mongo:
        yield Phase.PROTOCOL, build_mongo_proxy(route.stat_prefix)
    elif protocol is Protocol.MYSQL and options.mysql:
        yield Phase.PROTOCOL, build_mysql_proxy(route.stat_prefix)
    yield Phase.END, build_tcp_proxy(route, build_tcp_access_logs(options.access_logs) if logged else ())
