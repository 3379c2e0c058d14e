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
    """Defines the ports that a sidecar accepts and the hosts that it can reach."""

    workload_selector: WorkloadSelector | None = None
    ingress: tuple[IstioIngressListener, ...] = ()
    egress: tuple[IstioEgressListener, ...] = ()
    inbound_connection_pool: ConnectionPoolSettings | None = None
    outbound_traffic_policy: OutboundTrafficPolicy | None = None


class IstioIngressListener(Strict, frozen=True):
    """An inbound listener.

    `default_endpoint` is "127.0.0.1:PORT", "[::1]:PORT", "0.0.0.0:PORT", "[::]:PORT" or "unix://PATH". ":PORT" is
    equivalent to "".
    """

    port: SidecarPort | None = None
    bind: str = ""
    capture_mode: CaptureMode = "DEFAULT"
    default_endpoint: str = ""
    tls: ServerTLSSettings | None = None
    connection_pool: ConnectionPoolSettings | None = None


class IstioEgressListener(Strict, frozen=True):
    """An outbound listener.

    Hosts are "namespace/name". The namespace "." is that of the Sidecar, "*" is any namespace, and "~" is none.
    """

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
