"""The settings of `istio-iptables`.

They have the same names as in Istio's agent, because injection templates use them.
"""

# ruff: noqa: RUF009 (the values of setting() and section() are immutable)
from __future__ import annotations

import dataclasses

from pilot.lib.duration import Duration, parse_duration
from pilot.settings.declaration import section, setting
from pilot.settings.process import LogSettings


@dataclasses.dataclass(frozen=True)
class ProxySettings:
    """Ports of the proxy, and the users and groups that it runs as."""

    outbound_port: int = setting(
        15001, "Port of Envoy for outbound traffic.", flag="envoy-port", short="p", env="ENVOY_PORT"
    )
    inbound_port: int = setting(
        15006,
        "Port of Envoy for inbound traffic.",
        flag="inbound-capture-port",
        short="z",
        env="INBOUND_CAPTURE_PORT",
    )
    tunnel_port: int = setting(
        15008,
        "Port of Envoy for HBONE, which is not captured.",
        flag="inbound-tunnel-port",
        short="e",
        env="INBOUND_TUNNEL_PORT",
    )
    users: tuple[str, ...] = setting(
        (),
        "Users (UIDs or names) that the proxy runs as. Their traffic is not captured. If empty, ENVOY_USER is used.",
        flag="proxy-uid",
        short="u",
        env="PROXY_UID",
    )
    groups: tuple[str, ...] = setting(
        (),
        "Groups (GIDs or names) that the proxy runs as. Their traffic is not captured. If empty, the numeric user IDs "
        "from --proxy-uid are used.",
        flag="proxy-gid",
        short="g",
        env="PROXY_GID",
    )
    user_name: str = setting(
        "istio-proxy",
        "User name of the proxy if --proxy-uid is empty. If there is no such user, 1337 is used.",
        env="ENVOY_USER",
    )


@dataclasses.dataclass(frozen=True)
class InboundSettings:
    """Inbound traffic to capture."""

    mode: str = setting(
        "REDIRECT",
        "REDIRECT, or TPROXY, which preserves the client's address.",
        flag="istio-inbound-interception-mode",
        short="m",
        env="ISTIO_INBOUND_INTERCEPTION_MODE",
    )
    mark: int = setting(
        1337,
        "Mark of captured packets in TPROXY mode.",
        flag="istio-inbound-tproxy-mark",
        short="t",
        env="ISTIO_INBOUND_TPROXY_MARK",
    )
    table: int = setting(
        133,
        "Routing table of captured packets in TPROXY mode.",
        flag="istio-inbound-tproxy-route-table",
        short="r",
        env="ISTIO_INBOUND_TPROXY_ROUTE_TABLE",
    )
    ports: tuple[str, ...] = setting(
        (), "Inbound ports to capture; * for all.", flag="istio-inbound-ports", short="b", env="ISTIO_INBOUND_PORTS"
    )
    excluded_ports: tuple[str, ...] = setting(
        (),
        "Inbound ports to exclude if all ports are captured.",
        flag="istio-local-exclude-ports",
        short="d",
        env="ISTIO_LOCAL_EXCLUDE_PORTS",
    )


@dataclasses.dataclass(frozen=True)
class OutboundSettings:
    """Outbound traffic to capture."""

    networks: tuple[str, ...] = setting(
        (),
        "Destination CIDRs to capture; * for all.",
        flag="istio-service-cidr",
        short="i",
        env="ISTIO_SERVICE_CIDR",
    )
    excluded_networks: tuple[str, ...] = setting(
        (),
        "Destination CIDRs to exclude.",
        flag="istio-service-exclude-cidr",
        short="x",
        env="ISTIO_SERVICE_EXCLUDE_CIDR",
    )
    ports: tuple[str, ...] = setting(
        (),
        "Destination ports to capture regardless of the CIDR.",
        flag="istio-outbound-ports",
        short="q",
        env="ISTIO_OUTBOUND_PORTS",
    )
    excluded_ports: tuple[str, ...] = setting(
        (),
        "Destination ports to exclude.",
        flag="istio-local-outbound-ports-exclude",
        short="o",
        env="ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE",
    )
    groups: tuple[str, ...] = setting(
        ("*",),
        "Unix groups (GIDs or names) whose traffic is captured; * for all.",
        env="ISTIO_OUTBOUND_OWNER_GROUPS",
    )
    excluded_groups: tuple[str, ...] = setting(
        (),
        "Unix groups (GIDs or names) whose traffic is not captured if ISTIO_OUTBOUND_OWNER_GROUPS is *.",
        env="ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE",
    )
    loopback: str = setting(
        "127.0.0.1/32", "IPv4 CIDR that is treated as loopback.", env="ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"
    )


@dataclasses.dataclass(frozen=True)
class PodNetworkSettings:
    """Network interfaces, IP families and DNS of the pod."""

    excluded_interfaces: tuple[str, ...] = setting(
        (),
        "Network interfaces to exclude.",
        flag="istio-exclude-interfaces",
        short="c",
        env="ISTIO_EXCLUDE_INTERFACES",
    )
    virtual_interfaces: tuple[str, ...] = setting(
        (),
        "Interfaces of virtual machines. Traffic that arrives on them is treated as outbound traffic of the pod.",
        flag="kube-virt-interfaces",
        short="k",
        env="KUBEVIRT_INTERFACES",
    )
    dual_stack: bool = setting(
        False,
        "Capture IPv6 even if the first address of the pod is an IPv4 address.",
        flag="dual-stack",
        env="ISTIO_DUAL_STACK",
    )
    dns: bool = setting(
        False, "Redirect DNS queries to the agent, on port 15053.", flag="redirect-dns", env="ISTIO_META_DNS_CAPTURE"
    )
    all_dns: bool = setting(
        False,
        "Redirect queries to all DNS servers, not only to those in /etc/resolv.conf.",
        flag="capture-all-dns",
        env="CAPTURE_ALL_DNS",
    )
    drop_invalid: bool = setting(
        False,
        "Drop packets that belong to no connection. Otherwise, they can cause connections to be reset.",
        flag="drop-invalid",
        env="INVALID_DROP",
    )


@dataclasses.dataclass(frozen=True)
class OperationSettings:
    """Application, removal and validation of the rules."""

    dry_run: bool = setting(False, "Print the rules without applying them.", flag="dry-run", short="n", env="DRY_RUN")
    skip: bool = setting(
        False,
        "Do not apply the rules, for example because a CNI plugin has applied them.",
        flag="skip-rule-apply",
        env="SKIP_RULE_APPLY",
    )
    clean: bool = setting(False, "Remove the rules.", flag="cleanup-only", env="CLEANUP_ONLY")
    native: bool = setting(
        False, "Use nftables even if iptables-restore is installed.", flag="native-nftables", env="NATIVE_NFTABLES"
    )
    variant: str = setting(
        "",
        "Variant of iptables: legacy or nft. If empty, the default of the system is used.",
        flag="force-iptables-binary",
        env="FORCE_IPTABLES_BINARY",
    )
    validate: bool = setting(False, "Check that connections are captured.", flag="run-validation", env="RUN_VALIDATION")
    probe_port: int = setting(
        15002, "Port that --run-validation connects to.", flag="iptables-probe-port", env="IPTABLES_PROBE_PORT"
    )
    probe_timeout: Duration = setting(
        parse_duration("5s"), "Timeout of --run-validation.", flag="probe-timeout", env="PROBE_TIMEOUT"
    )
    namespace: str = setting(
        "",
        "File of the network namespace. If empty, the namespace of the process is used.",
        flag="network-namespace",
        env="NETWORK_NAMESPACE",
    )


@dataclasses.dataclass(frozen=True)
class CaptureSettings:
    """The values of all flags and environment variables."""

    proxy: ProxySettings = section(ProxySettings(), "Proxy")
    inbound: InboundSettings = section(InboundSettings(), "Inbound traffic")
    outbound: OutboundSettings = section(OutboundSettings(), "Outbound traffic")
    pod: PodNetworkSettings = section(PodNetworkSettings(), "Interfaces, IP families and DNS")
    operation: OperationSettings = section(OperationSettings(), "Mode of operation")
    log: LogSettings = section(LogSettings(), "Logs")
