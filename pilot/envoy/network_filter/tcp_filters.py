"""Selects and orders the network filters of a TCP filter chain, for all types of proxies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from envoy.config.listener.v3 import listener_components_pb2

from pilot.config.protocol import Protocol
from pilot.envoy.access_log.access_logs import AccessLogs, build_tcp_access_logs
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
    """The settings that determine the network filters of a proxy.

    `mongo`, `redis` and `mysql` are set if the settings enable these filters and the proxy supports them. `exchange`
    enables metadata exchange with the peers that connect. `exchanged_labels` are additional workload labels to
    exchange. `authorization` contains the filters that decide who may connect. `statistics` contains the filters that
    count connections. `extensions` maps ports to users' filters. The filters of port 0 apply to every port without an
    entry.
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
        """Return users' filters for a port. Return an empty tuple if `port` is None."""
        return () if port is None else self.extensions.get(port, self.extensions.get(0, ()))


def build_first_filters(
    options: NetworkOptions, port: int, inbound: bool = False
) -> list[listener_components_pb2.Filter]:
    """Return the filters that precede an HTTP connection manager.

    `port` selects users' extensions. It is 0 for ports that no service or Sidecar declares. `inbound` is set for chains
    to which mesh peers connect.
    """
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
    """Return the filters of a TCP filter chain.

    `port` selects users' extensions. It is 0 for ports that no service or Sidecar declares, and None for chains without
    extensions. `inbound` is set for chains to which mesh peers connect. `logged` enables access logs. `guarded` adds
    the authorization filters. `resolving` are filters that resolve the destination host.
    """
    policies = (*(options.authorization if guarded else ()), *options.statistics)
    added = (*options.extensions_at(port), *((Phase.RESOLUTION, f) for f in resolving))
    return in_order(
        (*_exchange(options, inbound), *policies, *added, *_route_filters(route, protocol, options, logged))
    )


def _exchange(options: NetworkOptions, inbound: bool) -> Iterator[PhasedFilter]:
    if inbound and options.exchange:
        yield Phase.PEER_METADATA, build_metadata_exchange(options.exchanged_labels)


def _route_filters(
    route: TcpRoute, protocol: Protocol, options: NetworkOptions, logged: bool
) -> Iterator[PhasedFilter]:
    """Yield the filters that parse the protocol, and then the filter that forwards connections."""
    if protocol is Protocol.REDIS and options.redis:
        yield Phase.TERMINAL, build_redis_proxy(route.stat_prefix, route.clusters[0][0])
        return
    if protocol is Protocol.MONGO and options.mongo:
        yield Phase.PROTOCOL, build_mongo_proxy(route.stat_prefix)
    elif protocol is Protocol.MYSQL and options.mysql:
        yield Phase.PROTOCOL, build_mysql_proxy(route.stat_prefix)
    yield Phase.TERMINAL, build_tcp_proxy(route, build_tcp_access_logs(options.access_logs) if logged else ())
