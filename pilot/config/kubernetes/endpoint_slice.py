"""Kubernetes EndpointSlice. https://kubernetes.io/docs/reference/kubernetes-api/service-resources/endpoint-slice-v1/"""

from __future__ import annotations

from pilot.config.base import Int32, Lenient


class EndpointConditions(Lenient, frozen=True):
    """Conditions of an endpoint. None means unspecified."""

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
    """A port. If `port` is not set, it means all ports, which a mesh does not support."""

    name: str = ""
    protocol: str = "TCP"
    port: Int32 | None = None
    app_protocol: str | None = None


class EndpointSlice(Lenient, frozen=True):
    """Endpoints of a Service. `address_type` is IPv4, IPv6 or FQDN."""

    address_type: str = "IPv4"
    endpoints: tuple[SliceEndpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()
