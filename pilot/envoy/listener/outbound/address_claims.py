"""The addresses that service ports claim at an outbound proxy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from pilot.config.networking.sidecar import SidecarPort
from pilot.config.protocol import Protocol, parse_protocol
from pilot.derive import derived
from pilot.envoy.listener.listener_address import ANY_IPV6, FIRST_UNPRIVILEGED_PORT, UNIX, loopbacks, wildcards
from pilot.lib.hosts import is_address
from pilot.mesh.model.facets import OutboundListenersFacet
from pilot.mesh.model.service import Port, Registry, Resolution, Service, ServiceRef
from pilot.mesh.model.virtual_addresses import ANY_IPV4, AddressFamiliesFacet, bound_addresses
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.services import service
from pilot.mesh.scope.sidecar_scope import EgressListener
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.imports import ImportKey


class BindingKey(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The addresses and ports to which an egress listener of a proxy may bind.

    `binds` are the addresses that the listener specifies. If it is empty, the addresses of the services are used.
    `binds_port` is set if the listener binds a port of the pod instead of only receiving captured traffic. `reserved`
    are ports that other listeners of the proxy occupy on all addresses. `cluster` is as in `OutboundListenersFacet`.
    """

    ipv4: bool
    ipv6: bool
    dual_stack: bool
    auto_addresses: bool
    cluster: str = ""
    binds: tuple[str, ...] = ()
    binds_port: bool = False
    unprivileged: bool = False
    reserved: frozenset[int] = frozenset()
    own_address: str = ""
    pods_as_chains: bool = False

    @property
    def families(self) -> AddressFamiliesFacet:
        """The IP families of the service addresses that the proxy uses."""
        dual = self.dual_stack and self.ipv4 and self.ipv6
        return AddressFamiliesFacet(self.ipv4, self.ipv6, dual, self.auto_addresses, self.cluster)

    @property
    def wildcards(self) -> tuple[str, ...]:
        """The wildcard addresses of the proxy."""
        return wildcards(self.ipv4, self.ipv6)

    def allows(self, port: int, protocol: Protocol) -> bool:
        """Return whether the listener may bind a port. It may bind a reserved port only on a specific address."""
        if self.binds_port and self.unprivileged and 0 < port < FIRST_UNPRIVILEGED_PORT:
            return False
        on_wildcard = self.binds[0] == self.wildcards[0] if self.binds else protocol.is_http
        return not (on_wildcard and port in self.reserved)


class AddressClaim(NamedTuple):
    """A service port's claim to an address.

    `listener` is the index of the egress listener. `port` is the port on which it listens, and `cluster_port` is the
    port of the default destination. `address` is the service's address, or "" for a network. `cidrs` distinguish the
    claim from other claims to the same address. For a pod of a headless service, `of_pod` is set if the pod's address
    is bound, and `per_pod` is set if `cidrs` contains the pod's address.
    """

    ref: ServiceRef
    listener: int
    port: Port
    cluster_port: int
    binds: tuple[str, ...]
    binds_port: bool
    address: str
    cidrs: tuple[str, ...] = ()
    per_pod: bool = False
    of_pod: bool = False


def binding_of(
    listener: EgressListener,
    facet: OutboundListenersFacet,
    reserved: frozenset[int],
    dual_stack: bool,
    pods_as_chains: bool,
) -> BindingKey:
    """Return the addresses and ports to which an egress listener of a proxy may bind."""
    listening = facet.listening
    binds_port = listening.interception == "NONE" or listener.capture_mode == "NONE" or listener.bind.startswith(UNIX)
    binds: tuple[str, ...] = (
        (listener.bind,) if listener.bind else loopbacks(listening.ipv4, listening.ipv6) if binds_port else ()
    )
    return BindingKey(
        ipv4=listening.ipv4,
        ipv6=listening.ipv6,
        dual_stack=dual_stack,
        auto_addresses=facet.auto_addresses,
        cluster=facet.cluster,
        binds=binds,
        binds_port=binds_port,
        unprivileged=listening.unprivileged,
        reserved=reserved | listening.reserved_ports,
        own_address=facet.own_address,
        pods_as_chains=pods_as_chains,
    )


@derived
def claims(
    db: Mesh, import_key: ImportKey, index: int, binding: BindingKey, listener_port: SidecarPort | None
) -> tuple[AddressClaim, ...]:
    """Return the claims that an imported service makes at the egress listener with this index.

    If the listener has a port, the claims are for that port. Otherwise, they are for the service's ports.
    """
    row = service(db, import_key.ref)
    if row is None or row.resolution is Resolution.ALIAS:
        return ()
    ports = import_key.visible_ports(row)
    listen_ports = (
        (Port(listener_port.name, listener_port.number, parse_protocol(listener_port.protocol)),)
        if listener_port is not None
        else ports
    )
    single_port = ports[0].number if len(ports) == 1 else 0
    result: list[AddressClaim] = []
    for port in listen_ports:
        if port.protocol is Protocol.UDP or not binding.allows(port.number, port.protocol):
            continue
        if listener_port is None and not binding.binds and is_headless(row, port, binding):
            result += _pod_claims(db, row, port, index, binding, single_port)
        else:
            result += _claims(row, port, index, binding, single_port)
    return tuple(c for c in result if c.port.number not in binding.reserved or c.binds[0] not in binding.wildcards)


def is_headless(service: Service, port: Port, binding: BindingKey) -> bool:
    """Return whether clients reach a port at the addresses of the service's pods.

    HTTP is excluded, because it is routed by host name on all addresses.
    """
    tcp = port.protocol.is_tcp or port.protocol is Protocol.UNSUPPORTED
    return (
        tcp
        and service.resolution is Resolution.PASSTHROUGH
        and all(a[0] == ANY_IPV4 for a in _addresses(service, binding))
    )


def _pod_claims(
    db: Mesh, service: Service, port: Port, index: int, binding: BindingKey, single_port: int
) -> Iterator[AddressClaim]:
    """Yield one claim for each pod, except for the proxy's own pod.

    If there are no pods and none are expected, yield one claim for all addresses.
    """
    pods = endpoints(db, service.ref, port.number)
    if not pods and service.registry is not Registry.KUBERNETES and not service.selector:
        yield from _claims(service, port, index, binding, single_port)
    address = _addresses(service, binding)[0][0]
    for endpoint in pods:
        if not all(is_address(a) for a in endpoint.addresses) or endpoint.addresses[0] == binding.own_address:
            continue
        if binding.pods_as_chains and port.protocol.is_tcp:
            yield AddressClaim(
                service.ref,
                index,
                port,
                single_port or port.number,
                binding.wildcards,
                binding.binds_port,
                address,
                endpoint.addresses,
                per_pod=True,
            )
        else:
            yield AddressClaim(
                service.ref,
                index,
                port,
                single_port or port.number,
                endpoint.addresses,
                binding.binds_port,
                address,
                of_pod=True,
            )


def _claims(service: Service, port: Port, index: int, binding: BindingKey, single_port: int) -> Iterator[AddressClaim]:
    """Yield the claims of a service port.

    If the listener specifies addresses, the port claims these. Otherwise, an HTTP port claims all addresses, and any
    other port claims the service's addresses.
    """
    base = AddressClaim(service.ref, index, port, single_port or port.number, binding.binds, binding.binds_port, "")
    if binding.binds or port.protocol.is_http:
        address = _specific(_addresses(service, binding)[0][0], service, binding)
        yield base._replace(binds=binding.binds or binding.wildcards, address=address)
        return
    for addresses in _addresses(service, binding):
        if "/" in addresses[0]:
            yield base._replace(binds=binding.wildcards, cidrs=addresses)
            continue
        first = _specific(addresses[0], service, binding)
        extra = (
            (ANY_IPV6,)
            if service.registry is Registry.EXTERNAL and binding.ipv4 and binding.ipv6 and first == ANY_IPV4
            else ()
        )
        yield base._replace(binds=(first, *addresses[1:], *extra), address=first)


def _specific(address: str, service: Service, binding: BindingKey) -> str:
    """Return the address to bind. It is "" for a network, and a wildcard is converted to the proxy's IP family."""
    if "/" in address:
        return ""
    return ANY_IPV6 if address == ANY_IPV4 and service.registry is Registry.EXTERNAL and not binding.ipv4 else address


def _addresses(service: Service, binding: BindingKey) -> list[tuple[str, ...]]:
    return bound_addresses(service, binding.families)
