"""networking.istio.io Sidecar. https://istio.io/latest/docs/reference/config/networking/sidecar/"""

from __future__ import annotations

from typing import Literal

from pilot.config.base import Strict, UInt32
from pilot.config.networking.destination_rule import ConnectionPoolSettings
from pilot.config.networking.gateway import ServerTLSSettings
from pilot.config.networking.virtual_service import Destination

CaptureMode = Literal["DEFAULT", "IPTABLES", "NONE"]
OutboundMode = Literal["REGISTRY_ONLY", "ALLOW_ANY"]


class Sidecar(Strict, frozen=True):
    """A Sidecar says what a proxy accepts and what it reaches."""

    workload_selector: WorkloadSelector | None = None
    ingress: tuple[IstioIngressListener, ...] = ()
    egress: tuple[IstioEgressListener, ...] = ()
    inbound_connection_pool: ConnectionPoolSettings | None = None
    outbound_traffic_policy: OutboundTrafficPolicy | None = None


class IstioIngressListener(Strict, frozen=True):
    """`default_endpoint` is "127.0.0.1:PORT", "[::1]:PORT", "0.0.0.0:PORT", "[::]:PORT" or "unix://PATH"; ":PORT" is as ""."""

    port: SidecarPort | None = None
    bind: str = ""
    capture_mode: CaptureMode = "DEFAULT"
    default_endpoint: str = ""
    tls: ServerTLSSettings | None = None
    connection_pool: ConnectionPoolSettings | None = None


class IstioEgressListener(Strict, frozen=True):
    """Hosts are "namespace/name"; namespace "." is the own one, "*" any, "~" none."""

    port: SidecarPort | None = None
    bind: str = ""
    capture_mode: CaptureMode = "DEFAULT"
    hosts: tuple[str, ...] = ()


class WorkloadSelector(Strict, frozen=True):
    labels: dict[str, str] = {}


class OutboundTrafficPolicy(Strict, frozen=True):
    mode: OutboundMode = "REGISTRY_ONLY"
    egress_proxy: Destination | None = None


class SidecarPort(Strict, frozen=True):
    number: UInt32 = 0
    protocol: str = ""
    name: str = ""
    target_port: UInt32 = 0  # deprecated
