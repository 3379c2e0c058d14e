"""Keys of a sidecar's inbound filter chains, for each port on which it accepts traffic."""

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
from pilot.envoy.listener.listener_address import FIRST_UNPRIVILEGED_PORT, wildcards
from pilot.envoy.listener.listener_options import listener_defaults
from pilot.mesh.model.facets import InboundFacet, ListeningFacet
from pilot.mesh.model.service import Port
from pilot.mesh.registry.services import service
from pilot.mesh.scope.inbound_ports import InboundPort, declared_port_numbers, inbound_ports
from pilot.mesh.security.mtls import Mode, WorkloadMtls, accepted
from pilot.mesh.tables.database import Mesh


def passthrough_keys(db: Mesh, inbound: InboundFacet) -> Iterator[InboundChainsKey]:
    """Yield the keys of the chains for ports that no service or Sidecar declares.

    The first key is for all these ports. Further keys are for ports for which policies set a separate mTLS mode.
    """
    mtls = accepted_mtls(db, inbound)
    pattern = listener_defaults(db).inbound_stat_name
    yield _passthrough(0, mtls.mode, pattern)
    declared = declared_port_numbers(db, inbound)
    for number in sorted(mtls.ports.keys() - declared):
        yield _passthrough(number, mtls.at(number), pattern)


def passthrough_key(db: Mesh) -> InboundChainsKey:
    """Return the key of the chains for tunnelled connections to ports that no service or Sidecar declares. Not
    memoised."""
    return _passthrough(0, "DISABLE", listener_defaults(db).inbound_stat_name)


def _passthrough(number: int, mode: Mode, stat_pattern: str) -> InboundChainsKey:
    cluster = names.INBOUND_PASSTHROUGH_CLUSTER
    port = Port(names.VIRTUAL_INBOUND, 0, Protocol.UNSUPPORTED)
    stat_prefix = build_stat_name(stat_pattern, None, port, target_port=None) if stat_pattern else cluster
    return InboundChainsKey(number=number, port=port, host="", cluster=cluster, mode=mode, stat_prefix=stat_prefix)


def accepted_mtls(db: Mesh, inbound: InboundFacet) -> WorkloadMtls:
    """Return the mTLS modes that the workload accepts. Not memoised."""
    return accepted(db, inbound.policies.of(PEER_AUTHENTICATION.id.name))


def port_keys(db: Mesh, inbound: InboundFacet) -> list[InboundChainsKey]:
    """Return the keys of the chains for each declared port, sorted by port number."""
    keys = (
        _service_key(db, p, inbound) if p.ingress is None else _ingress_key(db, p, p.ingress, inbound)
        for p in inbound_ports(db, inbound)
    )
    return sorted((key for key in keys if key is not None), key=lambda key: key.number)


def _service_key(db: Mesh, inbound_port: InboundPort, inbound: InboundFacet) -> InboundChainsKey | None:
    """Return the key of the chains for a service port, or None if the proxy cannot listen on the port.

    If several services share the port, the oldest service takes precedence.
    """
    defaults, listening, number = listener_defaults(db), inbound.listening, inbound_port.number
    binds_port = listening.interception == "NONE"
    if (
        number in listening.reserved_ports
        or number in (defaults.outbound_port, defaults.inbound_port)
        or _is_privileged(number, binds_port, listening)
    ):
        return None
    cluster, target = names.inbound_cluster(number), inbound_port.targets[0]
    stat_prefix = cluster
    row = service(db, target.ref) if defaults.inbound_stat_name else None
    if row is not None:
        stat_prefix = build_stat_name(defaults.inbound_stat_name, row, target.port, target_port=None)
    return InboundChainsKey(
        number=number,
        port=target.port,
        host=target.ref.hostname,
        cluster=cluster,
        mode=accepted_mtls(db, inbound).at(number),
        stat_prefix=stat_prefix,
        bind=wildcards(listening.ipv4, listening.ipv6),
        binds_port=binds_port,
    )


def _ingress_key(
    db: Mesh, inbound_port: InboundPort, listener: IstioIngressListener, inbound: InboundFacet
) -> InboundChainsKey | None:
    """Return the key of the chains for a Sidecar's ingress listener, or None if the proxy cannot listen on the port."""
    key, number, port = inbound_port.declared_by, inbound_port.number, inbound_port.port
    assert key is not None
    defaults, listening = listener_defaults(db), inbound.listening
    all_addresses = wildcards(listening.ipv4, listening.ipv6)
    binds_port = (
        listening.interception == "NONE" if listener.capture_mode == "DEFAULT" else listener.capture_mode == "NONE"
    )
    takes_all = listener.bind == all_addresses[0] or (not listener.bind and port.protocol.is_http)
    captures = (
        binds_port and listening.interception != "NONE" and number in (defaults.outbound_port, defaults.inbound_port)
    )
    if (takes_all and (captures or number in listening.reserved_ports)) or _is_privileged(
        number, binds_port, listening
    ):
        return None
    source = key._replace(namespace=inbound.scope.namespace)
    cluster, pattern = names.inbound_cluster(number), defaults.inbound_stat_name
    return InboundChainsKey(
        number=number,
        port=port,
        host=f"{source.name}.{source.namespace}",
        cluster=cluster,
        mode=accepted_mtls(db, inbound).at(number),
        stat_prefix=build_stat_name(pattern, placeholder_service(source, port), port, target_port=None)
        if pattern
        else cluster,
        bind=(listener.bind,) if listener.bind else _reachable_address(inbound.ips, all_addresses),
        binds_port=binds_port,
        tls=listener.tls if db.settings.listeners.ingress_tls else None,
        source=source,
    )


def _is_privileged(number: int, binds_port: bool, listening: ListeningFacet) -> bool:
    return binds_port and listening.unprivileged and 0 < number < FIRST_UNPRIVILEGED_PORT


def _reachable_address(ips: tuple[str, ...], all_addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first address of a proxy that other hosts can reach, or else all wildcard addresses."""
    for text in ips:
        ip = ipaddress.ip_address(text)
        if not (
            ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local or text == "255.255.255.255"
        ):
            return (text,)
    return all_addresses
