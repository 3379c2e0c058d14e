"""Static listeners in the bootstrap: one for the kubelet's readiness probes and one for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MANAGER = "envoy.filters.network.http_connection_manager"
_MANAGER_TYPE = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_PROXY_PROTOCOL_TYPE = "type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol"
_ROUTER_TYPE = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


def build_readiness_listener(host: str, port: int, proxy_protocol: bool = False) -> dict[str, Any]:
    """Return the listener that forwards /healthz/ready to the agent.

    A successful probe therefore also shows that Envoy serves requests. With `proxy_protocol`, connections may start
    with a PROXY protocol header. The header is optional, because the kubelet sends none.
    """
    listener = _build_listener(host, port, "agent", {"path": "/healthz/ready"}, "agent")
    if proxy_protocol:
        config = {"@type": _PROXY_PROTOCOL_TYPE, "allow_requests_without_proxy_protocol": True}
        listener["listener_filters"] = [{"name": "envoy.filters.listener.proxy_protocol", "typed_config": config}]
    return listener


def build_stats_listener(host: str, port: int) -> dict[str, Any]:
    """Return the listener that forwards /stats/prometheus to Envoy's admin port. It forwards no other path."""
    return _build_listener(host, port, "stats", {"prefix": "/stats/prometheus"}, "prometheus_stats")


def _build_listener(host: str, port: int, stat_prefix: str, match: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    routes = [
        {
            "match": dict(match),
            "route": {"cluster": cluster, "timeout": "0s" if cluster == "prometheus_stats" else "15s"},
        }
    ]
    manager = {
        "@type": _MANAGER_TYPE,
        "stat_prefix": stat_prefix,
        "route_config": {"virtual_hosts": [{"name": "backend", "domains": ["*"], "routes": routes}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": _ROUTER_TYPE}}],
    }
    return {
        "name": f"{host}_{port}",
        "address": {"socket_address": {"address": host, "port_value": port}},
        "ignore_global_conn_limit": True,  # keep probes and metrics working at the connection limit
        "bypass_overload_manager": True,
        "filter_chains": [{"filters": [{"name": _MANAGER, "typed_config": manager}]}],
    }
