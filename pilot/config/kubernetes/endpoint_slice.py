"""Kubernetes EndpointSlice. https://kubernetes.io/docs/reference/kubernetes-api/service-resources/endpoint-slice-v1/"""

from __future__ import annotations

from pilot.config.base import Int32, Lenient


class EndpointConditions(Lenient, frozen=True):
    """A condition that is None is not said."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class ObjectReference(Lenient, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""


class ForZone(Lenient, frozen=True):
    name: str = ""


class EndpointHints(Lenient, frozen=True):
    for_zones: tuple[ForZone, ...] = ()


class SliceEndpoint(Lenient, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    hostname: str = ""
    node_name: str = ""
    zone: str = ""
    target_ref: ObjectReference | None = None
    hints: EndpointHints | None = None


class EndpointPort(Lenient, frozen=True):
    """Without `port` it stands for all ports, which no mesh can use."""

    name: str = ""
    protocol: str = "TCP"
    port: Int32 | None = None
    app_protocol: str | None = None


class EndpointSlice(Lenient, frozen=True):
    """`address_type` is IPv4, IPv6 or FQDN."""

    address_type: str = "IPv4"
    endpoints: tuple[SliceEndpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()
