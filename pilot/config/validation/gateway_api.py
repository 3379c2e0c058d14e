"""Validation of the Gateway API's objects from files. API servers validate them by their schema."""

from __future__ import annotations

from pilot.config.base import json_name
from pilot.config.gateway_api.gateway import Gateway, ListenerSet
from pilot.config.gateway_api.grpc_route import GRPCRoute, GRPCRouteRule
from pilot.config.gateway_api.http_route import HTTPBackendRef, HTTPRoute, HTTPRouteFilter, HTTPRouteRule
from pilot.config.gateway_api.l4_route import L4RouteRule, TCPRoute, TLSRoute, UDPRoute
from pilot.config.gateway_api.reference import (
    BackendObjectReference,
    BackendRef,
    ParentReference,
    ReferenceGrant,
    ReferenceGrantFrom,
    ReferenceGrantTo,
)
from pilot.config.object import Object
from pilot.config.problem import Problems, below, each, error, warning
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


def validate_http_route(o: Object[HTTPRoute]) -> Problems:
    yield from _check_parents_and_hosts(o)
    yield from each("spec.rules", o.spec.rules, _check_http_rule)


def validate_grpc_route(o: Object[GRPCRoute]) -> Problems:
    yield from _check_parents_and_hosts(o)
    yield from each("spec.rules", o.spec.rules, _check_rule)


def validate_tls_route(o: Object[TLSRoute]) -> Problems:
    yield from _check_parents_and_hosts(o)
    if not o.spec.hostnames:
        # Objects that API servers store in version v1alpha2 may lack it.
        text = "required since v1alpha3; list the server names (SNI) of the connections, such as [shop.example.com]"
        yield warning("missing-field", "spec.hostnames", text)
    yield from _check_l4_rules(o)


def validate_l4_route(o: Object[TCPRoute] | Object[UDPRoute]) -> Problems:
    yield from each("spec.parentRefs", o.spec.parent_refs, _check_name)
    yield from _check_l4_rules(o)


def validate_reference_grant(o: Object[ReferenceGrant]) -> Problems:
    if not o.spec.from_:
        yield error("missing-field", "spec.from", "required: list group, kind and namespace of the objects that refer")
    if not o.spec.to:
        yield error("missing-field", "spec.to", "required: list the group and kind of the objects that are referred to")
    yield from each("spec.from", o.spec.from_, _check_source)
    yield from each("spec.to", o.spec.to, _check_group_and_kind)


def _check_source(source: ReferenceGrantFrom) -> Problems:
    yield from _check_group_and_kind(source)
    if not source.namespace:
        yield error("missing-field", "namespace", "required: name the namespace of the objects that refer")


def _check_group_and_kind(end: ReferenceGrantFrom | ReferenceGrantTo) -> Problems:
    if end.group is None:
        yield error("missing-field", "group", "required: name the API group, or '' for Services and Secrets")
    if not end.kind:
        yield error("missing-field", "kind", "required: name a kind, such as HTTPRoute or Service")


def _check_parents_and_hosts(o: Object[HTTPRoute] | Object[GRPCRoute] | Object[TLSRoute]) -> Problems:
    yield from each("spec.parentRefs", o.spec.parent_refs, _check_name)
    for index, hostname in enumerate(o.spec.hostnames):
        yield from rules.check_host(f"spec.hostnames[{index}]", hostname)


def _check_l4_rules(o: Object[TCPRoute] | Object[TLSRoute] | Object[UDPRoute]) -> Problems:
    if not o.spec.rules:
        yield error("missing-field", "spec.rules", "required: write a rule with backendRefs")
    yield from each("spec.rules", o.spec.rules, _check_backends)


def _check_backends(rule: L4RouteRule) -> Problems:
    yield from each("backendRefs", rule.backend_refs, _check_backend)


def _check_http_rule(rule: HTTPRouteRule) -> Problems:
    for index, match in enumerate(rule.matches):
        path = match.path
        if path.type != "RegularExpression" and not path.value.startswith("/"):
            text = f"{path.value!r} matches no request, because paths begin with /; write /{path.value}"
            yield warning("never-matches", f"matches[{index}].path.value", text)
    yield from _check_rule(rule)


def _check_rule(rule: HTTPRouteRule | GRPCRouteRule) -> Problems:
    yield from each("backendRefs", rule.backend_refs, _check_filtered_backend)
    yield from each("filters", rule.filters, _check_filter)


def _check_filtered_backend(backend: HTTPBackendRef) -> Problems:
    yield from _check_backend(backend)
    yield from each("filters", backend.filters, _check_filter)


def _check_backend(backend: BackendRef) -> Problems:
    yield from _check_reference(backend)
    if backend.weight < 0:
        yield error("out-of-range", "weight", f"{backend.weight} is negative")


def _check_filter(route_filter: HTTPRouteFilter) -> Problems:
    field = _FILTER_FIELDS.get(route_filter.type, "")
    if field and getattr(route_filter, field) is None:
        yield warning("no-effect", "type", f"the filter has no effect without its field {json_name(field)}")
    if route_filter.request_mirror is not None:
        yield from below("requestMirror.backendRef", _check_reference(route_filter.request_mirror.backend_ref))


def _check_reference(backend: BackendObjectReference) -> Problems:
    yield from _check_name(backend)
    if backend.port is None and (backend.group, backend.kind) == ("", "Service"):
        yield error("missing-field", "port", "required for a Service: set it to the number of a port of the Service")


def _check_name(reference: ParentReference | BackendObjectReference) -> Problems:
    if not reference.name:
        yield error("missing-field", "name", f"required: set it to the name of a {reference.kind or 'backend'}")


def validate_listeners(o: Object[Gateway] | Object[ListenerSet]) -> Problems:
    for index, listener in enumerate(o.spec.listeners):
        if listener.hostname:
            yield from rules.check_host(f"spec.listeners[{index}].hostname", listener.hostname)
        if listener.protocol == "HTTPS" and listener.tls is None:
            text = "HTTPS requires TLS settings; name the Secret with the certificate in certificateRefs"
            yield warning("tls-needed", f"spec.listeners[{index}].tls", text)
