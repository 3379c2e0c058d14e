"""networking.istio.io Sidecar. https://istio.io/latest/docs/reference/config/networking/sidecar/"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Literal

from pilot.config.base import Strict, UInt32
from pilot.config.networking.destination_rule import ConnectionPoolSettings
from pilot.config.networking.gateway import ServerTLSSettings
from pilot.config.networking.virtual_service import Destination

CaptureMode = Literal["DEFAULT", "IPTABLES", "NONE"]
OutboundMode = Literal["REGISTRY_ONLY", "ALLOW_ANY"]


class Sidecar(Strict, frozen=True, dict=True, gc=True):
    """Defines the ports that a sidecar accepts and the hosts that it can reach."""

    workload_selector: WorkloadSelector | None = None
    ingress: tuple[IstioIngressListener, ...] = ()
    egress: tuple[IstioEgressListener, ...] = ()
    inbound_connection_pool: ConnectionPoolSettings | None = None
    outbound_traffic_policy: OutboundTrafficPolicy | None = None

    @functools.cached_property
    def inbound_pools(self) -> Mapping[int, ConnectionPoolSettings]:
        """The connection pools of the ingress listeners that set one, by port. The first one for a port takes
        precedence."""
        return {
            listener.port.number: listener.connection_pool
            for listener in reversed(self.ingress)
            if listener.port is not None and listener.connection_pool is not None
        }


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
