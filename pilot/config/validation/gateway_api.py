"""Validation of the Gateway API's objects from files. API servers validate them by their schema."""

from __future__ import annotations

from pilot.config.base import json_name
from pilot.config.gateway_api.gateway import Gateway, ListenerSet
from pilot.config.gateway_api.grpc_route import GRPCRoute
from pilot.config.gateway_api.http_route import HTTPRoute, HTTPRouteRule
from pilot.config.gateway_api.l4_route import TLSRoute
from pilot.config.object import Object
from pilot.config.problem import Problems, below, error, warning
from pilot.config.validation import rules

_FILTER_FIELDS = {
    "RequestHeaderModifier": "request_header_modifier",
    "ResponseHeaderModifier": "response_header_modifier",
    "RequestMirror": "request_mirror",
    "RequestRedirect": "request_redirect",
    "URLRewrite": "url_rewrite",
    "CORS": "cors",
}
"""The field of a filter that each type requires."""


def validate_route_hosts(o: Object[HTTPRoute] | Object[GRPCRoute] | Object[TLSRoute]) -> Problems:
    for index, hostname in enumerate(o.spec.hostnames):
        yield from rules.check_host(f"spec.hostnames[{index}]", hostname)


def validate_http_route(o: Object[HTTPRoute]) -> Problems:
    yield from validate_route_hosts(o)
    for index, rule in enumerate(o.spec.rules):
        yield from below(f"spec.rules[{index}]", list(_check_rule(rule)))


def _check_rule(rule: HTTPRouteRule) -> Problems:
    for index, match in enumerate(rule.matches):
        path = match.path
        if path.type != "RegularExpression" and not path.value.startswith("/"):
            text = f"{path.value!r} matches no request, because paths begin with /; write /{path.value}"
            yield warning("never-matches", f"matches[{index}].path.value", text)
    for index, backend in enumerate(rule.backend_refs):
        if backend.weight < 0:
            yield error("out-of-range", f"backendRefs[{index}].weight", f"{backend.weight} is negative")
    for index, route_filter in enumerate(rule.filters):
        field = _FILTER_FIELDS.get(route_filter.type, "")
        if field and getattr(route_filter, field) is None:
            text = f"the filter has no effect without its field {json_name(field)}"
            yield warning("no-effect", f"filters[{index}].type", text)


def validate_listeners(o: Object[Gateway] | Object[ListenerSet]) -> Problems:
    for index, listener in enumerate(o.spec.listeners):
        if listener.hostname:
            yield from rules.check_host(f"spec.listeners[{index}].hostname", listener.hostname)
        if listener.protocol == "HTTPS" and listener.tls is None:
            text = "HTTPS requires TLS settings; name the Secret with the certificate in certificateRefs"
            yield warning("tls-needed", f"spec.listeners[{index}].tls", text)
