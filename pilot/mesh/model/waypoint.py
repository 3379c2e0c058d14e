"""Waypoints, and their attachment to services and workloads.

https://istio.io/latest/docs/ambient/usage/waypoint/
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from pilot.config.gateway_api.gateway import RouteNamespaces
from pilot.config.object import ObjectKey
from pilot.mesh.model.condition import Fault

USE_WAYPOINT, USE_WAYPOINT_NAMESPACE = "istio.io/use-waypoint", "istio.io/use-waypoint-namespace"
USE_CANARY, USE_CANARY_NAMESPACE = "istio.io/use-waypoint-canary", "istio.io/use-waypoint-canary-namespace"
CANARY_WEIGHT = "istio.io/use-waypoint-canary-weight"
INGRESS_USE_WAYPOINT = "istio.io/ingress-use-waypoint"
WAYPOINT_FOR = "istio.io/waypoint-for"
INBOUND_BINDING = "ambient.istio.io/waypoint-inbound-binding"
NO_WAYPOINT = "none"
HBONE, HBONE_PORT = "HBONE", 15008
PROXY_PROTOCOL = "istio.io/PROXY"
"""Protocol of a listener that accepts connections with a PROXY protocol header from ztunnels."""

Traffic = Literal["service", "workload"]


class WaypointAddress(NamedTuple):
    """The HBONE address of a waypoint: a hostname and its namespace, or an IP address in a network."""

    hostname: str = ""
    namespace: str = ""
    network: str = ""
    ip: str = ""
    port: int = HBONE_PORT


class ApplicationTunnel(NamedTuple):
    """The protocol and port that a ztunnel uses to forward connections to a waypoint whose traffic it captures.

    If `port` is 0, the original destination port is used.
    """

    protocol: Literal["NONE", "PROXY"]
    port: int = 0


class Waypoint(msgspec.Struct, frozen=True, kw_only=True):
    """A waypoint, which is a Gateway that has an address. `traffic` is "service", "workload", "all" or "none"."""

    key: ObjectKey
    address: WaypointAddress
    traffic: str = "service"
    tunnel: ApplicationTunnel | None = None
    namespaces: RouteNamespaces = RouteNamespaces()

    def serves(self, traffic: Traffic) -> bool:
        """Return True if the waypoint handles this type of traffic."""
        return self.traffic in (traffic, "all")


class WaypointAttachment(NamedTuple):
    """The waypoint of a service or workload, or None if it has none.

    `fault` explains why a waypoint or canary that a label names is not used. `canary` receives `weight` percent of the
    traffic to a service. `ingress` says whether ingress gateways also use the waypoint. It is None if no label sets it.
    """

    waypoint: ObjectKey | None = None
    fault: Fault | None = None
    canary: ObjectKey | None = None
    weight: int = 0
    ingress: bool | None = None


NOT_ATTACHED = WaypointAttachment()
