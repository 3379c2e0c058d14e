"""MeshNetworks: the networks of the mesh and the gateways between them."""

from __future__ import annotations

from typing import ClassVar

from pilot.config.base import OneOf, Strict, UInt32


class NetworkEndpoints(OneOf, frozen=True):
    groups: ClassVar = (("from_cidr", "from_registry"),)

    from_cidr: str | None = None
    from_registry: str | None = None


class IstioNetworkGateway(OneOf, frozen=True):
    groups: ClassVar = (("registry_service_name", "address"),)

    registry_service_name: str | None = None
    address: str | None = None
    port: UInt32 = 0
    locality: str = ""


class Network(Strict, frozen=True):
    endpoints: tuple[NetworkEndpoints, ...] = ()
    gateways: tuple[IstioNetworkGateway, ...] = ()


class MeshNetworks(Strict, frozen=True):
    """The networks of the mesh, keyed by name."""

    networks: dict[str, Network] = {}
