"""Settings of the service registry and of the Envoy resources that are built from it."""

# ruff: noqa: RUF009 (the values of setting() are immutable)
from __future__ import annotations

import dataclasses

from pilot.lib.duration import Duration, parse_duration
from pilot.settings.ambient import AmbientSettings
from pilot.settings.checks import one_of, prefix_of
from pilot.settings.declaration import section, setting


@dataclasses.dataclass(frozen=True)
class RegistrySettings:
    """Discovery of services, workloads and endpoints."""

    namespace: str = setting(
        "istio-system", "Namespace of the control plane.", flag="namespace", short="n", env="POD_NAMESPACE"
    )
    cluster_id: str = setting("Kubernetes", "ID of the local cluster.", flag="clusterID", env="CLUSTER_ID")
    domain: str = setting("cluster.local", "DNS suffix of the cluster's services.", flag="domain")
    dual_stack: bool = setting(
        False, "Use both IP families for proxies that have IPv4 and IPv6 addresses.", env="ISTIO_DUAL_STACK"
    )
    multicluster_headless: bool = setting(
        True,
        "Resolve the names of headless services to the pods of all clusters in the same network.",
        env="ENABLE_MULTICLUSTER_HEADLESS",
    )
    ip_autoallocate: bool = setting(
        True,
        "Allocate addresses to ServiceEntries without addresses, for proxies that capture DNS.",
        env="PILOT_ENABLE_IP_AUTOALLOCATE",
    )
    ip_autoallocate_ipv4: str = setting(
        "240.240.0.0/16",
        "Prefix of allocated IPv4 addresses.",
        env="PILOT_IP_AUTOALLOCATE_IPV4_PREFIX",
        check=prefix_of(4),
    )
    ip_autoallocate_ipv6: str = setting(
        "2001:2::/48",
        "Prefix of allocated IPv6 addresses.",
        env="PILOT_IP_AUTOALLOCATE_IPV6_PREFIX",
        check=prefix_of(6),
    )
    persistent_session_label: str = setting(
        "istio.io/persistent-session",
        "Label of services with cookie-based persistent sessions.",
        env="PILOT_PERSISTENT_SESSION_LABEL",
    )
    persistent_session_header_label: str = setting(
        "istio.io/persistent-session-header",
        "Label of services with header-based persistent sessions.",
        env="PILOT_PERSISTENT_SESSION_HEADER_LABEL",
    )
    max_entry_endpoints: int = setting(
        120_000,
        "Maximum number of endpoints that the ServiceEntries of a namespace expand to. A ServiceEntry has a cluster "
        "for each host and port, which counts as 40 endpoints. Each host after the first one counts as 30, each port "
        "number of the namespace as 100, and, if the port is not HTTP, each address after the first one as 24 for each "
        "host, and each endpoint at a selected workload as 3. Newer ServiceEntries beyond the maximum are ignored. It "
        "is also the maximum for endpoints at WorkloadEntries that the Kubernetes Services of a namespace select.",
        env="PILOT_MAX_SERVICE_ENTRY_ENDPOINTS",
    )
    max_service_ports: int = setting(
        3000,
        "Maximum number of ports of the Kubernetes Services of a namespace, except the first two ports of each. A port "
        "counts again for every 13 endpoints in EndpointSlices. Newer Services beyond the maximum have only the first "
        "two ports.",
        env="PILOT_MAX_SERVICE_PORTS",
    )
    max_services: int = setting(
        7000,
        "Maximum number of Kubernetes Services of a namespace and of their ports, together: 3500 Services with one "
        "port, or 2333 with two. Newer Services beyond the maximum are ignored.",
        env="PILOT_MAX_SERVICES",
    )
    draining_label: str = setting(
        "istio.io/draining", "Label of workloads that accept no new sessions.", env="PILOT_DRAINING_LABEL"
    )
    services_select_entries: bool = setting(
        True, "Let Kubernetes Services select WorkloadEntries.", env="PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES"
    )
    entries_select_pods: bool = setting(
        True, "Let ServiceEntries select Pods.", env="PILOT_ENABLE_SERVICEENTRY_SELECT_PODS"
    )
    best_namespace: bool = setting(
        True,
        "If several namespaces declare the host of a route, prefer a Kubernetes Service, then the oldest "
        "service. If false, use the first namespace in alphabetical order.",
        env="PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE",
    )
    entry_health_checks: bool = setting(
        True,
        "Exclude WorkloadEntries whose health checks have not passed.",
        env="PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS",
    )
    mcs_discovery: bool = setting(
        False,
        "Share endpoints with other clusters only if a ServiceExport exports their Service.",
        env="ENABLE_MCS_SERVICE_DISCOVERY",
    )
    mcs_hosts: bool = setting(
        False,
        "Add the host NAME.NAMESPACE.svc.clusterset.local to imported services. Requires ENABLE_MCS_SERVICE_DISCOVERY.",
        env="ENABLE_MCS_HOST",
    )
    mcs_cluster_local: bool = setting(
        False,
        "Keep requests to the regular host of a service within the client's cluster. Requires "
        "ENABLE_MCS_SERVICE_DISCOVERY and ENABLE_MCS_HOST.",
        env="ENABLE_MCS_CLUSTER_LOCAL",
    )
    find_pod_by_ip: bool = setting(
        False,
        "Look up a proxy's Pod by IP address if its node ID does not identify one.",
        env="ENABLE_PROXY_FIND_POD_BY_IP",
    )
    label_external_services: bool = setting(
        False,
        "Report the canonical service of endpoints outside the mesh.",
        env="LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES",
    )
    merge_rules_by_export: bool = setting(
        True,
        "Merge the DestinationRules of a host only if they have the same exportTo.",
        env="ENABLE_ENHANCED_DESTINATIONRULE_MERGE",
    )


@dataclasses.dataclass(frozen=True)
class TlsSettings:
    """Settings of TLS between proxies, and to services outside the mesh."""

    compliance_policy: str = setting(
        "", "Compliance policy that restricts TLS everywhere: fips-140-2, fips-140-3 or pqc.", env="COMPLIANCE_POLICY"
    )
    skip_validate_trust_domain: bool = setting(
        False, "Accept clients of any trust domain.", env="PILOT_SKIP_VALIDATE_TRUST_DOMAIN"
    )
    external_tls_by_rule: bool = setting(
        True,
        "For services outside the mesh, prefer the TLS settings of a DestinationRule to the proxy's own "
        "certificate files.",
        env="PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES",
    )


@dataclasses.dataclass(frozen=True)
class PolicySettings:
    """Authentication and authorization policies."""

    several_authorizers: bool = setting(
        False,
        "Allow more than one external authorizer per workload. If false and a workload's CUSTOM policies "
        "specify several, requests that match these policies are denied.",
        env="PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS",
    )
    selected_gateways: bool = setting(
        True,
        "Apply policies with a workload selector to Gateway API proxies. If false, only policies that target "
        "a Gateway apply.",
        env="ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY",
    )
    remote_jwks: str = setting(
        "false",
        "Component that fetches key sets. false or istiod: the control plane. envoy: the proxies. true or "
        "hybrid: the proxies if a service in the mesh serves the key set, and otherwise the control plane.",
        env="PILOT_JWT_ENABLE_REMOTE_JWKS",
        check=one_of("false", "istiod", "envoy", "true", "hybrid"),
    )
    largest_key_sets: int = setting(
        512 * 1024,
        "Maximum size of a key set, and of all key sets of a workload, in bytes. Tokens for further key sets are "
        "rejected.",
        env="PILOT_JWKS_MAX_BYTES",
    )


@dataclasses.dataclass(frozen=True)
class TelemetrySettings:
    """Settings of tracing, and of the metadata that proxies exchange and report."""

    metadata_exchange: bool = setting(
        True, "Let proxies exchange workload metadata with their peers.", env="PILOT_ENABLE_METADATA_EXCHANGE"
    )
    metadata_exchange_labels: tuple[str, ...] = setting(
        (), "Additional labels that proxies exchange with their peers.", env="PILOT_MX_ADDITIONAL_LABELS"
    )
    disable_metadata_exchange_alpn: bool = setting(
        False, "Do not advertise metadata exchange in the ALPN of TLS connections.", env="PILOT_DISABLE_MX_ALPN"
    )
    cluster_label: bool = setting(
        True,
        "Add service names to the metadata of clusters, for telemetry.",
        env="PILOT_ENABLE_TELEMETRY_LABEL",
    )
    endpoint_label: bool = setting(
        True,
        "Add workload names to the metadata of endpoints, for telemetry. Requires PILOT_ENABLE_TELEMETRY_LABEL.",
        env="PILOT_ENDPOINT_TELEMETRY_LABEL",
    )
    trace_sampling: float = setting(
        1.0, "Default percentage of requests to trace.", env="PILOT_TRACE_SAMPLING", maximum=100
    )


@dataclasses.dataclass(frozen=True)
class ClusterSettings:
    """Clusters and their endpoints."""

    dns_udp_max_queries: int = setting(
        100,
        "Maximum number of queries per UDP socket of Envoy's DNS resolver. 0 means no limit.",
        env="PILOT_DNS_CARES_UDP_MAX_QUERIES",
    )
    dns_jitter: Duration = setting(
        Duration.of(0.1), "Jitter of periodic DNS resolution.", env="PILOT_DNS_JITTER_DURATION"
    )
    dynamic_dns_max_hosts: int = setting(
        1024,
        "Maximum number of hosts in the DNS cache for the outbound traffic policy ALLOW_ANY_DYNAMIC_DNS.",
        env="PILOT_ALLOW_ANY_DYNAMIC_DNS_MAX_HOSTS",
    )
    locality_weighted_lb: bool = setting(
        False, "Enable locality-weighted load balancing in every cluster.", env="ENABLE_LOCALITY_WEIGHTED_LB_CONFIG"
    )
    send_unhealthy_endpoints: bool = setting(
        True,
        "Send endpoints that are not ready, unless outlier detection sets a minHealthPercent above 0.",
        env="PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS",
    )
    always_send_unhealthy_endpoints: bool = setting(
        False, "Always send endpoints that are not ready.", env="PILOT_SEND_UNHEALTHY_ENDPOINTS"
    )
    headless_eds: bool = setting(
        False,
        "Load-balance headless services with EDS. If false, connections are passed through to their original "
        "destination.",
        env="PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES",
    )
    disable_remaining_metrics: bool = setting(
        True, "Do not report the remaining capacity of circuit breakers.", env="DISABLE_TRACK_REMAINING_CB_METRICS"
    )


@dataclasses.dataclass(frozen=True)
class ListenerSettings:
    """Listeners and their filters."""

    http10: bool = setting(False, "Accept HTTP/1.0 on all listeners.", env="PILOT_HTTP10")
    ipv6_only_has_ipv4: bool = setting(
        False,
        "Allow IPv6-only proxies to reach IPv4 destinations.",
        env="ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS",
    )
    mongo_filter: bool = setting(True, "Add the Mongo filter to Mongo ports.", env="PILOT_ENABLE_MONGO_FILTER")
    redis_filter: bool = setting(False, "Add the Redis filter to Redis ports.", env="PILOT_ENABLE_REDIS_FILTER")
    mysql_filter: bool = setting(False, "Add the MySQL filter to MySQL ports.", env="PILOT_ENABLE_MYSQL_FILTER")
    headless_filter_chains: bool = setting(
        False,
        "For TCP ports of headless services, build one listener with a filter chain per pod instead of one "
        "listener per pod.",
        env="PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER",
    )
    connections_per_event: int = setting(
        1,
        "Maximum number of connections that a proxy accepts per socket event. 0 means no limit.",
        env="MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP",
    )
    persistent_sessions: bool = setting(
        False,
        "Enable persistent sessions for services with one of the persistent session labels.",
        env="PILOT_ENABLE_PERSISTENT_SESSION_FILTER",
    )
    continue_100: bool = setting(True, "Forward 100 Continue responses.", env="ENABLE_100_CONTINUE_HEADERS")
    use_remote_address: bool = setting(
        False,
        "Set use_remote_address on the outbound HTTP connection managers of sidecars. Envoy then treats "
        "clients with internal addresses as internal and keeps the x-envoy-* headers of their requests.",
        env="PILOT_SIDECAR_USE_REMOTE_ADDRESS",
    )
    alpn_filter: bool = setting(
        True, "Advertise the detected protocol to the peer in ALPN.", env="PILOT_ENABLE_ALPN_FILTER"
    )
    ingress_tls: bool = setting(
        False, "Apply the TLS settings of a Sidecar's ingress listeners.", env="ENABLE_TLS_ON_SIDECAR_INGRESS"
    )
    merge_ingress_with_services: bool = setting(
        False,
        "If a Sidecar has ingress listeners, also accept traffic on the ports of the workload's services.",
        env="PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE",
    )
    hcm_internal_networks: bool = setting(
        False,
        "Treat the addresses of the mesh networks as internal in HTTP connection managers.",
        env="ENABLE_HCM_INTERNAL_NETWORKS",
    )


@dataclasses.dataclass(frozen=True)
class RouteSettings:
    """Virtual hosts and routes."""

    absolute_domains: bool = setting(
        True, "Also match host names with a trailing dot.", env="PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN"
    )
    no_shadow_suffix: bool = setting(
        True, "Keep the host of mirrored requests instead of appending -shadow to it.", env="DISABLE_SHADOW_HOST_SUFFIX"
    )


@dataclasses.dataclass(frozen=True)
class GatewaySettings:
    """Gateway proxies: the Gateways that apply to them, and their listeners and clusters."""

    scope_to_namespace: bool = setting(
        False, "Apply Gateways only to gateway proxies in their own namespace.", env="PILOT_SCOPE_GATEWAY_TO_NAMESPACE"
    )
    filter_clusters: bool = setting(
        False,
        "Send a gateway proxy only the clusters that its routes reference.",
        env="PILOT_FILTER_GATEWAY_CLUSTER_CONFIG",
    )
    quic_listeners: bool = setting(
        False,
        "Serve HTTP/3 on ports where a Gateway terminates TLS, if the Service of its proxies also exposes the "
        "port over UDP.",
        env="PILOT_ENABLE_QUIC_LISTENERS",
    )
    collapse_routes: bool = setting(
        True,
        "Build one virtual host for all hosts with the same routes.",
        env="PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION",
    )
    handshake_timeout: Duration = setting(
        parse_duration("15s"),
        "Timeout of TLS handshakes at a gateway. 0s means no limit.",
        env="PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT",
    )


@dataclasses.dataclass(frozen=True)
class GatewayApiSettings:
    """The Gateway API and Ingress."""

    enabled: bool = setting(True, "Process Gateway API objects.", env="PILOT_ENABLE_GATEWAY_API")
    alpha: bool = setting(False, "Process the alpha kinds of the Gateway API.", env="PILOT_ENABLE_ALPHA_GATEWAY_API")
    inference: bool = setting(False, "Process InferencePools.", env="ENABLE_GATEWAY_API_INFERENCE_EXTENSION")
    default_class: str = setting(
        "istio", "Name of the built-in GatewayClass.", env="PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME"
    )
    controller: str = setting(
        "istio.io/gateway-controller",
        "Controller name of the GatewayClasses that this control plane implements.",
        env="PILOT_GATEWAY_API_CONTROLLER_NAME",
    )
    manual_deployment: bool = setting(
        True,
        "If the addresses of a Gateway refer to Services, use their workloads instead of deploying proxies.",
        env="ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT",
    )
    strict_merging: bool = setting(
        True,
        "Do not apply Istio Gateways of other namespaces to proxies that are deployed for a Gateway API Gateway.",
        env="PILOT_ENABLE_STRICT_GATEWAY_MERGING",
    )
    remote_gateways: bool = setting(
        True,
        "Treat Gateways of class istio-remote as the gateways of other networks.",
        env="PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API",
    )
    ingress_namespace: str = setting(
        "istio-system", "Namespace of the gateway proxies that implement Ingresses.", env="K8S_INGRESS_NS"
    )


@dataclasses.dataclass(frozen=True)
class MeshSettings:
    """The settings that derived resources depend on."""

    registry: RegistrySettings = section(RegistrySettings(), "Services and workloads")
    tls: TlsSettings = section(TlsSettings(), "TLS")
    policies: PolicySettings = section(PolicySettings(), "Policies")
    telemetry: TelemetrySettings = section(TelemetrySettings(), "Telemetry")
    clusters: ClusterSettings = section(ClusterSettings(), "Clusters")
    listeners: ListenerSettings = section(ListenerSettings(), "Listeners")
    routes: RouteSettings = section(RouteSettings(), "Routes")
    gateways: GatewaySettings = section(GatewaySettings(), "Gateways")
    gateway_api: GatewayApiSettings = section(GatewayApiSettings(), "Gateway API and Ingress")
    ambient: AmbientSettings = section(AmbientSettings(), "Ambient mesh")
