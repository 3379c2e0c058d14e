"""Every setting of `istio-iptables`, declared once. Names are those of Istio's agent, whose injection templates give them."""

# ruff: noqa: RUF009 (the values of setting() and section() are immutable)
from __future__ import annotations

import dataclasses

from pilot.lib.duration import Duration, parse_duration
from pilot.settings.declaration import section, setting
from pilot.settings.process import LogSettings


@dataclasses.dataclass(frozen=True)
class ProxySettings:
    """Who the proxy is, and where it listens."""

    outbound_port: int = setting(
        15001, "Port of Envoy for what leaves the pod.", flag="envoy-port", short="p", env="ENVOY_PORT"
    )
    inbound_port: int = setting(
        15006,
        "Port of Envoy for what comes into the pod.",
        flag="inbound-capture-port",
        short="z",
        env="INBOUND_CAPTURE_PORT",
    )
    tunnel_port: int = setting(
        15008,
        "Port of Envoy for tunnels (HBONE), which are left alone.",
        flag="inbound-tunnel-port",
        short="e",
        env="INBOUND_TUNNEL_PORT",
    )
    users: tuple[str, ...] = setting(
        (),
        "Users whose traffic is the proxy's own, by number or name; that of ENVOY_USER where there are none.",
        flag="proxy-uid",
        short="u",
        env="PROXY_UID",
    )
    groups: tuple[str, ...] = setting(
        (), "Groups whose traffic is the proxy's own; as the users.", flag="proxy-gid", short="g", env="PROXY_GID"
    )
    user_name: str = setting(
        "istio-proxy", "User of the proxy where no number is given; 1337 where nobody has the name.", env="ENVOY_USER"
    )


@dataclasses.dataclass(frozen=True)
class InboundSettings:
    """What is captured of that which comes into the pod."""

    mode: str = setting(
        "REDIRECT",
        "REDIRECT, or TPROXY, which keeps the address of the caller.",
        flag="istio-inbound-interception-mode",
        short="m",
        env="ISTIO_INBOUND_INTERCEPTION_MODE",
    )
    mark: int = setting(
        1337,
        "TPROXY: mark of captured packets.",
        flag="istio-inbound-tproxy-mark",
        short="t",
        env="ISTIO_INBOUND_TPROXY_MARK",
    )
    table: int = setting(
        133,
        "TPROXY: routing table of captured packets.",
        flag="istio-inbound-tproxy-route-table",
        short="r",
        env="ISTIO_INBOUND_TPROXY_ROUTE_TABLE",
    )
    ports: tuple[str, ...] = setting(
        (), "Ports that are captured; * for all.", flag="istio-inbound-ports", short="b", env="ISTIO_INBOUND_PORTS"
    )
    excluded_ports: tuple[str, ...] = setting(
        (),
        "Ports that are not captured where all are.",
        flag="istio-local-exclude-ports",
        short="d",
        env="ISTIO_LOCAL_EXCLUDE_PORTS",
    )


@dataclasses.dataclass(frozen=True)
class OutboundSettings:
    """What is captured of that which leaves the pod."""

    networks: tuple[str, ...] = setting(
        (),
        "Networks to which connections are captured; * for all.",
        flag="istio-service-cidr",
        short="i",
        env="ISTIO_SERVICE_CIDR",
    )
    excluded_networks: tuple[str, ...] = setting(
        (),
        "Networks to which they are not.",
        flag="istio-service-exclude-cidr",
        short="x",
        env="ISTIO_SERVICE_EXCLUDE_CIDR",
    )
    ports: tuple[str, ...] = setting(
        (),
        "Ports to which connections are captured, whatever the network.",
        flag="istio-outbound-ports",
        short="q",
        env="ISTIO_OUTBOUND_PORTS",
    )
    excluded_ports: tuple[str, ...] = setting(
        (),
        "Ports to which they are not.",
        flag="istio-local-outbound-ports-exclude",
        short="o",
        env="ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE",
    )
    groups: tuple[str, ...] = setting(
        ("*",),
        "Groups of applications that are captured, by number or name; * for all.",
        env="ISTIO_OUTBOUND_OWNER_GROUPS",
    )
    excluded_groups: tuple[str, ...] = setting(
        (),
        "Groups of applications that are not captured, where all others are.",
        env="ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE",
    )
    loopback: str = setting(
        "127.0.0.1/32", "IPv4 network that counts as this machine.", env="ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"
    )


@dataclasses.dataclass(frozen=True)
class PodNetworkSettings:
    """The interfaces and the names of the pod."""

    excluded_interfaces: tuple[str, ...] = setting(
        (),
        "Interfaces of which nothing is captured.",
        flag="istio-exclude-interfaces",
        short="c",
        env="ISTIO_EXCLUDE_INTERFACES",
    )
    virtual_interfaces: tuple[str, ...] = setting(
        (),
        "Interfaces of virtual machines: what comes in there leaves the pod.",
        flag="kube-virt-interfaces",
        short="k",
        env="KUBEVIRT_INTERFACES",
    )
    dual_stack: bool = setting(
        False,
        "Capture IPv6 too where the first address of the pod is one of IPv4.",
        flag="dual-stack",
        env="ISTIO_DUAL_STACK",
    )
    dns: bool = setting(
        False, "Have the agent answer names, at port 15053.", flag="redirect-dns", env="ISTIO_META_DNS_CAPTURE"
    )
    all_dns: bool = setting(
        False,
        "Answer those for every server, not only for those of /etc/resolv.conf.",
        flag="capture-all-dns",
        env="CAPTURE_ALL_DNS",
    )
    drop_invalid: bool = setting(
        False,
        "Drop packets that belong to no connection, in place of an answer that ends one.",
        flag="drop-invalid",
        env="INVALID_DROP",
    )


@dataclasses.dataclass(frozen=True)
class WorkSettings:
    """What is done with the rules."""

    dry_run: bool = setting(False, "Print the rules and change nothing.", flag="dry-run", short="n", env="DRY_RUN")
    skip: bool = setting(
        False, "Leave the rules as they are, as beside a CNI plugin.", flag="skip-rule-apply", env="SKIP_RULE_APPLY"
    )
    clean: bool = setting(False, "Take the rules away.", flag="cleanup-only", env="CLEANUP_ONLY")
    native: bool = setting(
        False, "Use nftables also where iptables-restore is there.", flag="native-nftables", env="NATIVE_NFTABLES"
    )
    validate: bool = setting(
        False, "See whether connections are captured.", flag="run-validation", env="RUN_VALIDATION"
    )
    probe_port: int = setting(
        15002, "Port that is connected to for that.", flag="iptables-probe-port", env="IPTABLES_PROBE_PORT"
    )
    probe_timeout: Duration = setting(
        parse_duration("5s"), "Time in which it must be.", flag="probe-timeout", env="PROBE_TIMEOUT"
    )
    namespace: str = setting(
        "",
        "File of the network namespace; that of the process where it is empty.",
        flag="network-namespace",
        env="NETWORK_NAMESPACE",
    )


@dataclasses.dataclass(frozen=True)
class CaptureSettings:
    """Holds what flags and environment say."""

    proxy: ProxySettings = section(ProxySettings(), "Proxy")
    inbound: InboundSettings = section(InboundSettings(), "Into the pod")
    outbound: OutboundSettings = section(OutboundSettings(), "Out of the pod")
    pod: PodNetworkSettings = section(PodNetworkSettings(), "Interfaces and names")
    work: WorkSettings = section(WorkSettings(), "What is done")
    log: LogSettings = section(LogSettings(), "Logs")
