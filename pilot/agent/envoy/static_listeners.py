"""Static listeners in the bootstrap: one for the kubelet's readiness probes, and those for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_EXTENSIONS = "type.googleapis.com/envoy.extensions"
_MANAGER = "envoy.filters.network.http_connection_manager"
_MANAGER_TYPE = f"{_EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager"
_PROXY_PROTOCOL_TYPE = f"{_EXTENSIONS}.filters.listener.proxy_protocol.v3.ProxyProtocol"
_ROUTER_TYPE = f"{_EXTENSIONS}.filters.http.router.v3.Router"
_COMPRESSOR_TYPE = f"{_EXTENSIONS}.filters.http.compressor.v3.Compressor"
_TLS_TYPE = f"{_EXTENSIONS}.transport_sockets.tls.v3.DownstreamTlsContext"
# The first one that the scraper accepts compresses the page.
_ALGORITHMS = ("Brotli", "Zstd", "Gzip")
_STATS_PATH = {"prefix": "/stats/prometheus"}


def build_readiness_listener(host: str, port: int, proxy_protocol: bool = False) -> dict[str, Any]:
    """Return the listener that forwards /healthz/ready to the agent.

    A successful probe therefore also shows that Envoy serves requests. With `proxy_protocol`, connections may start
    with a PROXY protocol header. The header is optional, because the kubelet sends none.
    """
    listener = _build_listener(host, port, "agent", [_route({"path": "/healthz/ready"}, "agent")])
    if proxy_protocol:
        config = {"@type": _PROXY_PROTOCOL_TYPE, "allow_requests_without_proxy_protocol": True}
        listener["listener_filters"] = [{"name": "envoy.filters.listener.proxy_protocol", "typed_config": config}]
    return listener


def build_stats_listener(host: str, port: int, compresses: bool) -> dict[str, Any]:
    """Return the listener that forwards /stats/prometheus to Envoy's admin port. It forwards no other path."""
    compressors = [_build_compressor(algorithm) for algorithm in _ALGORITHMS] if compresses else []
    return _build_listener(host, port, "stats", [_route(_STATS_PATH, "prometheus_stats")], compressors)


def build_secure_stats_listener(host: str, port: int) -> dict[str, Any]:
    """Return the listener for Envoy's metrics that requires a client certificate of the mesh."""
    return _require_mtls(_build_listener(host, port, "secure_stats", [_route(_STATS_PATH, "prometheus_stats")]))


def build_secure_merged_listener(host: str, port: int) -> dict[str, Any]:
    """Return the listener for the agent's merged metrics that requires a client certificate of the mesh."""
    routes = [_route(_STATS_PATH, "agent"), _route({"prefix": "/metrics"}, "agent")]
    return _require_mtls(_build_listener(host, port, "secure_merged_stats", routes))


def _route(match: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    return {
        "match": dict(match),
        "route": {"cluster": cluster, "timeout": "0s" if cluster == "prometheus_stats" else "15s"},
    }


def _build_listener(
    host: str, port: int, stat_prefix: str, routes: Sequence[dict[str, Any]], filters: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    manager = {
        "@type": _MANAGER_TYPE,
        "stat_prefix": stat_prefix,
        "route_config": {"virtual_hosts": [{"name": "backend", "domains": ["*"], "routes": list(routes)}]},
        "http_filters": [*filters, {"name": "envoy.filters.http.router", "typed_config": {"@type": _ROUTER_TYPE}}],
    }
    return {
        "name": f"{host}_{port}",
        "address": {"socket_address": {"address": host, "port_value": port}},
        "ignore_global_conn_limit": True,  # keep probes and metrics working at the connection limit
        "bypass_overload_manager": True,
        "filter_chains": [{"filters": [{"name": _MANAGER, "typed_config": manager}]}],
    }


def _build_compressor(algorithm: str) -> dict[str, Any]:
    """Return the HTTP filter that compresses responses for clients that accept the algorithm."""
    name = algorithm.lower()
    library = {"@type": f"{_EXTENSIONS}.compression.{name}.compressor.v3.{algorithm}"}
    config = {
        "@type": _COMPRESSOR_TYPE,
        "compressor_library": {"name": f"envoy.compression.{name}.compressor", "typed_config": library},
    }
    return {"name": f"envoy.filters.http.compressor.{name}", "typed_config": config}


def _require_mtls(listener: dict[str, Any]) -> dict[str, Any]:
    """Return the listener with the workload's certificate, for clients that have a certificate of the mesh."""
    context = {
        "tls_certificate_sds_secret_configs": [_secret("default")],
        "combined_validation_context": {
            "default_validation_context": {},
            "validation_context_sds_secret_config": _secret("ROOTCA"),
        },
    }
    socket = {"@type": _TLS_TYPE, "require_client_certificate": True, "common_tls_context": context}
    (chain,) = listener["filter_chains"]
    transport_socket = {"name": "envoy.transport_sockets.tls", "typed_config": socket}
    return {**listener, "filter_chains": [{**chain, "transport_socket": transport_socket}]}


def _secret(name: str) -> dict[str, Any]:
    """Return the source of a secret that the agent serves."""
    source = {
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "set_node_on_first_message_only": True,
        "grpc_services": [{"envoy_grpc": {"cluster_name": "sds-grpc"}}],
    }
    return {"name": name, "sds_config": {"api_config_source": source, "resource_api_version": "V3"}}
