"""Decides whether a patch matches a resource, based on the resource's name and content."""

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


def can_change(patch: ParsedPatch, type_url: str, name: str, facet: PatchFacet) -> bool:
    """Return whether a patch can change a resource with this name. Return True if this also depends on the content."""
    if type_url == CLUSTER:
        return patch.operation != "ADD" and matches_cluster(patch.match.cluster, name, facet)
    if type_url == LISTENER:
        return patch.apply_to in _ROUTES or (
            patch[1:3] != ("LISTENER", "ADD") and _can_match_listener(patch.match.listener, name)
        )
    return matches_routes(patch.match.route_configuration, name, facet)


def required_text(patch: ParsedPatch, type_url: str, facet: PatchFacet) -> str | None:
    """Return a string that the name of a resource must contain if the patch is to change the resource.

    Return "" if no such string is known, and None if the patch can change every resource.
    """
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


# -- clusters ----------------------------------------------------------------------------------------------------------


def matches_cluster(match: ClusterMatch | None, name: str, facet: PatchFacet) -> bool:
    """Return whether a patch matches a cluster with this name.

    The patch may name any of the services on an inbound cluster's port.
    """
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


# -- listeners ---------------------------------------------------------------------------------------------------------


def matches_listener(patch: ParsedPatch, listener: Any) -> bool:
    """Return whether a patch can match a listener or a part of it.

    The port number in a match refers to the listener. For a capture listener, it refers to the filter chains.
    """
    match = patch.match.listener
    if match is None:
        return True
    if match.name not in ("", listener.name):
        return False
    if patch.apply_to != "LISTENER" and listener.name in _CAPTURING:
        return True
    return not match.port_number or listener.address.socket_address.port_value == match.port_number


def matches_chain(patch: ParsedPatch, listener: Any, chain: Any) -> bool:
    """Return whether a patch matches a filter chain. The listener must already match."""
    match = patch.match.listener
    if match is None:
        return True
    chain_match = chain.filter_chain_match
    if listener.name in _CAPTURING and match.port_number and chain_match.destination_port.value != match.port_number:
        return False
    conditions = match.filter_chain
    return conditions is None or (
        conditions.name in ("", chain.name)
        and (not conditions.sni or conditions.sni in chain_match.server_names)
        and conditions.transport_protocol in ("", chain_match.transport_protocol)
        and (
            not conditions.application_protocols
            or set(conditions.application_protocols.split(",")) <= set(chain_match.application_protocols)
        )
        and conditions.destination_port in (0, chain_match.destination_port.value)
    )


# -- routes ------------------------------------------------------------------------------------------------------------


def matches_routes(match: RouteConfigurationMatch | None, name: str, facet: PatchFacet) -> bool:
    """Return whether a patch matches a route configuration with this name.

    At a gateway, the patch may name any port of the servers that share the route configuration.
    """
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
    """Return whether a patch matches a virtual host. The route configuration must already match."""
    match = patch.match.route_configuration.vhost if patch.match.route_configuration is not None else None
    return match is None or (
        match.name in ("", host.name) and (not match.domain_name or match.domain_name in host.domains)
    )


def host_texts(patch: ParsedPatch) -> tuple[bytes, ...]:
    """Return the strings that a virtual host must contain if the patch is to match it."""
    match = patch.match.route_configuration.vhost if patch.match.route_configuration is not None else None
    return (match.name.encode(), match.domain_name.encode()) if match is not None else ()


def names_route(patch: ParsedPatch) -> bool:
    """Return whether a patch matches only some routes of a virtual host."""
    match = patch.match.route_configuration
    return match is not None and match.vhost is not None and match.vhost.route is not None


def matches_route(patch: ParsedPatch, route: Any) -> bool:
    """Return whether a patch matches a route. The virtual host must already match.

    A patch matches routes with an action that EnvoyFilters cannot name, whichever action the patch names.
    """
    host = patch.match.route_configuration.vhost if patch.match.route_configuration is not None else None
    match = host.route if host is not None else None
    if match is None:
        return True
    action = _ACTIONS.get(route.WhichOneof("action") or "", match.action)
    return match.name in ("", route.name) and match.action in ("ANY", action)
