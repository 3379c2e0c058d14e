"""The terminal filter of a TCP filter chain. It forwards connections to one cluster or to several weighted clusters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from envoy.type.v3 import hash_policy_pb2

from pilot.config.networking.destination_rule import DestinationRule
from pilot.envoy.well_known_types import build_duration, pack
from pilot.lib.duration import Duration

NAME = "envoy.filters.network.tcp_proxy"
SOURCE_IP = hash_policy_pb2.HashPolicy(source_ip=hash_policy_pb2.HashPolicy.SourceIp())


class ProxyTunnel(NamedTuple):
    """A tunnel to `target` ("host:port") through a forward proxy. The cluster is the forward proxy.

    The tunnel is requested by CONNECT or POST, with additional headers. If `keeps_response` is set, the filter state
    has the headers of the response.
    """

    target: str
    post: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    keeps_response: bool = False


class TcpSettings(NamedTuple):
    """The settings of a TCP proxy that come from a DestinationRule."""

    idle_timeout: Duration | None = None
    max_duration: Duration | None = None
    by_source_ip: bool = False
    tunnel: ProxyTunnel | None = None


DEFAULT_SETTINGS = TcpSettings()


class TcpRoute(NamedTuple):
    """The destination of a TCP proxy: the clusters and their weights. A single cluster needs no weight."""

    stat_prefix: str
    clusters: tuple[tuple[str, int], ...]
    weighted: bool = False
    settings: TcpSettings = DEFAULT_SETTINGS


def single_cluster_route(cluster: str, settings: TcpSettings = DEFAULT_SETTINGS) -> TcpRoute:
    """Return the route to one cluster. The cluster's name is also the statistics prefix."""
    return TcpRoute(cluster, ((cluster, 0),), settings=settings)


def tcp_settings(rule: DestinationRule | None, subset: str, default_idle_timeout: Duration | None) -> TcpSettings:
    """Return the settings from the DestinationRule of the destination, or of the first of several destinations.

    Connection pool settings apply to the whole rule. Hashing and tunnel settings may come from a subset.
    """
    if rule is None:
        return DEFAULT_SETTINGS if default_idle_timeout is None else TcpSettings(idle_timeout=default_idle_timeout)
    policy = rule.traffic_policy
    pool = policy.connection_pool.tcp if policy is not None and policy.connection_pool is not None else None
    subset_rule = next((s for s in rule.subsets if s.name == subset), None)
    override = subset_rule.traffic_policy if subset_rule is not None else None
    balancer = (
        override.load_balancer
        if override is not None and override.load_balancer is not None
        else policy.load_balancer
        if policy is not None
        else None
    )
    consistent_hash = balancer.consistent_hash if balancer is not None else None
    tunnel_policy = override if subset else policy
    tunnel = tunnel_policy.tunnel if tunnel_policy is not None else None
    idle_timeout = pool.idle_timeout if pool is not None and pool.idle_timeout is not None else default_idle_timeout
    return TcpSettings(
        idle_timeout=idle_timeout,
        max_duration=pool.max_connection_duration if pool is not None else None,
        by_source_ip=bool(consistent_hash is not None and consistent_hash.use_source_ip),
        tunnel=ProxyTunnel(_join(tunnel.target_host, tunnel.target_port), tunnel.protocol == "POST")
        if tunnel is not None
        else None,
    )


def build_tcp_proxy(
    route: TcpRoute, access_logs: Iterable[accesslog_pb2.AccessLog] = ()
) -> listener_components_pb2.Filter:
    """Return the TCP proxy filter for a route."""
    proxy = tcp_proxy_pb2.TcpProxy(stat_prefix=route.stat_prefix, access_log=access_logs)
    if route.weighted:
        proxy.weighted_clusters.clusters.extend(
            [
                tcp_proxy_pb2.TcpProxy.WeightedCluster.ClusterWeight(name=name, weight=weight)
                for name, weight in route.clusters
            ]
        )
    else:
        proxy.cluster = route.clusters[0][0]
    settings = route.settings
    if settings is not DEFAULT_SETTINGS:
        if settings.idle_timeout is not None:
            proxy.idle_timeout.CopyFrom(build_duration(settings.idle_timeout))
        if settings.max_duration is not None:
            proxy.max_downstream_connection_duration.CopyFrom(build_duration(settings.max_duration))
        if settings.by_source_ip:
            proxy.hash_policy.append(SOURCE_IP)
        if settings.tunnel is not None:
            proxy.tunneling_config.hostname = settings.tunnel.target
            proxy.tunneling_config.use_post = settings.tunnel.post
            proxy.tunneling_config.propagate_response_headers = settings.tunnel.keeps_response
            for key, value in settings.tunnel.headers:
                header = proxy.tunneling_config.headers_to_add.add(
                    append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
                )
                header.header.key, header.header.value = key, value
    return listener_components_pb2.Filter(name=NAME, typed_config=pack(proxy))


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
