"""Settings of what proxies get: the services that there are, and the Envoy resources that are made of them."""

# ruff: noqa: RUF009 (the values of setting() are immutable)
from __future__ import annotations

import dataclasses

from pilot.lib.duration import Duration, parse_duration
from pilot.settings.ambient import AmbientSettings
from pilot.settings.declaration import section, setting


@dataclasses.dataclass(frozen=True)
class RegistrySettings:
    """Which services, workloads and endpoints there are, and who they are."""

    namespace: str = setting(
        "istio-system", "Namespace of the control plane.", flag="namespace", short="n", env="POD_NAMESPACE"
    )
    cluster_id: str = setting("Kubernetes", "Name of the local cluster.", flag="clusterID", env="CLUSTER_ID")
    domain: str = setting("cluster.local", "DNS suffix of the services of the cluster.", flag="domain")
    dual_stack: bool = setting(False, "Use both IP families of a proxy that has both.", env="ISTIO_DUAL_STACK")
    multicluster_headless: bool = setting(
        True,
        "Names of headless services are answered with the pods of every cluster in the network.",
        env="ENABLE_MULTICLUSTER_HEADLESS",
    )
    ip_autoallocate: bool = setting(
        True,
        "Proxies that capture DNS use the addresses that are allocated to services without one.",
        env="PILOT_ENABLE_IP_AUTOALLOCATE",
    )
    ip_autoallocate_ipv4: str = setting(
        "240.240.0.0/16", "Prefix of allocated IPv4 addresses.", env="PILOT_IP_AUTOALLOCATE_IPV4_PREFIX"
    )
    ip_autoallocate_ipv6: str = setting(
        "2001:2::/48", "Prefix of allocated IPv6 addresses.", env="PILOT_IP_AUTOALLOCATE_IPV6_PREFIX"
    )
    persistent_session_label: str = setting(
        "istio.io/persistent-session",
        "Label of services with sessions by cookie.",
        env="PILOT_PERSISTENT_SESSION_LABEL",
    )
    persistent_session_header_label: str = setting(
        "istio.io/persistent-session-header",
        "Label of services with sessions by header.",
        env="PILOT_PERSISTENT_SESSION_HEADER_LABEL",
    )
    draining_label: str = setting(
        "istio.io/draining", "Label of workloads that take no new sessions.", env="PILOT_DRAINING_LABEL"
    )
    services_select_entries: bool = setting(
        True, "Kubernetes Services select WorkloadEntries too.", env="PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES"
    )
    entries_select_pods: bool = setting(
        True, "ServiceEntries select Pods too.", env="PILOT_ENABLE_SERVICEENTRY_SELECT_PODS"
    )
    best_namespace: bool = setting(
        True,
        "Of the services of a host that a route names one of Kubernetes comes first, then the oldest; otherwise the first by namespace.",
        env="PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE",
    )
    entry_health_checks: bool = setting(
        True,
        "Leave out WorkloadEntries whose health checks have not passed.",
        env="PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS",
    )
    mcs_discovery: bool = setting(
        False,
        "Endpoints are seen in other clusters only where a ServiceExport has them be.",
        env="ENABLE_MCS_SERVICE_DISCOVERY",
    )
    mcs_hosts: bool = setting(
        False,
        "With that, services that are imported have the host NAME.NAMESPACE.svc.clusterset.local too.",
        env="ENABLE_MCS_HOST",
    )
    mcs_cluster_local: bool = setting(
        False,
        "With both, by their other host services are reached in the own cluster alone.",
        env="ENABLE_MCS_CLUSTER_LOCAL",
    )
    find_pod_by_ip: bool = setting(
        False, "Find the pod of a proxy by its address where its id names none.", env="ENABLE_PROXY_FIND_POD_BY_IP"
    )
    label_external_services: bool = setting(
        False,
        "Name the canonical service of endpoints outside of the mesh.",
        env="LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES",
    )
    merge_rules_by_export: bool = setting(
        True,
        "Merge the DestinationRules of a host only where their exportTo are equal.",
        env="ENABLE_ENHANCED_DESTINATIONRULE_MERGE",
    )


@dataclasses.dataclass(frozen=True)
class TlsSettings:
    """TLS between proxies, and to the outside."""

    compliance_policy: str = setting(
        "", "Restricts TLS everywhere: fips-140-2, fips-140-3 or pqc.", env="COMPLIANCE_POLICY"
    )
    skip_validate_trust_domain: bool = setting(
        False, "Let clients of any trust domain in.", env="PILOT_SKIP_VALIDATE_TRUST_DOMAIN"
    )
    external_tls_by_rule: bool = setting(
        True,
        "For services outside of the mesh, TLS of a DestinationRule comes before the proxy's own certificate files.",
        env="PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES",
    )


@dataclasses.dataclass(frozen=True)
class PolicySettings:
    """Policies of workloads."""

    several_authorizers: bool = setting(
        False,
        "A workload may ask several external authorizers; without it, policies that name several deny.",
        env="PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS",
    )
    selected_gateways: bool = setting(
        True,
        "Policies that select workloads are for routers of the Gateway API too, not only those that name a Gateway.",
        env="ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY",
    )
    remote_jwks: str = setting(
        "false",
        "Who fetches the key sets of issuers: the control plane (false, istiod), the proxies (envoy), or the proxies where a service of the "
        "mesh has them (true, hybrid).",
        env="PILOT_JWT_ENABLE_REMOTE_JWKS",
    )


@dataclasses.dataclass(frozen=True)
class TelemetrySettings:
    """What proxies tell about themselves and of requests."""

    metadata_exchange: bool = setting(True, "Peers exchange their metadata.", env="PILOT_ENABLE_METADATA_EXCHANGE")
    metadata_exchange_labels: tuple[str, ...] = setting(
        (), "Labels that peers exchange beyond the usual ones.", env="PILOT_MX_ADDITIONAL_LABELS"
    )
    disable_metadata_exchange_alpn: bool = setting(
        False, "Leave the metadata exchange out of TLS's ALPN.", env="PILOT_DISABLE_MX_ALPN"
    )
    cluster_label: bool = setting(
        True, "Name the services of a cluster in its metadata, for telemetry.", env="PILOT_ENABLE_TELEMETRY_LABEL"
    )
    endpoint_label: bool = setting(
        True, "Name the workload of each endpoint in its metadata.", env="PILOT_ENDPOINT_TELEMETRY_LABEL"
    )
    trace_sampling: float = setting(
        1.0, "Percent of requests traced where the mesh does not say.", env="PILOT_TRACE_SAMPLING"
    )


@dataclasses.dataclass(frozen=True)
class ClusterSettings:
    """Clusters and their endpoints."""

    dns_udp_max_queries: int = setting(
        100,
        "Queries that one UDP socket of Envoy's DNS client serves; 0: no limit.",
        env="PILOT_DNS_CARES_UDP_MAX_QUERIES",
    )
    dns_jitter: Duration = setting(
        Duration.of(0.1), "Jitter of periodic DNS resolution.", env="PILOT_DNS_JITTER_DURATION"
    )
    dynamic_dns_max_hosts: int = setting(
        1024, "Hosts that the DNS cache of ALLOW_ANY_DYNAMIC_DNS holds.", env="PILOT_ALLOW_ANY_DYNAMIC_DNS_MAX_HOSTS"
    )
    locality_weighted_lb: bool = setting(
        False, "Weigh localities in every cluster.", env="ENABLE_LOCALITY_WEIGHTED_LB_CONFIG"
    )
    send_unhealthy_endpoints: bool = setting(
        True,
        "Send endpoints that are not ready too, except where minHealthPercent of outlier detection is over 0.",
        env="PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS",
    )
    always_send_unhealthy_endpoints: bool = setting(
        False, "Send endpoints that are not ready too, whatever rules say.", env="PILOT_SEND_UNHEALTHY_ENDPOINTS"
    )
    headless_eds: bool = setting(
        False,
        "Balance headless services over EDS instead of passing them through.",
        env="PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES",
    )
    disable_remaining_metrics: bool = setting(
        True, "Do not have circuit breakers publish what remains.", env="DISABLE_TRACK_REMAINING_CB_METRICS"
    )


@dataclasses.dataclass(frozen=True)
class ListenerSettings:
    """Listeners and their filters."""

    http10: bool = setting(False, "Accept HTTP/1.0 everywhere.", env="PILOT_HTTP10")
    ipv6_only_has_ipv4: bool = setting(
        False,
        "IPv6-only proxies may still reach IPv4 destinations.",
        env="ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS",
    )
    mongo_filter: bool = setting(True, "Look into the traffic of Mongo ports.", env="PILOT_ENABLE_MONGO_FILTER")
    redis_filter: bool = setting(
        False, "Route the traffic of Redis ports by Redis commands.", env="PILOT_ENABLE_REDIS_FILTER"
    )
    mysql_filter: bool = setting(False, "Look into the traffic of MySQL ports.", env="PILOT_ENABLE_MYSQL_FILTER")
    headless_filter_chains: bool = setting(
        False,
        "One listener with a chain a pod for TCP ports of headless services, not a listener a pod.",
        env="PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER",
    )
    connections_per_event: int = setting(
        1, "Connections that a proxy accepts at once. 0: no limit.", env="MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP"
    )
    persistent_sessions: bool = setting(
        False,
        "Sticky sessions for services labelled istio.io/persistent-session.",
        env="PILOT_ENABLE_PERSISTENT_SESSION_FILTER",
    )
    continue_100: bool = setting(True, "Pass 100 Continue through.", env="ENABLE_100_CONTINUE_HEADERS")
    use_remote_address: bool = setting(
        False,
        "Outbound requests of sidecars keep trusted headers, for their sender is taken for internal.",
        env="PILOT_SIDECAR_USE_REMOTE_ADDRESS",
    )
    alpn_filter: bool = setting(
        True, "Tell the peer by ALPN which protocol was detected.", env="PILOT_ENABLE_ALPN_FILTER"
    )
    ingress_tls: bool = setting(
        False, "TLS settings of a Sidecar's ingress listeners take effect.", env="ENABLE_TLS_ON_SIDECAR_INGRESS"
    )
    merge_ingress_with_services: bool = setting(
        False,
        "Accept traffic on the ports of services too where a Sidecar has ingress listeners.",
        env="PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE",
    )
    hcm_internal_networks: bool = setting(
        False,
        "Addresses of the mesh networks count as internal to HTTP connection managers.",
        env="ENABLE_HCM_INTERNAL_NETWORKS",
    )


@dataclasses.dataclass(frozen=True)
class RouteSettings:
    """Virtual hosts and routes."""

    absolute_domains: bool = setting(
        True, "Virtual hosts answer to names with the final dot too.", env="PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN"
    )
    no_shadow_suffix: bool = setting(
        True, "Mirrored requests keep their host, without -shadow.", env="DISABLE_SHADOW_HOST_SUFFIX"
    )


@dataclasses.dataclass(frozen=True)
class GatewaySettings:
    """What routers listen to and get."""

    scope_to_namespace: bool = setting(
        False, "A router takes only Gateways of its own namespace.", env="PILOT_SCOPE_GATEWAY_TO_NAMESPACE"
    )
    filter_clusters: bool = setting(
        False, "Send a router only the clusters that its routes name.", env="PILOT_FILTER_GATEWAY_CLUSTER_CONFIG"
    )
    quic_listeners: bool = setting(
        False, "Answer HTTP/3 where a Gateway ends TLS on a port that is UDP too.", env="PILOT_ENABLE_QUIC_LISTENERS"
    )
    collapse_routes: bool = setting(
        True, "One virtual host for all hosts of the same routes.", env="PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION"
    )
    handshake_timeout: Duration = setting(
        parse_duration("15s"),
        "Time that a router gives TLS handshakes. 0s: no limit.",
        env="PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT",
    )


@dataclasses.dataclass(frozen=True)
class GatewayApiSettings:
    """The Gateway API and Ingress."""

    enabled: bool = setting(True, "Obey objects of the Gateway API.", env="PILOT_ENABLE_GATEWAY_API")
    alpha: bool = setting(False, "Obey its alpha kinds too.", env="PILOT_ENABLE_ALPHA_GATEWAY_API")
    inference: bool = setting(False, "Obey InferencePools.", env="ENABLE_GATEWAY_API_INFERENCE_EXTENSION")
    default_class: str = setting(
        "istio", "The GatewayClass that exists without any object.", env="PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME"
    )
    controller: str = setting(
        "istio.io/gateway-controller",
        "The controller that GatewayClasses name.",
        env="PILOT_GATEWAY_API_CONTROLLER_NAME",
    )
    manual_deployment: bool = setting(
        True,
        "The Services that a Gateway names as its addresses are its routers.",
        env="ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT",
    )
    strict_merging: bool = setting(
        True,
        "Routers that are deployed for a Gateway take no Gateways of Istio's own kind from other namespaces.",
        env="PILOT_ENABLE_STRICT_GATEWAY_MERGING",
    )
    remote_gateways: bool = setting(
        True,
        "Gateways of class istio-remote are those of other networks.",
        env="PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API",
    )
    ingress_namespace: str = setting(
        "istio-system", "Namespace of the routers that Ingresses are for.", env="K8S_INGRESS_NS"
    )


@dataclasses.dataclass(frozen=True)
class MeshSettings:
    """What the model and the translation read."""

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
