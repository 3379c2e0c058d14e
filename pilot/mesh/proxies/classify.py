"""Computes the facets of a connected proxy, on which its resources depend.

Labels are reduced to those that occur in selectors, so that unrelated labels do not split classes of proxies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from pilot.config.kinds.istio import TELEMETRY
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.proxy_config import ConnectionSettings, ProxyConfig, ProxyHeaders
from pilot.derive import derived
from pilot.lib import labels as label
from pilot.lib.addresses import is_ip
from pilot.lib.duration import Duration, parse_duration
from pilot.lib.labels import CANONICAL_NAME, CANONICAL_REVISION, cut
from pilot.mesh.model.ambient_features import (
    gateways_use_double_hbone,
    listens_for_hbone,
    sends_hbone,
    waypoints_use_double_hbone,
)
from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.facets import (
    FeaturesFacet,
    InboundFacet,
    ListeningFacet,
    LocationFacet,
    OutboundFacet,
    OutboundListenersFacet,
    ScopeFacet,
    SecretServersFacet,
    SpanTagsFacet,
    TlsFilesFacet,
    TracingFacet,
)
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.model.telemetry_features import unsupported_telemetry
from pilot.mesh.proxies.placement import placement
from pilot.mesh.proxies.selected_labels import outbound_label_keys
from pilot.mesh.registry.service_targets import service_targets
from pilot.mesh.registry.workloads import proxy_labels, proxy_locality, proxy_network
from pilot.mesh.scope.sidecar_scope import selector_keys, sidecar_of
from pilot.mesh.security.policies import in_scope, proxy_policies
from pilot.mesh.tables.clusters import cluster_of, preferred_cluster
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config
from pilot.mesh.tables.proxies import find_proxy
from pilot.mesh.tables.proxy_config import proxy_config
from pilot.mesh.telemetry.providers import workload_names
from pilot.mesh.telemetry.telemetry import telemetry_facet

ALL_FEATURES = FeaturesFacet()
INTERNAL_LISTENERS = "INTERNAL_LISTENERS"
"""Node metadata that is true if the bootstrap has the extension envoy.bootstrap.internal_listener."""
_EXTENSIONS = {  # keyed by field of `FeaturesFacet`; names of extensions have changed over time, but types have not
    "metadata_exchange": frozenset(("envoy.tcp.metadataexchange.config.MetadataExchange", "istio.metadata_exchange")),
    "peer_metadata": frozenset(("io.istio.http.peer_metadata.Config", "envoy.filters.http.peer_metadata")),
    "tunnel_metadata": frozenset(
        ("envoy.extensions.network_filters.peer_metadata.Config", "envoy.filters.network.peer_metadata")
    ),
    "alpn": frozenset(("istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig", "istio.alpn")),
    "wasm": frozenset(("envoy.extensions.filters.http.wasm.v3.Wasm", "envoy.filters.http.wasm")),
    "network_wasm": frozenset(("envoy.extensions.filters.network.wasm.v3.Wasm", "envoy.filters.network.wasm")),
    "lua": frozenset(("envoy.extensions.filters.http.lua.v3.Lua", "envoy.filters.http.lua")),
    "hashable_string": frozenset(("istio.hashable_string",)),
    "mysql_proxy": frozenset(
        ("envoy.extensions.filters.network.mysql_proxy.v3.MySQLProxy", "envoy.filters.network.mysql_proxy")
    ),
}
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_RESERVED = (
    "ENVOY_STATUS_PORT",
    "ENVOY_PROMETHEUS_PORT",
    "ENVOY_SECURE_METRICS_PORT",
    "ENVOY_SECURE_MERGED_METRICS_PORT",
)


# -- facets of a node --------------------------------------------------------------------------------------------------


def scope_of(db: Mesh, node_id: str) -> ScopeFacet:
    """Return the scope of a proxy. Sidecar resources do not apply to routers. Not memoised."""
    proxy = find_proxy(db, node_id)
    if proxy.type is not NodeType.SIDECAR:
        return ScopeFacet(proxy.namespace, gateway=True)
    labels = cut(proxy_labels(db, node_id), selector_keys(db, proxy.namespace))
    return ScopeFacet(proxy.namespace, sidecar_of(db, proxy.namespace, labels))


@derived
def outbound_facet(db: Mesh, node_id: str) -> OutboundFacet:
    """Return the facet of the outbound side of a proxy."""
    proxy = find_proxy(db, node_id)
    scope = scope_of(db, node_id)
    config = proxy_config(db, node_id)
    return OutboundFacet(
        type=proxy.type,
        scope=scope,
        features=features_of(proxy),
        location=_location(db, proxy, node_id),
        labels=cut(proxy_labels(db, node_id), outbound_label_keys(db, scope)),
        tls_files=_tls_files(proxy),
        secret_servers=_secret_servers(proxy),
        preserve_case=bool(config.proxy_headers is not None and config.proxy_headers.preserve_http1_header_case),
        no_hbone=proxy.flag("DISABLE_HBONE_SEND"),
        double_hbone=_uses_double_hbone(db, node_id, proxy),
        dns_proxy=_dns_proxy(proxy),
    )


@derived
def inbound_facet(db: Mesh, node_id: str) -> InboundFacet:
    """Return the facet of the inbound side of a sidecar."""
    proxy, policies = find_proxy(db, node_id), proxy_policies(db, node_id)
    return InboundFacet(
        scope=outbound_facet(db, node_id).scope,
        listening=replace(
            listening_facet(db, node_id),
            side="inbound",
            policies=in_scope(policies, "inbound"),
            telemetry=telemetry_facet(db, policies.of(TELEMETRY.id.name), "SERVER"),
            exact_balance=proxy.flag("INBOUND_LISTENER_EXACT_BALANCE"),
        ),
        policies=in_scope(policies, "ports"),
        targets=service_targets(db, node_id),
        ips=proxy.ips,
        tls_files=_tls_files(proxy),
        tags=span_tags_facet(db, node_id),
        secret_servers=_secret_servers(proxy),
        accepts_hbone=listens_for_hbone(db.settings.ambient)
        and proxy.flag("ENABLE_HBONE")
        and features_of(proxy).internal_listeners,
    )


def span_tags_facet(db: Mesh, node_id: str) -> SpanTagsFacet:
    """Return the tags that identify a workload in its proxy's spans. Not memoised."""
    proxy, labels, names = find_proxy(db, node_id), proxy_labels(db, node_id), workload_names(db)
    return SpanTagsFacet(
        service=labels.get(CANONICAL_NAME) or "unknown",
        revision=labels.get(CANONICAL_REVISION) or "latest",
        namespace=proxy.namespace or "default",
        cluster_id=proxy.text("CLUSTER_ID") or "unknown",
        mesh_id=proxy.text("MESH_ID") or "unknown",
        node_cluster=proxy.node_cluster if names.by_node else "",
        conventional_service=_conventional_service(proxy, labels) if names.by_convention else "",
    )


@derived
def listening_facet(db: Mesh, node_id: str) -> ListeningFacet:
    """Return the listener settings of a proxy, without those that are specific to one side, such as policies."""
    proxy, mesh = find_proxy(db, node_id), mesh_config(db)
    config = proxy_config(db, node_id)
    families = [":" in ip for ip in proxy.ips]
    return ListeningFacet(
        features=features_of(proxy),
        ipv4=False in families,
        ipv6=True in families,
        interception=interception_of(proxy),
        http10=accepts_http10(proxy, db.settings.listeners.http10),
        idle_timeout=_duration(proxy.text("IDLE_TIMEOUT")),
        http_proxy_port=_port(proxy.text("HTTP_PROXY_PORT")),
        exact_balance=proxy.flag("OUTBOUND_LISTENER_EXACT_BALANCE"),
        unprivileged=proxy.flag("UNPRIVILEGED_POD"),
        reserved_ports=frozenset(
            int(p) for key in _RESERVED if (p := proxy.text(key).partition(".")[0]).isdecimal() and p != "0"
        ),
        dns_proxy=_dns_proxy(proxy),
        headers=config.proxy_headers or ProxyHeaders(),
        connections=config.connection_settings or _mesh_connections(mesh),
        tracing=_tracing(config, db.settings.telemetry.trace_sampling, mesh.enable_tracing),
        unsupported_telemetry=unsupported_telemetry(proxy),
    )


def outbound_listeners_facet(db: Mesh, node_id: str) -> OutboundListenersFacet:
    """Return the facet of a sidecar's outbound listeners. Not memoised."""
    outbound, proxy, policies = outbound_facet(db, node_id), find_proxy(db, node_id), proxy_policies(db, node_id)
    return OutboundListenersFacet(
        scope=outbound.scope,
        listening=replace(
            listening_facet(db, node_id),
            policies=in_scope(policies, "outbound"),
            telemetry=telemetry_facet(db, policies.of(TELEMETRY.id.name), "CLIENT"),
        ),
        labels=outbound.labels,
        auto_addresses=uses_auto_addresses(proxy, db.settings.registry.ip_autoallocate),
        cluster=preferred_cluster(db, proxy),
        own_address=proxy.ips[0] if db.settings.listeners.headless_filter_chains else "",
    )


# -- node metadata -----------------------------------------------------------------------------------------------------


def features_of(proxy: Proxy) -> FeaturesFacet:
    """Return the features of a proxy, derived from the extensions that its Envoy lists, or all features if it lists
    none.

    All builds support internal listeners, but the bootstrap must enable them. Node metadata says whether it does.
    """
    if proxy.extensions is None:
        return ALL_FEATURES
    features = {feature: not names.isdisjoint(proxy.extensions) for feature, names in _EXTENSIONS.items()}
    return FeaturesFacet(**features, internal_listeners=proxy.flag(INTERNAL_LISTENERS))


def interception_of(proxy: Proxy) -> str:
    """Return the mode in which the proxy's traffic is captured: REDIRECT, TPROXY or NONE."""
    mode = proxy.text("INTERCEPTION_MODE")
    return mode if mode in ("TPROXY", "NONE") else "REDIRECT"


def accepts_http10(proxy: Proxy, everywhere: bool) -> bool:
    """Return whether the proxy accepts HTTP/1.0, because its metadata HTTP10 is "1" or a setting enables it
    `everywhere`."""
    return everywhere or proxy.text("HTTP10") == "1"


def uses_auto_addresses(proxy: Proxy, everywhere: bool) -> bool:
    """Return whether the proxy uses automatically allocated addresses. They require the agent's DNS proxy."""
    return (everywhere or proxy.flag("DNS_AUTO_ALLOCATE")) and (
        proxy.flag("DNS_CAPTURE") or proxy.type is NodeType.WAYPOINT
    )


def _location(db: Mesh, proxy: Proxy, node_id: str) -> LocationFacet:
    families = [":" in ip for ip in proxy.ips]
    relevant = placement(db)
    return LocationFacet(
        network=proxy_network(db, node_id) if relevant.network else "",
        cluster_id=cluster_of(db, proxy),
        locality=proxy_locality(db, node_id) if relevant.locality else Locality(),
        node=proxy.text("NODE_NAME") if relevant.node else "",
        ipv4=False in families,
        ipv6=True in families,
        networks=frozenset(proxy.items("REQUESTED_NETWORK_VIEW")),
    )


def _uses_double_hbone(db: Mesh, node_id: str, proxy: Proxy) -> bool:
    """Return whether a waypoint or gateway uses double HBONE to reach other networks."""
    ambient = db.settings.ambient
    if (
        proxy.type is NodeType.SIDECAR
        or not (waypoints_use_double_hbone(ambient) or gateways_use_double_hbone(ambient))
        or not features_of(proxy).internal_listeners
    ):
        return False
    labels = proxy_labels(db, node_id)
    managed = labels.get(label.GATEWAY_MANAGED)
    if proxy.type is NodeType.WAYPOINT:
        return waypoints_use_double_hbone(ambient) and managed == label.MESH_CONTROLLER
    at_edge = managed == label.GATEWAY_CONTROLLER or labels.get("istio") == "ingressgateway"
    return (
        at_edge and gateways_use_double_hbone(ambient) and sends_hbone(ambient) and not proxy.flag("DISABLE_HBONE_SEND")
    )


def _tls_files(proxy: Proxy) -> TlsFilesFacet:
    return TlsFilesFacet(
        client_cert=proxy.text("TLS_CLIENT_CERT_CHAIN"),
        client_key=proxy.text("TLS_CLIENT_KEY"),
        client_root=proxy.text("TLS_CLIENT_ROOT_CERT"),
        server_cert=proxy.text("TLS_SERVER_CERT_CHAIN"),
        server_key=proxy.text("TLS_SERVER_KEY"),
        server_root=proxy.text("TLS_SERVER_ROOT_CERT"),
    )


def _secret_servers(proxy: Proxy) -> SecretServersFacet:
    return SecretServersFacet(
        credentials=proxy.text("credential") == "true", files=proxy.text("file-credential") == "true"
    )


def _dns_proxy(proxy: Proxy) -> str:
    """Return the address of the agent's DNS proxy, or "" if DNS is not captured."""
    if not proxy.flag("DNS_CAPTURE"):
        return ""
    host, colon, port = proxy.text("DNS_PROXY_ADDR").rpartition(":")
    address = host.strip("[]")
    if not colon:
        return "127.0.0.1:15053"
    return f"{address if is_ip(address) else '127.0.0.1'}:{_port(port) or 15053}"


def _duration(text: str) -> Duration | None:
    """Return the duration in a string, or None if it is empty, invalid or negative."""
    try:
        duration = parse_duration(text) if text else None
    except ValueError:
        return None
    return None if duration is None or duration < 0 else duration


def _port(text: str) -> int | None:
    """Return the port number in a string, or None if it is invalid. The port 0 disables the listener."""
    return int(text) if _PORT.fullmatch(text) and int(text) <= 65535 else None


def _mesh_connections(mesh: MeshConfig) -> ConnectionSettings:
    settings = mesh.default_config.connection_settings if mesh.default_config is not None else None
    return settings or ConnectionSettings()


def _tracing(config: ProxyConfig, sampling: float, default: bool) -> TracingFacet:
    """Return the tracing settings of a proxy config. As in istiod, a sampling percentage above 100 becomes 1."""
    tracing = config.tracing
    if tracing is None:
        return TracingFacet(sampling=sampling, default=default)
    return TracingFacet(
        sampling=1.0 if tracing.sampling > 100 else tracing.sampling or sampling,
        istio_tags=tracing.enable_istio_tags is not False,
        tags=tuple(sorted(tracing.custom_tags.items(), key=lambda item: item[0])),
        max_path_length=tracing.max_path_tag_length,
        default=default,
    )


def _conventional_service(proxy: Proxy, labels: Mapping[str, str]) -> str:
    """Return the service name of a Kubernetes workload according to OpenTelemetry's conventions.

    It is the first of the following that is set: an annotation, two labels, and the names of the workload, the Pod and
    its only container. https://opentelemetry.io/docs/specs/semconv/non-normative/k8s-attributes/
    """
    annotations, containers = proxy.metadata.get("ANNOTATIONS") or {}, proxy.items("APP_CONTAINERS")
    candidates = (
        annotations.get("resource.opentelemetry.io/service.name"),
        labels.get("app.kubernetes.io/instance"),
        labels.get("app.kubernetes.io/name"),
        proxy.text("WORKLOAD_NAME"),
        proxy.id.partition(".")[0],
        containers[0] if len(containers) == 1 else "",
    )
    return next(filter(None, candidates), "unknown_service")
