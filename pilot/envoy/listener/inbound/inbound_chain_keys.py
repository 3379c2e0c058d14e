"""Derives what the inbound chains of a sidecar are made by, for each port that it takes traffic on."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from pilot.config.kinds.istio import PEER_AUTHENTICATION
from pilot.config.networking.sidecar import IstioIngressListener
from pilot.config.protocol import Protocol
from pilot.envoy import names
from pilot.envoy.cluster.inbound_clusters import placeholder_service
from pilot.envoy.cluster.stat_name import build_stat_name
from pilot.envoy.listener.inbound.inbound_chains import InboundChainsKey
from pilot.envoy.listener.listener_address import wildcards
from pilot.envoy.listener.listener_options import listener_defaults
from pilot.envoy.listener.outbound.address_claims import PRIVILEGED
from pilot.mesh.model.facets import InboundFacet, ListeningFacet
from pilot.mesh.model.service import Port
from pilot.mesh.registry.services import service
from pilot.mesh.scope.inbound_ports import InboundPort, declared_port_numbers, inbound_ports
from pilot.mesh.security.mtls import Mode, WorkloadMtls, accepted
from pilot.mesh.tables.database import Mesh


def passthrough_specs(db: Mesh, inbound: InboundFacet) -> Iterator[InboundChainsKey]:
    """Yields what the chains of ports that nothing names are made by: all such ports, and each with a mode of its own by a policy."""
    mtls = accepted_mtls(db, inbound)
    pattern = listener_defaults(db).inbound_stat_name
    yield _passthrough(0, mtls.mode, pattern)
    named = declared_port_numbers(db, inbound)
    for number in sorted(mtls.ports.keys() - named):
        yield _passthrough(number, mtls.at(number), pattern)


def passthrough_spec(db: Mesh) -> InboundChainsKey:
    """Returns what the chains of all ports that nothing names are made by, behind a tunnel. No node of its own."""
    return _passthrough(0, "DISABLE", listener_defaults(db).inbound_stat_name)


def _passthrough(number: int, mode: Mode, stat_pattern: str) -> InboundChainsKey:
    cluster = names.INBOUND_PASSTHROUGH_CLUSTER
    port = Port(names.VIRTUAL_INBOUND, 0, Protocol.UNSUPPORTED)
    stat_prefix = build_stat_name(stat_pattern, None, port, target_port=None) if stat_pattern else cluster
    return InboundChainsKey(number=number, port=port, host="", cluster=cluster, mode=mode, stat_prefix=stat_prefix)


def accepted_mtls(db: Mesh, inbound: InboundFacet) -> WorkloadMtls:
    """Returns what the workload accepts. No node of its own."""
    return accepted(db, inbound.policies.of(PEER_AUTHENTICATION.id.name))


def port_specs(db: Mesh, inbound: InboundFacet) -> list[InboundChainsKey]:
    """Returns what the chains of each port that is named are made by, sorted by number."""
    found = (
        _service_spec(db, p, inbound) if p.ingress is None else _ingress_spec(db, p, p.ingress, inbound)
        for p in inbound_ports(db, inbound)
    )
    return sorted((spec for spec in found if spec is not None), key=lambda spec: spec.number)


def _service_spec(db: Mesh, served: InboundPort, inbound: InboundFacet) -> InboundChainsKey | None:
    """Returns None for a port that other listeners of the proxy hold. The oldest service that leads to a port counts."""
    mesh, listening, number = listener_defaults(db), inbound.listening, served.number
    to_port = listening.interception == "NONE"
    if (
        number in listening.reserved_ports
        or number in (mesh.outbound_port, mesh.inbound_port)
        or _is_privileged(number, to_port, listening)
    ):
        return None
    cluster, first = names.inbound_cluster(number), served.targets[0]
    stat_prefix = cluster
    found = service(db, first.ref) if mesh.inbound_stat_name else None
    if found is not None:
        stat_prefix = build_stat_name(mesh.inbound_stat_name, found, first.port, target_port=None)
    return InboundChainsKey(
        number=number,
        port=first.port,
        host=first.ref.hostname,
        cluster=cluster,
        mode=accepted_mtls(db, inbound).at(number),
        stat_prefix=stat_prefix,
        bind=wildcards(listening.ipv4, listening.ipv6),
        to_port=to_port,
    )


def _ingress_spec(
    db: Mesh, declared: InboundPort, listener: IstioIngressListener, inbound: InboundFacet
) -> InboundChainsKey | None:
    """Returns None for a port that other listeners of the proxy hold on all addresses."""
    key, number, port = declared.declared_by, declared.number, declared.port
    assert key is not None
    mesh, listening = listener_defaults(db), inbound.listening
    everywhere = wildcards(listening.ipv4, listening.ipv6)
    to_port = (
        listening.interception == "NONE" if listener.capture_mode == "DEFAULT" else listener.capture_mode == "NONE"
    )
    takes_all = listener.bind == everywhere[0] or (not listener.bind and port.protocol.is_http)
    captures = to_port and listening.interception != "NONE" and number in (mesh.outbound_port, mesh.inbound_port)
    if (takes_all and (captures or number in listening.reserved_ports)) or _is_privileged(number, to_port, listening):
        return None
    source = key._replace(namespace=inbound.scope.namespace)
    cluster, pattern = names.inbound_cluster(number), mesh.inbound_stat_name
    return InboundChainsKey(
        number=number,
        port=port,
        host=f"{source.name}.{source.namespace}",
        cluster=cluster,
        mode=accepted_mtls(db, inbound).at(number),
        stat_prefix=build_stat_name(pattern, placeholder_service(source, port), port, target_port=None)
        if pattern
        else cluster,
        bind=(listener.bind,) if listener.bind else _own_addresses(inbound.ips, everywhere),
        to_port=to_port,
        tls=listener.tls if db.settings.listeners.ingress_tls else None,
        source=source,
    )


def _is_privileged(number: int, to_port: bool, listening: ListeningFacet) -> bool:
    return to_port and listening.unprivileged and 0 < number < PRIVILEGED


def _own_addresses(ips: tuple[str, ...], everywhere: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the first address of a proxy that others can reach, else all."""
    for text in ips:
        ip = ipaddress.ip_address(text)
        if not (
            ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local or text == "255.255.255.255"
        ):
            return (text,)
    return everywhere
