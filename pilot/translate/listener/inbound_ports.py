"""The ports on which a sidecar takes traffic for its workload: those of its services, or those of its Sidecar."""
from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from pilot.model.config.sidecar import IstioIngressListener
from pilot.model.facets import Inbound, Listening
from pilot.model.inputs import Mesh
from pilot.model.protocol import parse_protocol
from pilot.model.service import Port, Protocol
from pilot.model.views.mtls import Mode, workload_mtls
from pilot.model.views.services import service
from pilot.model.views.sidecar_scope import find_sidecar
from pilot.translate import names
from pilot.translate.cluster.inbound import stand_in
from pilot.translate.cluster.stat_name import build_stat_name
from pilot.translate.listener.address import wildcards
from pilot.translate.listener.claim import PRIVILEGED
from pilot.translate.listener.defaults import listener_defaults
from pilot.translate.listener.inbound_chain import InboundSpec


def passthrough_specs(db: Mesh, inbound: Inbound, listening: Listening) -> Iterator[InboundSpec]:
    """For ports that nothing names: all of them, and those for which a policy has a mode of their own."""
    accepted = workload_mtls(db, inbound.scope.namespace, inbound.labels)
    pattern = listener_defaults(db).inbound_stat_name
    yield _passthrough(0, accepted.mode, pattern)
    sidecar = find_sidecar(db, inbound.scope.sidecar)
    if sidecar is not None and sidecar.ingress:
        named = {i.port.number for i in sidecar.ingress if i.port is not None}
    else:
        named = {t.target_port for t in inbound.targets}
    for number in sorted(accepted.ports.keys() - named):
        yield _passthrough(number, accepted.at(number), pattern)


def _passthrough(number: int, mode: Mode, stat_pattern: str) -> InboundSpec:
    cluster = names.INBOUND_PASSTHROUGH_CLUSTER
    port = Port(names.VIRTUAL_INBOUND, 0, Protocol.UNSUPPORTED)
    stat_prefix = build_stat_name(stat_pattern, None, port, target_port=None) if stat_pattern else cluster
    return InboundSpec(number=number, port=port, host="", cluster=cluster, mode=mode, stat_prefix=stat_prefix)


def port_specs(db: Mesh, inbound: Inbound, listening: Listening) -> list[InboundSpec]:
    """For each port that is named, by number. The oldest service of those that lead to a port counts; where a Sidecar has ingress
    listeners these take the place of services, unless the setting adds them."""
    sidecar = find_sidecar(db, inbound.scope.sidecar)
    ingress = sidecar.ingress if sidecar is not None else ()
    found: dict[int, InboundSpec] = {}
    if ingress:
        declared = {i.port.number for i in ingress if i.port is not None}
        if db.settings.listeners.merge_ingress_with_services:
            found = {s.number: s for s in _of_services(db, inbound, listening) if s.number not in declared}
        for spec in _of_ingress(db, inbound, listening, ingress):
            found.setdefault(spec.number, spec)
    elif listening.interception != "NONE":
        found = {s.number: s for s in _of_services(db, inbound, listening)}
    return [found[number] for number in sorted(found)]


def _of_services(db: Mesh, inbound: Inbound, listening: Listening) -> Iterator[InboundSpec]:
    mesh = listener_defaults(db)
    accepted = workload_mtls(db, inbound.scope.namespace, inbound.labels)
    binds = wildcards(listening.ipv4, listening.ipv6)
    to_port = listening.interception == "NONE"
    refused = listening.reserved_ports | {mesh.outbound_port, mesh.inbound_port}
    seen: set[int] = set()
    for target in inbound.targets:
        number = target.target_port
        if number in seen or number in refused or _is_privileged(number, to_port, listening):
            continue
        seen.add(number)
        cluster = names.inbound_cluster(number)
        stat_prefix = cluster
        found = service(db, target.ref) if mesh.inbound_stat_name else None
        if found is not None:
            stat_prefix = build_stat_name(mesh.inbound_stat_name, found, target.port, target_port=None)
        yield InboundSpec(
            number=number,
            port=target.port,
            host=target.ref.hostname,
            cluster=cluster,
            mode=accepted.at(number),
            stat_prefix=stat_prefix,
            bind=binds,
            to_port=to_port,
        )


def _of_ingress(db: Mesh, inbound: Inbound, listening: Listening, ingress: tuple[IstioIngressListener, ...]) -> Iterator[InboundSpec]:
    key = inbound.scope.sidecar
    accepted = workload_mtls(db, inbound.scope.namespace, inbound.labels)
    mesh = listener_defaults(db)
    pattern = mesh.inbound_stat_name
    everywhere = wildcards(listening.ipv4, listening.ipv6)
    for listener in ingress:
        if listener.port is None or key is None:
            continue
        number = listener.port.number
        to_port = listening.interception == "NONE" if listener.capture_mode == "DEFAULT" else listener.capture_mode == "NONE"
        port = Port(listener.port.name, number, parse_protocol(listener.port.protocol))
        takes_all = listener.bind == everywhere[0] or (not listener.bind and port.protocol.is_http)
        captures = to_port and listening.interception != "NONE" and number in (mesh.outbound_port, mesh.inbound_port)
        if (takes_all and (captures or number in listening.reserved_ports)) or _is_privileged(number, to_port, listening):
            continue
        source = key._replace(namespace=inbound.scope.namespace)
        cluster = names.inbound_cluster(number)
        yield InboundSpec(
            number=number,
            port=port,
            host=f"{source.name}.{source.namespace}",
            cluster=cluster,
            mode=accepted.at(number),
            stat_prefix=build_stat_name(pattern, stand_in(source, port), port, target_port=None) if pattern else cluster,
            bind=(listener.bind,) if listener.bind else _own_addresses(inbound.ips, everywhere),
            to_port=to_port,
            tls=listener.tls if db.settings.listeners.ingress_tls else None,
            source=source,
        )


def _is_privileged(number: int, to_port: bool, listening: Listening) -> bool:
    return to_port and listening.unprivileged and 0 < number < PRIVILEGED


def _own_addresses(ips: tuple[str, ...], everywhere: tuple[str, ...]) -> tuple[str, ...]:
    """The first address of a proxy that others can reach, else all."""
    for text in ips:
        ip = ipaddress.ip_address(text)
        if not (ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local or text == "255.255.255.255"):
            return (text,)
    return everywhere
