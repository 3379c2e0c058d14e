"""Builds the routes of a VirtualService."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.type.matcher.v3 import regex_pb2
from google.protobuf import struct_pb2

from pilot.config.networking.virtual_service import HTTPMatchRequest, HTTPRoute, VirtualService
from pilot.config.object import EndpointPicker, Object, ObjectKey
from pilot.envoy.http_filter import endpoint_picker
from pilot.envoy.http_filter.prebuilt_http_filters import CORS_FILTER, FAULT_FILTER, STATEFUL_SESSION_FILTER
from pilot.envoy.names import config_path
from pilot.envoy.route.action.header_operations import build_append_header, build_header_mutations
from pilot.envoy.route.action.local_response import build_direct_response, build_redirect
from pilot.envoy.route.action.per_route_filters import build_cors, build_fault
from pilot.envoy.route.action.route_action import build_action, destinations
from pilot.envoy.route.decorator import operation_name
from pilot.envoy.route.route_context import RouteContext
from pilot.envoy.route.route_match import build_match, build_regex, is_catch_all, matches_proxy
from pilot.envoy.route.sticky_session import StickySession, build_sticky_session
from pilot.envoy.well_known_types import pack

ALT_SVC_SECONDS = 86_400


def build_routes(service: Object[VirtualService], context: RouteContext) -> Iterator[route_components_pb2.Route]:
    """Yield one route for each match, in order of evaluation, up to the first route that matches every request.

    There are none if no rule applies to the proxy and port of the context.
    """
    metadata = build_metadata(service.key)
    for rule in service.spec.http:
        for route in build_rule(service, rule, context, metadata):
            yield route
            if is_catch_all(route.match):
                return
        if not rule.match:
            return


def build_rule(
    service: Object[VirtualService], rule: HTTPRoute, context: RouteContext, metadata: base_pb2.Metadata
) -> Iterator[route_components_pb2.Route]:
    """Yield one route for each match of a rule that applies to the proxy and port of the context.

    The routes depend only on the rule, the context, and the key and origin of the VirtualService.
    """
    for match in rule.match or (None,):
        route = build_route(service, rule, match, context, metadata)
        if route is not None:
            yield route


def has_routes(
    service: VirtualService, port: int, gateways: frozenset[str], namespace: str, labels: frozenset[tuple[str, str]]
) -> bool:
    """Return whether a VirtualService has routes for a proxy and port."""
    return any(
        not rule.match or any(matches_proxy(m, port, gateways, namespace, labels) for m in rule.match)
        for rule in service.http
    )


def build_metadata(key: ObjectKey) -> base_pb2.Metadata:
    """Return the metadata that names the route's source object."""
    config = struct_pb2.Value(string_value=config_path("virtual-service", key.namespace, key.name))
    return base_pb2.Metadata(filter_metadata={"istio": struct_pb2.Struct(fields={"config": config})})


def build_route(
    service: Object[VirtualService],
    rule: HTTPRoute,
    match: HTTPMatchRequest | None,
    context: RouteContext,
    metadata: base_pb2.Metadata,
) -> route_components_pb2.Route | None:
    """Return the route of a rule for one match.

    Return None if the match does not apply to the proxy, or if the rule has no valid action.
    """
    if match is not None and not matches_proxy(
        match, context.port, context.gateways, context.namespace, context.labels
    ):
        return None
    mutations = build_header_mutations(rule.headers)
    route = route_components_pb2.Route(
        name=f"{rule.name}.{match.name}" if match is not None and match.name else rule.name,
        stat_prefix=match.stat_prefix if match is not None else "",
        match=build_match(match, by_segment=service.origin is not None),
        metadata=metadata,
        **mutations.fields(),
    )
    if not _set_action(route, rule, context, mutations.authority):
        return None
    if service.origin is not None and service.origin.semantics == "gateway" and route.HasField("route"):
        apply_gateway_api_semantics(route)
    route.decorator.operation = operation_name(route, service.name, context.port)
    _set_filters(route, rule, context)
    if service.origin is not None and service.origin.pickers:
        _set_picker(route, dict(service.origin.pickers).get(rule.name))
    if context.alt_svc:
        route.response_headers_to_add.append(
            build_append_header("alt-svc", f'h3=":{context.port}"; ma={ALT_SVC_SECONDS}')
        )
    return route


def _set_action(route: route_components_pb2.Route, rule: HTTPRoute, context: RouteContext, authority: str) -> bool:
    """Set the action of the route. Return False if the rule has no valid action."""
    if rule.redirect is not None:
        redirect = build_redirect(rule.redirect, context.port, context.tls)
        if redirect is None:
            return False
        route.redirect.CopyFrom(redirect)
    elif rule.direct_response is not None:
        route.direct_response.CopyFrom(build_direct_response(rule.direct_response))
    else:
        action = build_action(rule, context, authority)
        if action is None:
            return False
        route.route.CopyFrom(action)
        if len(rule.route) == 1:
            _add_destination_headers(route, rule)
    return True


def _add_destination_headers(route: route_components_pb2.Route, rule: HTTPRoute) -> None:
    """Add the headers of a single destination to the route, because there is no weighted cluster that could have them.

    The host that the rule sets takes precedence over the destination's.
    """
    mutations = build_header_mutations(rule.route[0].headers)
    for name, values in mutations.fields().items():
        getattr(route, name).extend(values)
    if mutations.authority and not route.route.host_rewrite_literal:
        route.route.host_rewrite_literal = mutations.authority


def _set_filters(route: route_components_pb2.Route, rule: HTTPRoute, context: RouteContext) -> None:
    if rule.fault is not None:
        route.typed_per_filter_config[FAULT_FILTER].CopyFrom(pack(build_fault(rule.fault)))
    if rule.cors_policy is not None:
        route.typed_per_filter_config[CORS_FILTER].CopyFrom(pack(build_cors(rule.cors_policy)))
    session = _session(rule, context) if route.HasField("route") else None
    if session is not None:
        route.typed_per_filter_config[STATEFUL_SESSION_FILTER].CopyFrom(build_sticky_session(session))


def _set_picker(route: route_components_pb2.Route, picker: EndpointPicker | None) -> None:
    if picker is not None:
        route.typed_per_filter_config[endpoint_picker.NAME].CopyFrom(endpoint_picker.build_override(picker))


def _session(rule: HTTPRoute, context: RouteContext) -> StickySession | None:
    """Return the sticky session that applies to a rule, or None if there is none.

    It is the session of the first destination that is directly followed by another destination with a session. If there
    is no such pair, it is the session of the last destination.
    """
    sticky_session: StickySession | None = None
    for destination in destinations(rule):
        service = (
            context.destinations.get(destination.destination.host) if destination.destination is not None else None
        )
        session = service.session if service is not None else None
        if sticky_session is not None and session is not None:
            break
        sticky_session = session
    return sticky_session


_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
_REST_OF_PATH = r"/\2"


def apply_gateway_api_semantics(route: route_components_pb2.Route) -> None:
    """Apply the semantics of the Gateway API to a route with destinations.

    Requests to a missing backend fail with 500. If a prefix is replaced with "/", the rest of the path starts with
    exactly one slash.
    """
    action = route.route
    action.cluster_not_found_response_code = route_components_pb2.RouteAction.INTERNAL_SERVER_ERROR
    if action.prefix_rewrite == "/":
        prefix = _SPECIAL.sub(lambda match: "\\" + match[0], route.match.path_separated_prefix)
        pattern = build_regex(f"^{prefix}(/?)(.*)")
        action.prefix_rewrite = ""
        action.regex_rewrite.CopyFrom(regex_pb2.RegexMatchAndSubstitute(pattern=pattern, substitution=_REST_OF_PATH))
