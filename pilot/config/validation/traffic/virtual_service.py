"""Validation of VirtualServices."""

from __future__ import annotations

import re

from pilot.config.networking.virtual_service import (
    L4MatchAttributes,
    RouteDestination,
    TCPRoute,
    TLSMatchAttributes,
    TLSRoute,
    VirtualService,
)
from pilot.config.object import Object
from pilot.config.problem import Problems, below, each, error, warning
from pilot.config.validation import rules
from pilot.config.validation.expansion import check_virtual_service
from pilot.config.validation.traffic.gateway_names import check_gateway_names
from pilot.config.validation.traffic.http_route import check_weighted, check_weights, validate_http_route
from pilot.config.validation.traffic.unreachable_routes import find_unreachable
from pilot.lib.addresses import is_ip
from pilot.lib.hosts import HostMatcher, is_wildcard

MESH = "mesh"
_SNI = re.compile(r"outbound_\.[0-9]+_\.[^_]*_\.[a-zA-Z].*", re.ASCII)  # the SNI of connections between networks


def validate_virtual_service(o: Object[VirtualService]) -> Problems:
    yield from below("spec", check_virtual_service(o.spec))
    yield from below("spec", _validate(o.spec, o.namespace))


def _validate(service: VirtualService, namespace: str) -> Problems:
    gateway = bool(service.gateways) and MESH not in service.gateways
    if service.hosts:
        yield from _check_hosts(service, gateway)
    else:
        for field, value in (("gateways", service.gateways), ("tls", service.tls), ("tcp", service.tcp)):
            if value:
                yield error(
                    "delegate-only-http", field, f"a VirtualService without hosts is a delegate and cannot have {field}"
                )
    yield from check_gateway_names("gateways", service.gateways)
    if not (service.http or service.tls or service.tcp):
        yield error("missing-field", "", "one of http, tls and tcp is required")
    yield from each("http", service.http, lambda route: validate_http_route(route, not service.hosts, gateway))
    hosts = HostMatcher(service.hosts)
    yield from each("tls", service.tls, lambda route: _validate_tls(route, hosts, gateway))
    yield from each("tcp", service.tcp, _validate_tcp)
    yield from rules.check_export_to("exportTo", service.export_to, namespace)
    yield from find_unreachable("http", service.http)
    yield from find_unreachable("tls", service.tls)
    yield from find_unreachable("tcp", service.tcp)


def _check_hosts(service: VirtualService, gateway: bool) -> Problems:
    sni = gateway and any(match.sni_hosts for route in service.tls for match in route.match)
    problems = [
        p for index, host in enumerate(service.hosts) for p in _check_host(f"hosts[{index}]", host, gateway, sni)
    ]
    if problems or len(service.hosts) > 1:
        yield from problems or _check_distinct(service.hosts)


def _check_host(path: str, host: str, gateway: bool, sni: bool) -> rules.Findings:
    if is_ip(host) or (sni and _SNI.fullmatch(host)):
        return ()
    if host == "*" and not gateway:
        return (
            error(
                "wildcard-in-mesh",
                path,
                "'*' is supported only at gateways; a VirtualService for the mesh must list its hosts",
            ),
        )
    return rules.check_host(path, host)


def _check_distinct(hosts: tuple[str, ...]) -> Problems:
    """Yield an error for each host that overlaps with an earlier one.

    There may be thousands of hosts, so none is compared with all others.
    """
    wildcards = HostMatcher(host for host in hosts if is_wildcard(host))
    seen: dict[str, int] = {}
    covered: dict[str, int] = {}  # the first host that a wildcard matches, keyed by wildcard
    for index, host in enumerate(hosts):
        covering = wildcards.wildcards_of(host)
        rivals = [seen[other] for other in covering if other in seen]
        if host in covered:
            rivals.append(covered[host])
        if host in seen or rivals:
            rival = host if host in seen else hosts[min(rivals)]
            yield error("duplicate-host", f"hosts[{index}]", f"{host!r} overlaps with {rival!r}")
        seen.setdefault(host, index)
        for wildcard in covering:
            covered.setdefault(wildcard, index)


def _validate_tls(route: TLSRoute, hosts: HostMatcher, gateway: bool) -> Problems:
    if not route.match:
        yield error("missing-field", "match", "a match is required")
    yield from each("match", route.match, lambda match: _validate_tls_match(match, hosts, gateway))
    yield from _validate_destinations(route.route)


def _validate_tls_match(match: TLSMatchAttributes, hosts: HostMatcher, gateway: bool) -> Problems:
    if not match.sni_hosts:
        yield error("missing-field", "sniHosts", "at least one SNI host is required")
    for index, name in enumerate(match.sni_hosts):
        place = f"sniHosts[{index}]"
        if is_ip(name):
            yield warning("sni-address", place, "most clients do not send an IP address as SNI")
        elif problems := () if gateway and _SNI.fullmatch(name) else tuple(rules.check_host(place, name)):
            yield from problems
        elif not hosts.covers(name):
            yield error("sni-not-of-host", place, f"{name!r} does not match any host of the VirtualService")
        else:
            yield from rules.check_server_name(place, name)
    yield from _check_l4(match)


def _validate_tcp(route: TCPRoute) -> Problems:
    yield from each("match", route.match, _check_l4)
    yield from _validate_destinations(route.route)


def _check_l4(match: TLSMatchAttributes | L4MatchAttributes) -> Problems:
    for index, subnet in enumerate(match.destination_subnets):
        yield from rules.check_subnet(f"destinationSubnets[{index}]", subnet)
    if match.port:
        yield from rules.check_port("port", match.port)
    yield from rules.check_labels("sourceLabels", match.source_labels)
    yield from check_gateway_names("gateways", match.gateways)


def _validate_destinations(destinations: tuple[RouteDestination, ...]) -> Problems:
    if not destinations:
        yield error("missing-field", "route", "a destination is required")
    for index, weighted in enumerate(destinations):
        yield from below(f"route[{index}]", check_weighted(weighted.destination, weighted.weight))
    yield from check_weights("route", destinations)
