"""Waypoints: gateways inside of a mesh that requests to services and workloads are led through, and how these are attached to them.

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
"""The protocol of a listener that takes connections of ztunnel, behind a header of the PROXY protocol."""

Traffic = Literal["service", "workload"]


class WaypointAddress(NamedTuple):
    """Where a waypoint takes HBONE: a host name of a namespace, else an IP address of a network."""

    hostname: str = ""
    namespace: str = ""
    network: str = ""
    ip: str = ""
    port: int = HBONE_PORT


class ApplicationTunnel(NamedTuple):
    """How ztunnel hands connections to the waypoint that it captures, by the words of its annotation. `port` is 0 for the port that was asked for."""

    protocol: Literal["NONE", "PROXY"]
    port: int = 0


class Waypoint(msgspec.Struct, frozen=True, kw_only=True):
    """A waypoint, which a Gateway is that has an address. `traffic` is what it is for: service, workload, all or none."""

    key: ObjectKey
    address: WaypointAddress
    traffic: str = "service"
    tunnel: ApplicationTunnel | None = None
    namespaces: RouteNamespaces = RouteNamespaces()

    def serves(self, traffic: Traffic) -> bool:
        """Returns whether the waypoint is for traffic to services, or to workloads."""
        return self.traffic in (traffic, "all")


class WaypointAttachment(NamedTuple):
    """The waypoint of a service or workload, None for none; `fault` says why there is none although a label names one, or why there is no canary.

    `canary` gets `weight` percent of what goes to a service. `ingress` says whether gateways at the edge go through it too, None where no
    label does.
    """

    waypoint: ObjectKey | None = None
    fault: Fault | None = None
    canary: ObjectKey | None = None
    weight: int = 0
    ingress: bool | None = None


NOT_ATTACHED = WaypointAttachment()
