"""The bootstrap of the Envoy beside the agent: that of any proxy of the mesh, with what its ProxyConfig and its pod add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilot.agent.agent_settings import AgentSettings
from pilot.agent.envoy.envoy_bootstrap import RUNTIME, ProxyNode, build_bootstrap, build_cluster, parse_address
from pilot.agent.envoy.static_listeners import build_readiness_listener, build_stats_listener
from pilot.agent.envoy.stats_config import build_stats_config
from pilot.agent.proxy.proxy_context import VERSION, ProxyContext
from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.lib.duration import parse_duration

XDS_SOCKET = "XDS"
SDS_FOLDER = "./var/run/secrets/workload-spiffe-uds"
DEFAULT_CLUSTER = "istio-proxy"
CANONICAL_LABELS = ("service.istio.io/canonical-name", "app.kubernetes.io/name", "app")
LOCALITY_LABELS = ("topology.istio.io/locality", "istio-locality")
INTERVALS = {
    "sidecar.istio.io/statsFlushInterval": "stats_flush_interval",
    "sidecar.istio.io/statsEvictionInterval": "stats_eviction_interval",
}
# Given to Envoy under these names, as what the control plane sends refers to them.
METRICS_SERVICE, ACCESS_LOG_SERVICE = "envoy_metrics_service", "envoy_accesslog_service"


def xds_socket(config: ProxyConfig) -> str:
    """Returns the path of the socket on which the agent passes configuration on."""
    return f"{config.config_path}/{XDS_SOCKET}"


def sds_socket(settings: AgentSettings) -> str:
    """Returns the path of the socket on which the agent serves certificates."""
    return f"{SDS_FOLDER}/{settings.certificate.socket}"


def build_proxy_bootstrap(facts: ProxyContext, settings: AgentSettings) -> dict[str, Any]:
    """Returns the whole bootstrap as plain JSON data. ValueError, a sentence for the user, where something of it cannot be built."""
    config = facts.proxy.config
    loopback, anywhere = ("::1", "::") if ":" in facts.addresses[0] else ("127.0.0.1", "0.0.0.0")
    built = build_bootstrap(
        build_agent_node(facts, settings),
        xds=f"unix:{xds_socket(config)}",
        admin=f"{loopback}:{config.proxy_admin_port}",
        sds_socket=sds_socket(settings),
        delta=settings.envoy.delta or facts.type == "waypoint",
        agent=f"{loopback}:{config.status_port}",
    )
    built["node"]["locality"] = build_locality(facts.labels)
    built["layered_runtime"]["layers"][0]["static_layer"] = build_runtime(config.runtime_values)
    built["layered_runtime"]["layers"].append({"name": "admin", "admin_layer": {}})
    built["stats_config"] = build_stats_config(config, facts.annotations, facts.addresses, settings.envoy.exit_on_zero)
    resources = built["static_resources"]
    resources["listeners"] = [
        build_stats_listener(anywhere, settings.envoy.prometheus_port),
        build_readiness_listener(anywhere, settings.envoy.status_port, settings.envoy.status_proxy_protocol),
    ]
    resources["clusters"] += _service_clusters(config)
    for annotation, field in INTERVALS.items():
        if text := facts.annotations.get(annotation):
            built[field] = _seconds(annotation, text)
    if config.envoy_metrics_service and config.envoy_metrics_service.address:
        built["stats_sinks"] = [_metrics_sink()]
    if facts.metadata.get("ENABLE_SELF_DISCOVERY") == "true":
        resources["clusters"].append(_local_cluster())
        built["cluster_manager"] = {"local_cluster_name": "local_cluster"}
    return built


def build_agent_node(facts: ProxyContext, settings: AgentSettings) -> ProxyNode:
    """Returns who the proxy is, with the metadata that the control plane and EnvoyFilters look at."""
    metadata: dict[str, Any] = {
        "INSTANCE_IPS": ",".join(facts.addresses),
        "ANNOTATIONS": dict(facts.annotations),
        "PROXY_CONFIG": facts.proxy.given,
        "ENVOY_STATUS_PORT": settings.envoy.status_port,
        "ENVOY_PROMETHEUS_PORT": settings.envoy.prometheus_port,
        "MODULE_FETCH": "true",  # for Wasm modules, which a stock Envoy is not sent where nobody says so
        "INTERCEPTION_MODE": facts.proxy.config.interception_mode,
        **({"MESH_ID": facts.proxy.config.mesh_id} if facts.proxy.config.mesh_id else {}),
        **facts.metadata,
    }
    return ProxyNode(
        type=facts.type,
        name=facts.name,
        namespace=facts.namespace,
        ip=facts.addresses[0],
        domain=facts.domain,
        cluster=_cluster(facts, settings.envoy.service_cluster),
        labels=facts.labels,
        service_account=facts.service_account,
        version=facts.metadata.get("ISTIO_VERSION", VERSION),
        metadata=metadata,
    )


def build_locality(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns the locality that a label of the pod says, as region.zone.subzone or with slashes; empty without one."""
    text = next((labels[name] for name in LOCALITY_LABELS if labels.get(name)), "")
    parts = text.split("/" if "/" in text else ".")
    return {key: part for key, part in zip(("region", "zone", "sub_zone"), parts, strict=False) if part}


def _cluster(facts: ProxyContext, flag: str) -> str:
    """Returns the name of the node's cluster, which tracers and access logs show."""
    config = facts.proxy.config
    workload = facts.metadata.get("WORKLOAD_NAME") or DEFAULT_CLUSTER
    canonical = next((facts.labels[name] for name in CANONICAL_LABELS if facts.labels.get(name)), workload)
    if config.tracing_service_name == "CANONICAL_NAME_ONLY":
        return str(canonical)
    if config.tracing_service_name == "CANONICAL_NAME_AND_NAMESPACE":
        return f"{canonical}.{facts.namespace}"
    for named in (flag, config.service_cluster if config.tracing_service_name is None else ""):
        if named and named != DEFAULT_CLUSTER:
            return named
    return f"{facts.labels.get('app') or workload}.{facts.namespace}"


def build_runtime(given: Mapping[str, str]) -> dict[str, Any]:
    """Returns Envoy's runtime: the built-in values under the given ones, of which an empty text takes a built-in value away."""
    said = {
        **RUNTIME,
        **{name: value == "true" if value in ("true", "false") else value for name, value in given.items()},
    }
    return {name: value for name, value in said.items() if value != ""}


def _service_clusters(config: ProxyConfig) -> list[dict[str, Any]]:
    """Returns the clusters of servers that a ProxyConfig names, for tracers, metrics and access logs. ValueError where one asks for TLS."""
    tracing, found = config.tracing, []
    zipkin = tracing.zipkin.address if tracing and tracing.zipkin else config.zipkin_address
    datadog = tracing.datadog.address if tracing and tracing.datadog else ""
    services = {METRICS_SERVICE: config.envoy_metrics_service, ACCESS_LOG_SERVICE: config.envoy_access_log_service}
    for name, address in (("zipkin", zipkin), ("datadog_agent", datadog)):
        if address:
            found.append(_cluster_of(name, address, http2=False))
    for name, service in services.items():
        if service and service.address:
            if service.tls_settings is not None and service.tls_settings.mode != "DISABLE":
                raise ValueError(f"ProxyConfig: {name} with TLS is not supported")
            found.append(_cluster_of(name, service.address, http2=True))
    return found


def _cluster_of(name: str, address: str, http2: bool) -> dict[str, Any]:
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
    """Returns the cluster of the proxy's own service, by which Envoy weighs zones."""
    source = {"eds_config": {"ads": {}, "resource_api_version": "V3"}, "service_name": "local_cluster"}
    return {"name": "local_cluster", "type": "EDS", "connect_timeout": "1s", "eds_cluster_config": source}


def _seconds(annotation: str, text: str) -> str:
    """Returns a duration as Envoy's JSON spells it. ValueError, which names the annotation, where the text is none."""
    try:
        return str(parse_duration(text))
    except ValueError as error:
        raise ValueError(f"annotation {annotation}: {error}") from error
