"""The bootstrap of the agent's Envoy: the general one, extended with settings from the ProxyConfig and the pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilot.agent.agent_settings import AgentSettings, EnvoySettings
from pilot.agent.envoy.envoy_bootstrap import (
    RUNTIME,
    UNLIMITED_CONNECTIONS,
    ProxyNode,
    build_bootstrap,
    build_cluster,
)
from pilot.agent.envoy.static_listeners import (
    build_readiness_listener,
    build_secure_merged_listener,
    build_secure_stats_listener,
    build_stats_listener,
)
from pilot.agent.envoy.stats_config import build_stats_config
from pilot.agent.proxy.proxy_context import VERSION, ProxyContext
from pilot.agent.proxy.server_address import parse_address
from pilot.agent.unix_sockets import sds_socket, xds_socket
from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.lib.duration import parse_duration
from pilot.lib.node_cluster import DEFAULT_CLUSTER, node_cluster

LOCALITY_LABELS = ("topology.istio.io/locality", "istio-locality")
INTERVALS = {
    "sidecar.istio.io/statsFlushInterval": "stats_flush_interval",
    "sidecar.istio.io/statsEvictionInterval": "stats_eviction_interval",
}
MAX_CONNECTIONS_VARIABLE = "ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS"
MAX_CONNECTIONS_RUNTIME = "overload.global_downstream_max_connections"
_CONNECTIONS_TYPE = (
    "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig"
)
# Resources of the control plane refer to these cluster names.
METRICS_SERVICE, ACCESS_LOG_SERVICE = "envoy_metrics_service", "envoy_accesslog_service"


def build_proxy_bootstrap(proxy: ProxyContext, settings: AgentSettings) -> dict[str, Any]:
    """Return the bootstrap as JSON data. Raises ValueError, with a message for the user, for an invalid value."""
    config = proxy.config
    loopback, wildcard = ("::1", "::") if ":" in proxy.addresses[0] else ("127.0.0.1", "0.0.0.0")
    bootstrap = build_bootstrap(
        build_agent_node(proxy, settings),
        xds=f"unix:{xds_socket(config)}",
        admin=f"{loopback}:{config.proxy_admin_port}",
        sds_socket=sds_socket(settings),
        delta=settings.envoy.delta_xds or proxy.type == "waypoint",
        agent=f"{loopback}:{config.status_port}",
    )
    bootstrap["node"]["locality"] = build_locality(proxy.labels)
    bootstrap["layered_runtime"]["layers"][0]["static_layer"] = build_runtime(config.runtime_values)
    bootstrap["layered_runtime"]["layers"].append({"name": "admin", "admin_layer": {}})
    bootstrap["stats_config"] = build_stats_config(
        config, proxy.annotations, proxy.addresses, settings.envoy.exit_on_zero_connections
    )
    resources = bootstrap["static_resources"]
    bootstrap["overload_manager"] = build_overload_manager(config)
    resources["listeners"] = _build_listeners(wildcard, config, settings.envoy)
    resources["clusters"] += _service_clusters(config)
    for annotation, field in INTERVALS.items():
        if text := proxy.annotations.get(annotation):
            bootstrap[field] = _parse_interval(annotation, text)
    if config.envoy_metrics_service and config.envoy_metrics_service.address:
        bootstrap["stats_sinks"] = [_metrics_sink()]
    if proxy.metadata.get("ENABLE_SELF_DISCOVERY") == "true":
        resources["clusters"].append(_local_cluster())
        bootstrap.setdefault("cluster_manager", {})["local_cluster_name"] = "local_cluster"
    if settings.envoy.outlier_log:
        outlier_detection = {"event_log_path": settings.envoy.outlier_log}
        bootstrap.setdefault("cluster_manager", {})["outlier_detection"] = outlier_detection
    return bootstrap


def _build_listeners(host: str, config: ProxyConfig, settings: EnvoySettings) -> list[dict[str, Any]]:
    """Return the listeners for metrics and probes."""
    listeners = [
        build_stats_listener(host, settings.prometheus_port, config.stats_compression is not False),
        build_readiness_listener(host, settings.readiness_port, settings.readiness_proxy_protocol),
    ]
    if settings.secure_metrics_port:
        listeners.append(build_secure_stats_listener(host, settings.secure_metrics_port))
    if settings.secure_merged_metrics_port:
        listeners.append(build_secure_merged_listener(host, settings.secure_merged_metrics_port))
    return listeners


def build_overload_manager(config: ProxyConfig) -> dict[str, Any]:
    """Return the limit of the connections that clients may have to the proxy.

    It is configured in connectionSettings, in the proxy's metadata or, deprecated, as a runtime value, in this order.
    Raises ValueError for a value that is not a number.
    """
    connections = config.connection_settings
    limit = (connections.global_downstream_connection_limit if connections else 0) or 0
    for source, values, name in (
        ("proxyMetadata", config.proxy_metadata, MAX_CONNECTIONS_VARIABLE),
        ("runtimeValues", config.runtime_values, MAX_CONNECTIONS_RUNTIME),
    ):
        if limit > 0 or not (text := values.get(name)):
            continue
        if not (text.isascii() and text.isdigit() and 0 < int(text) <= UNLIMITED_CONNECTIONS):
            raise ValueError(f"ProxyConfig: {source}.{name}: {text!r} is not a number of connections")
        limit = int(text)
    monitor = {"@type": _CONNECTIONS_TYPE, "max_active_downstream_connections": limit or UNLIMITED_CONNECTIONS}
    name = "envoy.resource_monitors.global_downstream_max_connections"
    return {"resource_monitors": [{"name": name, "typed_config": monitor}]}


def build_agent_node(proxy: ProxyContext, settings: AgentSettings) -> ProxyNode:
    """Return the proxy's node, with the metadata that the control plane and EnvoyFilters use."""
    metadata: dict[str, Any] = {
        "INSTANCE_IPS": ",".join(proxy.addresses),
        "ANNOTATIONS": dict(proxy.annotations),
        "PROXY_CONFIG": proxy.config_fields,
        "ENVOY_STATUS_PORT": settings.envoy.readiness_port,
        "ENVOY_PROMETHEUS_PORT": settings.envoy.prometheus_port,
        "MODULE_FETCH": "true",  # without it, the control plane sends no remote Wasm modules
        "INTERCEPTION_MODE": proxy.config.interception_mode,
        **({"MESH_ID": proxy.config.mesh_id} if proxy.config.mesh_id else {}),
        **({"OUTLIER_LOG_PATH": settings.envoy.outlier_log} if settings.envoy.outlier_log else {}),
        **proxy.metadata,
    }
    return ProxyNode(
        type=proxy.type,
        name=proxy.name,
        namespace=proxy.namespace,
        ip=proxy.addresses[0],
        domain=proxy.domain,
        cluster=_node_cluster(proxy, settings.envoy.service_cluster),
        labels=proxy.labels,
        service_account=proxy.service_account,
        version=proxy.metadata.get("ISTIO_VERSION", VERSION),
        metadata=metadata,
    )


def build_locality(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the locality in the labels, or {} if there is none. Dots or slashes separate region, zone and subzone."""
    text = next((labels[name] for name in LOCALITY_LABELS if labels.get(name)), "")
    parts = text.split("/" if "/" in text else ".")
    return {key: part for key, part in zip(("region", "zone", "sub_zone"), parts, strict=False) if part}


def _node_cluster(proxy: ProxyContext, flag: str) -> str:
    """Return the cluster of the node: that of the flag, or else that of the ProxyConfig."""
    naming = proxy.config.tracing_service_name
    configured = flag if flag != DEFAULT_CLUSTER else ""
    if naming is None:
        configured = configured or proxy.config.service_cluster or ""
    return node_cluster(proxy.labels, proxy.namespace, proxy.metadata.get("WORKLOAD_NAME", ""), naming, configured)


def build_runtime(overrides: Mapping[str, str]) -> dict[str, Any]:
    """Return Envoy's runtime values: the defaults, changed by the overrides. An empty override removes a default.

    The limit of connections is not among them, because the overload manager enforces it.
    """
    values = {
        **RUNTIME,
        **{name: value == "true" if value in ("true", "false") else value for name, value in overrides.items()},
    }
    return {name: value for name, value in values.items() if value != "" and name != MAX_CONNECTIONS_RUNTIME}


def _service_clusters(config: ProxyConfig) -> list[dict[str, Any]]:
    """Return the clusters for the tracers, the metrics service and the access log service in a ProxyConfig.

    Raises ValueError if an address is invalid or if TLS is configured, which is not supported.
    """
    tracing = config.tracing
    clusters = []
    zipkin = tracing.zipkin.address if tracing and tracing.zipkin else config.zipkin_address
    datadog = tracing.datadog.address if tracing and tracing.datadog else ""
    services = {METRICS_SERVICE: config.envoy_metrics_service, ACCESS_LOG_SERVICE: config.envoy_access_log_service}
    for name, address in (("zipkin", zipkin), ("datadog_agent", datadog)):
        if address:
            clusters.append(_service_cluster(name, address, http2=False))
    for name, service in services.items():
        if service and service.address:
            if service.tls_settings is not None and service.tls_settings.mode != "DISABLE":
                raise ValueError(f"ProxyConfig: {name} with TLS is not supported")
            clusters.append(_service_cluster(name, service.address, http2=True))
    return clusters


def _service_cluster(name: str, address: str, http2: bool) -> dict[str, Any]:
    host, port = parse_address(f"ProxyConfig: the address of {name}", address)
    return build_cluster(name, {"socket_address": {"address": host, "port_value": port}}, http2)


def _metrics_sink() -> dict[str, Any]:
    config = {
        "@type": "type.googleapis.com/envoy.config.metrics.v3.MetricsServiceConfig",
        "transport_api_version": "V3",
        "grpc_service": {"envoy_grpc": {"cluster_name": METRICS_SERVICE}},
    }
    return {"name": "envoy.stat_sinks.metrics_service", "typed_config": config}


def _local_cluster() -> dict[str, Any]:
    """Return the cluster of the proxy's own service, which zone-aware routing needs."""
    source = {"eds_config": {"ads": {}, "resource_api_version": "V3"}, "service_name": "local_cluster"}
    return {"name": "local_cluster", "type": "EDS", "connect_timeout": "1s", "eds_cluster_config": source}


def _parse_interval(annotation: str, text: str) -> str:
    """Return a duration in Envoy's JSON format. Raises ValueError with the name of the annotation."""
    try:
        return str(parse_duration(text))
    except ValueError as error:
        raise ValueError(f"annotation {annotation}: {error}") from error
