"""Gateway, GatewayClass and ListenerSet.

https://gateway-api.sigs.k8s.io/api-types/gateway/
https://gateway-api.sigs.k8s.io/api-types/gatewayclass/
https://gateway-api.sigs.k8s.io/geps/gep-1713/
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pilot.config.base import Int32, Lenient
from pilot.config.gateway_api.reference import (
    LocalObjectReference,
    ObjectReference,
    ParentReference,
    SecretObjectReference,
)
from pilot.config.selector import LabelSelector

From = Literal["All", "Same", "Selector", "None"]


class GatewayAddress(Lenient, frozen=True):
    type: str = "IPAddress"
    value: str = ""


class RouteGroupKind(Lenient, frozen=True):
    group: str | None = None
    kind: str = ""


class RouteNamespaces(Lenient, frozen=True):
    """The namespaces from which routes may attach."""

    from_: From = msgspec.field(default="Same", name="from")
    selector: LabelSelector | None = None


class AllowedRoutes(Lenient, frozen=True):
    namespaces: RouteNamespaces = RouteNamespaces()
    kinds: tuple[RouteGroupKind, ...] = ()


class ListenerNamespaces(Lenient, frozen=True):
    """The namespaces from which ListenerSets may attach."""

    from_: From = msgspec.field(default="None", name="from")
    selector: LabelSelector | None = None


class AllowedListeners(Lenient, frozen=True):
    namespaces: ListenerNamespaces = ListenerNamespaces()


class ListenerTLSConfig(Lenient, frozen=True):
    mode: Literal["Terminate", "Passthrough"] = "Terminate"
    certificate_refs: tuple[SecretObjectReference, ...] = ()
    options: dict[str, str] = {}


class Listener(Lenient, frozen=True):
    """A port with its protocol and hostname.

    Only a ListenerSet may have a `port` of 0, which means the default port of the protocol.
    """

    name: str = ""
    hostname: str = ""
    port: Int32 = 0
    protocol: str = ""
    tls: ListenerTLSConfig | None = None
    allowed_routes: AllowedRoutes = AllowedRoutes()


class FrontendValidation(Lenient, frozen=True):
    """Settings for the verification of client certificates."""

    ca_certificate_refs: tuple[ObjectReference, ...] = ()
    mode: Literal["AllowValidOnly", "AllowInsecureFallback"] = "AllowValidOnly"


class FrontendTLS(Lenient, frozen=True):
    validation: FrontendValidation | None = None


class PortFrontendTLS(Lenient, frozen=True):
    port: Int32 = 0
    tls: FrontendTLS = FrontendTLS()


class Frontend(Lenient, frozen=True):
    """TLS settings for connections from clients. `per_port` overrides `default`."""

    default: FrontendTLS = FrontendTLS()
    per_port: tuple[PortFrontendTLS, ...] = ()


class BackendClientTLS(Lenient, frozen=True):
    client_certificate_ref: SecretObjectReference | None = None


class GatewayTLS(Lenient, frozen=True):
    frontend: Frontend | None = None
    backend: BackendClientTLS | None = None


class Infrastructure(Lenient, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    parameters_ref: LocalObjectReference | None = None


class GatewayStatus(Lenient, frozen=True):
    addresses: tuple[GatewayAddress, ...] = ()


class Gateway(Lenient, frozen=True):
    """Listeners at the edge of the mesh.

    They run on the workloads that are deployed for the Gateway, or on the workloads of the Services in `addresses`.
    `status` only has the addresses; the rest of the object's status is not read.
    """

    gateway_class_name: str = ""
    listeners: tuple[Listener, ...] = ()
    addresses: tuple[GatewayAddress, ...] = ()
    infrastructure: Infrastructure | None = None
    allowed_listeners: AllowedListeners = AllowedListeners()
    tls: GatewayTLS | None = None
    status: GatewayStatus = GatewayStatus()


class GatewayClass(Lenient, frozen=True):
    """Specifies which controller implements the Gateways of a class."""

    controller_name: str = ""


class ListenerSet(Lenient, frozen=True):
    """Additional listeners for a Gateway, which may have a different owner than the Gateway."""

    parent_ref: ParentReference = ParentReference()
    listeners: tuple[Listener, ...] = ()
