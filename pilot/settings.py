"""Every setting of the process: flag, environment variable, default and one sentence. Passed in, never global.

A flag wins over its variable, a variable over the default. The type of the default says how the text is read: Go's syntax for
booleans, integers and durations; tuples are parts between commas.

    python -m pilot.settings                            prints docs/settings.md
    python -m pilot.settings --check docs/settings.md   exit 1 where that file is not what would be printed
"""
# ruff: noqa: RUF009 (the values of setting() are immutable)
from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pilot.lib import flags
from pilot.lib.duration import Duration, format_duration, parse_duration

FOREVER = Duration(2**63 - 1)


def setting(default: Any, about: str, *, flag: str = "", short: str = "", env: str = "") -> Any:
    """A field of `Settings`: its default, one sentence, the flag (and its letter) and the environment variable that set it."""
    return dataclasses.field(default=default, metadata={"about": about, "flag": flag, "short": short, "env": env})


@dataclasses.dataclass(frozen=True)
class Settings:
    """What flags and environment say. Durations are nanoseconds, as everywhere."""

    # Identity
    pod_name: str = setting("", "Name of this process's own pod, for logs and identifiers.", env="POD_NAME")
    namespace: str = setting("istio-system", "Namespace of the control plane.", flag="namespace", short="n", env="POD_NAMESPACE")
    cluster_id: str = setting("Kubernetes", "Name of the local cluster.", flag="clusterID", env="CLUSTER_ID")
    cluster_aliases: tuple[str, ...] = setting((), "Other names of clusters in what proxies announce, as alias=cluster.", flag="clusterAliases")
    revision: str = setting("", "Revision: objects with the label istio.io/rev of another one are left out.", env="REVISION")
    domain: str = setting("cluster.local", "DNS suffix of the services of the cluster.", flag="domain")

    # Configuration sources
    registries: tuple[str, ...] = setting(("Kubernetes",), "Service registries to read; only Kubernetes exists.", flag="registries")
    config_dir: str = setting("", "Folder of YAML and JSON files to read configuration from, and to follow.", flag="configDir")
    mesh_config: str = setting("./etc/istio/config/mesh", "File with the mesh config.", flag="meshConfig")
    networks_config: str = setting("./etc/istio/config/meshNetworks", "File with the mesh networks.", flag="networksConfig")
    debounce_after: Duration = setting(parse_duration("100ms"), "Quiet time after a change before it is applied.", env="PILOT_DEBOUNCE_AFTER")
    debounce_max: Duration = setting(parse_duration("10s"), "Longest time that changes without a pause wait.", env="PILOT_DEBOUNCE_MAX")

    # Listening addresses
    http_address: str = setting(":8080", "Address of /ready and the debug pages.", flag="httpAddr")
    grpc_address: str = setting(":15010", "Address of plaintext xDS; empty for none.", flag="grpcAddr")
    monitoring_address: str = setting(":15014", "Address of /metrics, /version and debug; empty for the HTTP address.", flag="monitoringAddr")
    shutdown_duration: Duration = setting(parse_duration("10s"), "Time that open streams get to end after SIGTERM.", flag="shutdownDuration")

    # Serving
    keepalive_interval: Duration = setting(
        parse_duration("30s"), "Time without activity after which a connection is probed.", flag="keepaliveInterval", env="GRPC_KEEPALIVE_INTERVAL"
    )
    keepalive_timeout: Duration = setting(
        parse_duration("10s"), "Time within which a probed connection must answer.", flag="keepaliveTimeout", env="GRPC_KEEPALIVE_TIMEOUT"
    )
    max_connection_age: Duration = setting(
        FOREVER, "Age at which a connection is asked to reconnect, which spreads proxies over replicas.", flag="keepaliveMaxServerConnectionAge"
    )
    max_streams: int = setting(100_000, "Streams that one connection may have.", env="ISTIO_GPRC_MAXSTREAMS")
    max_receive_bytes: int = setting(4 * 1024 * 1024, "Largest request that is taken, in bytes.", env="ISTIO_GPRC_MAXRECVMSGSIZE")
    stream_rate: float = setting(
        0.0, "New streams admitted a second; one that would wait for over a second is turned away. 0: no limit.", env="PILOT_MAX_REQUESTS_PER_SECOND"
    )
    bytes_in_flight: int = setting(
        64 * 1024 * 1024, "Bytes of large responses that are written at once, over all connections.", env="PILOT_PUSH_BYTES_IN_FLIGHT"
    )

    # Debug pages
    debug_on_http: bool = setting(True, "Serve the pages below /debug.", env="ENABLE_DEBUG_ON_HTTP")
    unsafe_admin: bool = setting(False, "Serve /debug/force_disconnect.", env="UNSAFE_ENABLE_ADMIN_ENDPOINTS")
    metrics_loopback_only: bool = setting(False, "Answer /metrics on the loopback interface only.", env="METRICS_LOCALHOST_ACCESS_ONLY")

    # Clusters and TLS
    dual_stack: bool = setting(False, "Use both IP families of a proxy that has both.", env="ISTIO_DUAL_STACK")
    ipv6_only_has_ipv4: bool = setting(
        False, "IPv6-only proxies may still reach IPv4 destinations.", env="ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS"
    )
    compliance_policy: str = setting("", "Restricts TLS everywhere: fips-140-2, fips-140-3 or pqc.", env="COMPLIANCE_POLICY")
    skip_validate_trust_domain: bool = setting(False, "Let clients of any trust domain in.", env="PILOT_SKIP_VALIDATE_TRUST_DOMAIN")
    metadata_exchange: bool = setting(True, "Peers exchange their metadata.", env="PILOT_ENABLE_METADATA_EXCHANGE")
    metadata_exchange_labels: tuple[str, ...] = setting((), "Labels that peers exchange beyond the usual ones.", env="PILOT_MX_ADDITIONAL_LABELS")
    disable_metadata_exchange_alpn: bool = setting(False, "Leave the metadata exchange out of TLS's ALPN.", env="PILOT_DISABLE_MX_ALPN")
    telemetry_label: bool = setting(True, "Name the services of a cluster in its metadata, for telemetry.", env="PILOT_ENABLE_TELEMETRY_LABEL")
    dns_udp_max_queries: int = setting(
        100, "Queries that one UDP socket of Envoy's DNS client serves; 0: no limit.", env="PILOT_DNS_CARES_UDP_MAX_QUERIES"
    )
    dns_jitter: Duration = setting(Duration.of(0.1), "Jitter of periodic DNS resolution.", env="PILOT_DNS_JITTER_DURATION")
    dynamic_dns_max_hosts: int = setting(
        1024, "Hosts that the DNS cache of ALLOW_ANY_DYNAMIC_DNS holds.", env="PILOT_ALLOW_ANY_DYNAMIC_DNS_MAX_HOSTS"
    )
    locality_weighted_lb: bool = setting(False, "Weigh localities in every cluster.", env="ENABLE_LOCALITY_WEIGHTED_LB_CONFIG")
    send_unhealthy_endpoints: bool = setting(
        True, "Send endpoints that are not ready too, except where minHealthPercent of outlier detection is over 0.",
        env="PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS"
    )
    always_send_unhealthy_endpoints: bool = setting(
        False, "Send endpoints that are not ready too, whatever rules say.", env="PILOT_SEND_UNHEALTHY_ENDPOINTS"
    )
    headless_eds: bool = setting(
        False, "Balance headless services over EDS instead of passing them through.", env="PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES"
    )
    disable_remaining_metrics: bool = setting(True, "Do not have circuit breakers publish what remains.", env="DISABLE_TRACK_REMAINING_CB_METRICS")
    merge_rules_by_export: bool = setting(
        True, "Merge the DestinationRules of a host only where their exportTo are equal.", env="ENABLE_ENHANCED_DESTINATIONRULE_MERGE"
    )
    external_tls_by_rule: bool = setting(
        True, "For services outside of the mesh, TLS of a DestinationRule comes before the proxy's own certificate files.",
        env="PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES",
    )
    merge_ingress_with_services: bool = setting(
        False, "Accept traffic on the ports of services too where a Sidecar has ingress listeners.",
        env="PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE"
    )

    # Logging
    log_targets: tuple[str, ...] = setting(("stdout",), "Where logs go: stdout, stderr or file paths.", flag="log_target")
    log_as_json: bool = setting(False, "Log JSON objects instead of lines.", flag="log_as_json")
    log_output_level: str = setting("default:info", "Levels as scope:level between commas; the scope all overrides.", flag="log_output_level")

    # Listeners
    http10: bool = setting(False, "Accept HTTP/1.0 everywhere.", env="PILOT_HTTP10")
    ip_autoallocate: bool = setting(
        True, "Proxies that capture DNS use the addresses that are allocated to services without one.", env="PILOT_ENABLE_IP_AUTOALLOCATE"
    )
    trace_sampling: float = setting(1.0, "Percent of requests traced where the mesh does not say.", env="PILOT_TRACE_SAMPLING")
    mongo_filter: bool = setting(True, "Look into the traffic of Mongo ports.", env="PILOT_ENABLE_MONGO_FILTER")
    redis_filter: bool = setting(False, "Route the traffic of Redis ports by Redis commands.", env="PILOT_ENABLE_REDIS_FILTER")
    mysql_filter: bool = setting(False, "Look into the traffic of MySQL ports.", env="PILOT_ENABLE_MYSQL_FILTER")
    headless_filter_chains: bool = setting(
        False, "One listener with a chain a pod for TCP ports of headless services, not a listener a pod.",
        env="PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER"
    )
    connections_per_event: int = setting(1, "Connections that a proxy accepts at once. 0: no limit.", env="MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP")
    persistent_sessions: bool = setting(
        False, "Sticky sessions for services labelled istio.io/persistent-session.", env="PILOT_ENABLE_PERSISTENT_SESSION_FILTER"
    )
    continue_100: bool = setting(True, "Pass 100 Continue through.", env="ENABLE_100_CONTINUE_HEADERS")
    use_remote_address: bool = setting(
        False, "Outbound requests of sidecars keep trusted headers, for their sender is taken for internal.", env="PILOT_SIDECAR_USE_REMOTE_ADDRESS"
    )
    alpn_filter: bool = setting(True, "Tell the peer by ALPN which protocol was detected.", env="PILOT_ENABLE_ALPN_FILTER")
    ingress_tls: bool = setting(False, "TLS settings of a Sidecar's ingress listeners take effect.", env="ENABLE_TLS_ON_SIDECAR_INGRESS")
    hcm_internal_networks: bool = setting(
        False, "Addresses of the mesh networks count as internal to HTTP connection managers.", env="ENABLE_HCM_INTERNAL_NETWORKS"
    )

    # Registry
    ip_autoallocate_ipv4: str = setting("240.240.0.0/16", "Prefix of allocated IPv4 addresses.", env="PILOT_IP_AUTOALLOCATE_IPV4_PREFIX")
    ip_autoallocate_ipv6: str = setting("2001:2::/48", "Prefix of allocated IPv6 addresses.", env="PILOT_IP_AUTOALLOCATE_IPV6_PREFIX")
    persistent_session_label: str = setting(
        "istio.io/persistent-session", "Label of services with sessions by cookie.", env="PILOT_PERSISTENT_SESSION_LABEL"
    )
    persistent_session_header_label: str = setting(
        "istio.io/persistent-session-header", "Label of services with sessions by header.", env="PILOT_PERSISTENT_SESSION_HEADER_LABEL"
    )
    draining_label: str = setting("istio.io/draining", "Label of workloads that take no new sessions.", env="PILOT_DRAINING_LABEL")
    services_select_entries: bool = setting(
        True, "Kubernetes Services select WorkloadEntries too.", env="PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES"
    )
    entry_health_checks: bool = setting(
        True, "Leave out WorkloadEntries whose health checks have not passed.", env="PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS"
    )
    find_pod_by_ip: bool = setting(False, "Find the pod of a proxy by its address where its id names none.", env="ENABLE_PROXY_FIND_POD_BY_IP")
    label_external_services: bool = setting(
        False, "Name the canonical service of endpoints outside of the mesh.", env="LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES"
    )
    endpoint_telemetry_label: bool = setting(True, "Name the workload of each endpoint in its metadata.", env="PILOT_ENDPOINT_TELEMETRY_LABEL")

    # Routes
    absolute_domains: bool = setting(
        True, "Virtual hosts answer to names with the final dot too.", env="PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN"
    )
    no_shadow_suffix: bool = setting(True, "Mirrored requests keep their host, without -shadow.", env="DISABLE_SHADOW_HOST_SUFFIX")

    # Gateways
    scope_gateway_to_namespace: bool = setting(False, "A router takes only Gateways of its own namespace.", env="PILOT_SCOPE_GATEWAY_TO_NAMESPACE")
    filter_gateway_clusters: bool = setting(False, "Send a router only the clusters that its routes name.", env="PILOT_FILTER_GATEWAY_CLUSTER_CONFIG")
    quic_listeners: bool = setting(False, "Answer HTTP/3 where a Gateway ends TLS on a port that is UDP too.", env="PILOT_ENABLE_QUIC_LISTENERS")
    collapse_routes: bool = setting(True, "One virtual host for all hosts of the same routes.", env="PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION")
    gateway_handshake_timeout: Duration = setting(
        parse_duration("15s"), "Time that a router gives TLS handshakes. 0s: no limit.", env="PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT"
    )


class Loaded(NamedTuple):
    """Settings as read, the value of every flag by name for the log, and what was not used: sentences for the log."""

    settings: Settings
    flags: dict[str, str]
    warnings: list[str]


def load(argv: Sequence[str], environ: Mapping[str, str]) -> Loaded:
    """Read the settings. A bad flag raises `FlagError`; a bad variable is left at its default with a warning, as in Istio."""
    declared = dataclasses.fields(Settings)
    named = {f.metadata["flag"]: f for f in declared if f.metadata["flag"]}
    switches = {name for name, f in named.items() if isinstance(f.default, bool)}
    letters = {f.metadata["short"]: name for name, f in named.items() if f.metadata["short"]}
    given, unknown, positional = flags.scan(argv, named.keys(), switches, letters)
    if positional:
        raise flags.FlagError(f"unexpected argument {positional[0]!r}")
    warnings = [f"flag --{name} is not known and has no effect" for name in unknown]
    values: dict[str, Any] = {}
    for f in declared:
        env = f.metadata["env"]
        if env and environ.get(env):
            try:
                values[f.name] = read(environ[env], f.default)
            except ValueError as error:
                warnings.append(f"environment variable {env} is ignored: {error}")
        if texts := given.get(f.metadata["flag"]):
            try:
                values[f.name] = read(",".join(texts) if isinstance(f.default, tuple) else texts[-1], f.default)
            except ValueError as error:
                raise flags.FlagError(f"invalid argument for --{f.metadata['flag']}: {error}") from None
    settings = Settings(**values)
    return Loaded(settings, {name: show(getattr(settings, f.name)) for name, f in sorted(named.items())}, warnings)


def read(text: str, default: Any) -> Any:
    """A value of the type of `default` from its text; ValueError where it is none."""
    if isinstance(default, bool):
        return flags.parse_bool(text)
    if isinstance(default, Duration):
        return parse_duration(text)
    if isinstance(default, int):
        return flags.parse_int(text)
    if isinstance(default, float):
        return flags.parse_float(text)
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def show(value: Any) -> str:
    """A value as `read` would take it back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Duration):
        return format_duration(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def document() -> str:
    """docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Generated from `pilot/settings.py` by `python -m pilot.settings`; do not edit.",
        "A flag wins over its variable, a variable over the default. Flags that are not listed are accepted and have no effect.",
        "",
        "| flag | variable | default | meaning |",
        "|---|---|---|---|",
    ]
    for f in dataclasses.fields(Settings):
        flag = f"`--{f.metadata['flag']}`" + (f", `-{f.metadata['short']}`" if f.metadata["short"] else "") if f.metadata["flag"] else ""
        variable = f"`{f.metadata['env']}`" if f.metadata["env"] else ""
        default = show(f.default)
        lines.append(f"| {flag} | {variable} | {f'`{default}`' if default else ''} | {f.metadata['about']} |")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str]) -> int:
    """Print the document, or compare a file with it."""
    if not argv:
        print(document(), end="")
        return 0
    _, path = argv
    with open(path, encoding="utf-8") as file:
        if file.read() == document():
            return 0
    print(f"{path} is stale: python -m pilot.settings > {path}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
