"""Checks that the hosts of VirtualServices have the HTTP ports to which http routes apply in the mesh."""

from __future__ import annotations

from pilot.config.kinds.istio import SIDECAR
from pilot.config.networking.virtual_service import HTTPRoute, VirtualService
from pilot.config.object import ObjectKey
from pilot.config.problem import Problems, warning
from pilot.derive import derived
from pilot.lib.hosts import is_wildcard
from pilot.mesh.analysis.destination import services_named, target_port_remedy
from pilot.mesh.analysis.opaque_port import describe_ports, opaque_ports, ports_of, remedy_for_http
from pilot.mesh.model.service import Port, Resolution, Service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.virtual_service_names import MESH
from pilot.mesh.traffic.virtual_services import qualified

_MAX_HOSTS = 20
"""Maximum number of hosts of a VirtualService whose ports are read."""


def check_route_ports(db: Mesh, spec: VirtualService) -> Problems:
    """Yield a problem for each host without an HTTP port, and for each match whose port is no HTTP port of a host.

    Names must be qualified. Paths are relative to the spec. Gateways are not checked, as their ports have their own
    protocols.
    """
    rules = [(index, rule) for index, rule in enumerate(spec.http) if _applies(spec, rule)]
    if not rules or len(spec.hosts) > _MAX_HOSTS:
        return
    named = {host: services_named(db, host.lower()) for host in spec.hosts if not is_wildcard(host)}
    opaque = {host: ports for host, services in named.items() if (ports := _opaque(services))}
    for host, ports in opaque.items():
        yield warning("no-effect", "http", _no_http_text(host, ports))
    if not opaque and all(named.get(host) for host in spec.hosts) and all(name == MESH for name in spec.gateways):
        services = [one for of_host in named.values() for one in of_host]
        for index, rule in rules:
            for m, match in enumerate(rule.match):
                if match.port:
                    yield from _check_port(db, services, match.port, f"http[{index}].match[{m}].port")


def ignores_http(db: Mesh, key: ObjectKey) -> bool:
    """Return whether the http routes of a VirtualService have no effect, as none of its hosts has an HTTP port."""
    row = qualified(db, key)
    if row is None:
        return False
    spec = row.spec
    if any(name != MESH for name in spec.gateways) or not 0 < len(spec.hosts) <= _MAX_HOSTS:
        return False
    return all(_opaque(services_named(db, host.lower())) for host in spec.hosts)


def _applies(spec: VirtualService, rule: HTTPRoute) -> bool:
    """Return whether a rule applies in the mesh."""
    bound = not spec.gateways or MESH in spec.gateways
    gateways = [match.gateways for match in rule.match] or [()]
    return any(MESH in names if names else bound for names in gateways)


def _opaque(services: tuple[Service, ...]) -> tuple[tuple[Service, Port], ...]:
    return () if any(one.resolution is Resolution.ALIAS for one in services) else opaque_ports(ports_of(services))


def _no_http_text(host: str, ports: tuple[tuple[Service, Port], ...]) -> str:
    text = f"{describe_ports(ports)}, so http routes have no effect on requests to {host} in the mesh; "
    if all(port.protocol.is_tls for _, port in ports):
        return f"{text}use tls: with match: [{{port: {ports[0][1].number}, sniHosts: [{host}]}}]"
    first = next((one, port) for one, port in ports if not port.protocol.is_tls)
    return f"{text}if the port serves HTTP, {remedy_for_http(*first)}; otherwise use tcp:"


def _check_port(db: Mesh, services: list[Service], number: int, path: str) -> Problems:
    with_port = [(one, port) for one, port in ports_of(services) if port.number == number]
    if with_port:
        if all(port.protocol.is_tcp for _, port in with_port):
            remedy = remedy_for_http(*with_port[0])
            text = f"{describe_ports(with_port)}, so no request matches; if it serves HTTP, {remedy}"
            yield warning("never-matches", path, text)
    elif (remedy := target_port_remedy(services, number)) and number not in _egress_ports(db):
        yield warning("never-matches", path, f"the hosts have no port {number}, so no request matches{remedy}")


@derived
def _egress_ports(db: Mesh) -> frozenset[int]:
    """Return the ports of the egress listeners of all Sidecars, which a match may name instead of those of services."""
    rows = (SIDECAR.get(db, key) for key in SIDECAR.all_keys(db))
    return frozenset(
        listener.port.number
        for row in rows
        if row is not None
        for listener in row.spec.egress
        if listener.port is not None
    )
