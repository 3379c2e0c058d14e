"""Tells whether a patch is for something: by names alone, and by what is in it."""

from __future__ import annotations

from typing import Any

from pilot.config.networking.envoy_filter import ClusterMatch, ListenerMatch, RouteConfigurationMatch
from pilot.envoy import names
from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.lib.xds_types import CLUSTER, LISTENER
from pilot.mesh.model.facets import PatchFacet

_CAPTURING = frozenset((names.VIRTUAL_INBOUND, names.VIRTUAL_OUTBOUND))
_ROUTES = frozenset(("ROUTE_CONFIGURATION", "VIRTUAL_HOST", "HTTP_ROUTE"))
_ACTIONS = {"route": "ROUTE", "redirect": "REDIRECT", "direct_response": "DIRECT_RESPONSE"}


def can_touch(patch: ParsedPatch, type_url: str, name: str, facet: PatchFacet) -> bool:
    """Returns whether a patch can change a resource of a name. Where only the content tells, it can."""
    if type_url == CLUSTER:
        return patch.operation != "ADD" and matches_cluster(patch.match.cluster, name, facet)
    if type_url == LISTENER:
        return patch.apply_to in _ROUTES or (
            patch[1:3] != ("LISTENER", "ADD") and _can_match_listener(patch.match.listener, name)
        )
    return matches_routes(patch.match.route_configuration, name, facet)


def touched_text(patch: ParsedPatch, type_url: str, facet: PatchFacet) -> str | None:
    """Returns a text that every name has of resources that a patch can touch, "" where there is none; None for a patch that can touch all."""
    match = patch.match
    if type_url == CLUSTER:
        if match.cluster is None:
            return None if patch.operation != "ADD" else ""
        return match.cluster.name or (match.cluster.service if not facet.hosts else "")
    if type_url == LISTENER:
        return ""
    return None if match.route_configuration is None else match.route_configuration.name


def _can_match_listener(match: ListenerMatch | None, name: str) -> bool:
    if match is None or name in _CAPTURING:
        return match is None or match.name in ("", name)
    port = names.listener_port(name)
    return match.name in ("", name) and (not match.port_number or port is None or port == match.port_number)


# -- clusters --------------------------------------------------------------------------------------------------------------


def matches_cluster(match: ClusterMatch | None, name: str, facet: PatchFacet) -> bool:
    """Returns whether a cluster of a name is asked for. That of an inbound port is asked for by the services of the port, too."""
    if match is None or match.name:
        return match is None or match.name == name
    parsed = names.parse_cluster(name)
    direction, port, subset, host = parsed if parsed is not None else ("", 0, "", "")
    hosts = dict(facet.hosts).get(port) if direction == names.INBOUND else None
    return (
        match.subset in ("", subset)
        and (not match.service or match.service in (hosts or (host,)))
        and match.port_number in (0, port)
    )


# -- listeners -------------------------------------------------------------------------------------------------------------


def matches_listener(patch: ParsedPatch, listener: Any) -> bool:
    """Returns whether a listener, or something in it, is asked for. A port of a listener that captures all traffic is one of its chains'."""
    match = patch.match.listener
    if match is None:
        return True
    if match.name not in ("", listener.name):
        return False
    if patch.apply_to != "LISTENER" and listener.name in _CAPTURING:
        return True
    return not match.port_number or listener.address.socket_address.port_value == match.port_number


def matches_chain(patch: ParsedPatch, listener: Any, chain: Any) -> bool:
    """Returns whether a filter chain of a listener that is asked for is asked for too."""
    match = patch.match.listener
    if match is None:
        return True
    own = chain.filter_chain_match
    if listener.name in _CAPTURING and match.port_number and own.destination_port.value != match.port_number:
        return False
    asked = match.filter_chain
    return asked is None or (
        asked.name in ("", chain.name)
        and (not asked.sni or asked.sni in own.server_names)
        and asked.transport_protocol in ("", own.transport_protocol)
        and (
            not asked.application_protocols
            or set(asked.application_protocols.split(",")) <= set(own.application_protocols)
        )
        and asked.destination_port in (0, own.destination_port.value)
    )


# -- routes ----------------------------------------------------------------------------------------------------------------


def matches_routes(match: RouteConfigurationMatch | None, name: str, facet: PatchFacet) -> bool:
    """Returns whether a route configuration of a name is asked for. A router's by the ports that its servers name, too."""
    if match is None or match.name not in ("", name):
        return match is None
    if facet.context != "GATEWAY":
        return match.port_number in (0, names.routes_port(name))
    parsed = names.parse_gateway_routes(name)
    return (
        match.port_name in ("", parsed.port_name)
        and match.gateway in ("", parsed.gateway)
        and (not match.port_number or match.port_number in dict(facet.ports).get(parsed.port, (parsed.port,)))
    )


def matches_host(patch: ParsedPatch, host: Any) -> bool:
    """Returns whether a virtual host of a route configuration that is asked for is asked for too."""
    match = patch.match.route_configuration.vhost if patch.match.route_configuration is not None else None
    return match is None or (
        match.name in ("", host.name) and (not match.domain_name or match.domain_name in host.domains)
    )


def host_texts(patch: ParsedPatch) -> tuple[bytes, ...]:
    """Returns what stands in every virtual host that a patch asks for."""
    match = patch.match.route_configuration.vhost if patch.match.route_configuration is not None else None
    return (match.name.encode(), match.domain_name.encode()) if match is not None else ()


def names_route(patch: ParsedPatch) -> bool:
    """Returns whether a patch asks for some route of a virtual host."""
    match = patch.match.route_configuration
    return match is not None and match.vhost is not None and match.vhost.route is not None


def matches_route(patch: ParsedPatch, route: Any) -> bool:
    """Returns whether a route of a virtual host that is asked for is asked for too. A route of another action than a match can name has any."""
    host = patch.match.route_configuration.vhost if patch.match.route_configuration is not None else None
    match = host.route if host is not None else None
    if match is None:
        return True
    action = _ACTIONS.get(route.WhichOneof("action") or "", match.action)
    return match.name in ("", route.name) and match.action in ("ANY", action)
