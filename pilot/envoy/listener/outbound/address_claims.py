"""Derives which addresses the ports of services ask to be reached at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from pilot.config.networking.sidecar import SidecarPort
from pilot.config.protocol import Protocol, parse_protocol
from pilot.derive import derived
from pilot.envoy.listener.listener_address import ANY_IPV6, UNIX, loopbacks, wildcards
from pilot.lib.hosts import is_address
from pilot.mesh.model.facets import OutboundListenersFacet
from pilot.mesh.model.service import Port, Registry, Resolution, Service, ServiceRef
from pilot.mesh.model.virtual_addresses import ANY_IPV4, AddressFamiliesFacet, bound_addresses
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.services import service
from pilot.mesh.scope.sidecar_scope import EgressListener
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.imports import ImportKey

PRIVILEGED = 1024


class PlaceKey(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """Says where an egress listener of a proxy may listen.

    `cluster`: as in `OutboundListenersFacet`; `binds`: addresses that it names, () for those of the services; `to_port`: it takes a port of
    the pod, where the others only take what is captured; `refused`: ports that other listeners of the proxy hold on all addresses.
    """

    ipv4: bool
    ipv6: bool
    dual_stack: bool
    auto_addresses: bool
    cluster: str = ""
    binds: tuple[str, ...] = ()
    to_port: bool = False
    unprivileged: bool = False
    refused: frozenset[int] = frozenset()
    own_address: str = ""
    pods_as_chains: bool = False

    @property
    def families(self) -> AddressFamiliesFacet:
        """Returns which addresses of services the proxy uses."""
        dual = self.dual_stack and self.ipv4 and self.ipv6
        return AddressFamiliesFacet(self.ipv4, self.ipv6, dual, self.auto_addresses, self.cluster)

    @property
    def wildcards(self) -> tuple[str, ...]:
        return wildcards(self.ipv4, self.ipv6)

    def allows(self, port: int, protocol: Protocol) -> bool:
        """Returns whether it may listen on a port; on a refused one only at an address of its own."""
        if self.to_port and self.unprivileged and 0 < port < PRIVILEGED:
            return False
        everywhere = self.binds[0] == self.wildcards[0] if self.binds else protocol.is_http
        return not (everywhere and port in self.refused)


class Claim(NamedTuple):
    """Says that a port of a service asks for an address.

    `listener`: index of the egress listener; `port`: as it is listened on; `cluster_port`: where it leads without any rule; `address`: of the
    service, "" for a network; `cidrs`: destinations that tell it from others at the same address. `of_pod`: it is for a pod of a
    headless service, by the listener's address, or, `per_pod`, by its `cidrs`.
    """

    ref: ServiceRef
    listener: int
    port: Port
    cluster_port: int
    binds: tuple[str, ...]
    to_port: bool
    address: str
    cidrs: tuple[str, ...] = ()
    per_pod: bool = False
    of_pod: bool = False


def place_of(
    listener: EgressListener,
    facet: OutboundListenersFacet,
    refused: frozenset[int],
    dual_stack: bool,
    pods_as_chains: bool,
) -> PlaceKey:
    """Returns where an egress listener of a proxy may listen."""
    listening = facet.listening
    to_port = listening.interception == "NONE" or listener.capture_mode == "NONE" or listener.bind.startswith(UNIX)
    binds: tuple[str, ...] = (
        (listener.bind,) if listener.bind else loopbacks(listening.ipv4, listening.ipv6) if to_port else ()
    )
    return PlaceKey(
        ipv4=listening.ipv4,
        ipv6=listening.ipv6,
        dual_stack=dual_stack,
        auto_addresses=facet.auto_addresses,
        cluster=facet.cluster,
        binds=binds,
        to_port=to_port,
        unprivileged=listening.unprivileged,
        refused=refused | listening.reserved_ports,
        own_address=facet.own_address,
        pods_as_chains=pods_as_chains,
    )


@derived
def claims(db: Mesh, item: ImportKey, index: int, place: PlaceKey, own: SidecarPort | None) -> tuple[Claim, ...]:
    """Returns what an imported service asks for through egress listener `index`, on the port that the listener has of its `own`, or on
    those of the service."""
    found = service(db, item.ref)
    if found is None or found.resolution is Resolution.ALIAS:
        return ()
    ports = item.visible_ports(found)
    asked = (Port(own.name, own.number, parse_protocol(own.protocol)),) if own is not None else ports
    only = ports[0].number if len(ports) == 1 else 0
    out: list[Claim] = []
    for port in asked:
        if port.protocol is Protocol.UDP or not place.allows(port.number, port.protocol):
            continue
        if own is None and not place.binds and is_headless(found, port, place):
            out += _pod_claims(db, found, port, index, place, only)
        else:
            out += _claims(found, port, index, place, only)
    return tuple(c for c in out if c.port.number not in place.refused or c.binds[0] not in place.wildcards)


def is_headless(found: Service, port: Port, place: PlaceKey) -> bool:
    """Returns whether a port is reached at the addresses of its pods. HTTP is routed by host names instead, at all addresses."""
    tcp = port.protocol.is_tcp or port.protocol is Protocol.UNSUPPORTED
    return (
        tcp and found.resolution is Resolution.PASSTHROUGH and all(a[0] == ANY_IPV4 for a in _addresses(found, place))
    )


def _pod_claims(db: Mesh, found: Service, port: Port, index: int, place: PlaceKey, only: int) -> Iterator[Claim]:
    """Yields one claim a pod, but for the proxy's own; without any pod one for all addresses, if nothing says that there should be pods."""
    known = endpoints(db, found.ref, port.number)
    if not known and found.registry is not Registry.KUBERNETES and not found.selector:
        yield from _claims(found, port, index, place, only)
    address = _addresses(found, place)[0][0]
    for endpoint in known:
        if not all(is_address(a) for a in endpoint.addresses) or endpoint.addresses[0] == place.own_address:
            continue
        if place.pods_as_chains and port.protocol.is_tcp:
            yield Claim(
                found.ref,
                index,
                port,
                only or port.number,
                place.wildcards,
                place.to_port,
                address,
                endpoint.addresses,
                per_pod=True,
            )
        else:
            yield Claim(
                found.ref, index, port, only or port.number, endpoint.addresses, place.to_port, address, of_pod=True
            )


def _claims(found: Service, port: Port, index: int, place: PlaceKey, only: int) -> Iterator[Claim]:
    """Yields claims at the listener's own address, for HTTP at all addresses, else at those of the service."""
    base = Claim(found.ref, index, port, only or port.number, place.binds, place.to_port, "")
    if place.binds or port.protocol.is_http:
        address = _specific(_addresses(found, place)[0][0], found, place)
        yield base._replace(binds=place.binds or place.wildcards, address=address)
        return
    for addresses in _addresses(found, place):
        if "/" in addresses[0]:
            yield base._replace(binds=place.wildcards, cidrs=addresses)
            continue
        first = _specific(addresses[0], found, place)
        extra = (
            (ANY_IPV6,)
            if found.registry is Registry.EXTERNAL and place.ipv4 and place.ipv6 and first == ANY_IPV4
            else ()
        )
        yield base._replace(binds=(first, *addresses[1:], *extra), address=first)


def _specific(address: str, found: Service, place: PlaceKey) -> str:
    """Returns an address as the proxy binds it: where it stands for all, in the proxy's own family; "" for a network."""
    if "/" in address:
        return ""
    return ANY_IPV6 if address == ANY_IPV4 and found.registry is Registry.EXTERNAL and not place.ipv4 else address


def _addresses(found: Service, place: PlaceKey) -> list[tuple[str, ...]]:
    return bound_addresses(found, place.families)
