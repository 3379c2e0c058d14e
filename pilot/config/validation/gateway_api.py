"""Validation of the Gateway API's objects from files. API servers validate them by their schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pilot.config.base import json_name
from pilot.config.gateway_api.gateway import Gateway, Listener, ListenerSet
from pilot.config.gateway_api.grpc_route import GRPCRoute, GRPCRouteRule
from pilot.config.gateway_api.http_route import (
    HTTPBackendRef,
    HTTPHeader,
    HTTPRoute,
    HTTPRouteFilter,
    HTTPRouteRule,
    NameMatch,
)
from pilot.config.gateway_api.l4_route import L4RouteRule, TCPRoute, TLSRoute, UDPRoute
from pilot.config.gateway_api.reference import (
    BackendObjectReference,
    BackendRef,
    ParentReference,
    ReferenceGrant,
    ReferenceGrantFrom,
    ReferenceGrantTo,
)
from pilot.config.group_kind import GATEWAY_API
from pilot.config.object import Object
from pilot.config.problem import LONGEST_FIELD, Problems, below, each, error, warning
from pilot.config.validation import rules
from pilot.lib.suggestion import did_you_mean
from pilot.lib.text import cut

_FILTER_FIELDS = {
    "RequestHeaderModifier": "request_header_modifier",
    "ResponseHeaderModifier": "response_header_modifier",
    "RequestMirror": "request_mirror",
    "RequestRedirect": "request_redirect",
    "URLRewrite": "url_rewrite",
    "CORS": "cors",
}
"""The field of a filter that each type requires."""
_HTTP_ONLY = ("RequestRedirect", "URLRewrite", "CORS")
"""Types of filters that GRPCRoutes do not have."""
_PARENT_GROUPS = {"Service": "", "ServiceEntry": "networking.istio.io"}
"""The groups of the kinds of parents that are not of the Gateway API."""
_PROTOCOLS = ("HTTP", "HTTPS", "TLS", "TCP", "HBONE")
_EMPTY = '""'
_LAST_PORT = 65535
_MOST_PARENTS, _MOST_LISTENERS = 32, 64
"""Maximum numbers of items that the schemas of the Gateway API allow. Files have no schema."""


def validate_http_route(o: Object[HTTPRoute]) -> Problems:
    yield from _check_parents_and_hosts(o)
    yield from each("spec.rules", o.spec.rules, _check_http_rule)


def validate_grpc_route(o: Object[GRPCRoute]) -> Problems:
    yield from _check_parents_and_hosts(o)
    for index, rule in enumerate(o.spec.rules):
        yield from below(f"spec.rules[{index}]", _check_grpc_rule(rule))


def validate_tls_route(o: Object[TLSRoute]) -> Problems:
    yield from _check_parents_and_hosts(o)
    if not o.spec.hostnames:
        # Objects that API servers store in version v1alpha2 may lack it.
        text = "required since v1alpha3; list the server names (SNI) of the connections, such as [shop.example.com]"
        yield warning("missing-field", "spec.hostnames", text)
    yield from _check_l4_rules(o)


def validate_l4_route(o: Object[TCPRoute] | Object[UDPRoute]) -> Problems:
    yield from _check_parents(o.spec.parent_refs)
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
    yield from _check_parents(o.spec.parent_refs)
    for index, hostname in enumerate(o.spec.hostnames):
        yield from rules.check_host(f"spec.hostnames[{index}]", hostname)


def _check_parents(parents: Sequence[ParentReference]) -> Problems:
    yield from _check_number("spec.parentRefs", parents, _MOST_PARENTS)
    yield from each("spec.parentRefs", parents, _check_parent)


def _check_number(path: str, items: Sequence[object], most: int) -> Problems:
    """Yield an error if a list is longer than the Gateway API allows. A route is attached to each listener of each
    parent."""
    if len(items) > most:
        yield error("too-many", path, f"{len(items)} items; the Gateway API allows at most {most}")


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
        yield from below(f"matches[{index}]", _check_names("headers", match.headers, "a header"))
        yield from below(f"matches[{index}]", _check_names("queryParams", match.query_params, "a query parameter"))
    yield from each("backendRefs", rule.backend_refs, _check_filtered_backend)
    yield from each("filters", rule.filters, _check_filter)
    yield from _check_replaced_prefixes(rule)


def _check_names(path: str, named: Iterable[NameMatch | HTTPHeader], what: str) -> Problems:
    """Yield an error for each match or header without a name, because Envoy rejects the routes of a whole port."""
    for index, one in enumerate(named):
        if not one.name:
            yield error("missing-field", f"{path}[{index}].name", f"required: name {what}")


def _check_replaced_prefixes(rule: HTTPRouteRule) -> Problems:
    """Yield a warning for each filter that replaces the prefix of a match, unless there is exactly one such match.

    API servers reject such routes. Those in files apply to the matches that have a prefix.
    """
    types = [match.path.type for match in rule.matches]
    if types == ["PathPrefix"]:
        return
    given = f"its match is {types[0]}" if len(types) == 1 else f"it has {len(types)}"
    text = (
        f"API servers require exactly one match, of the type PathPrefix, for ReplacePrefixMatch, but {given}; "
        "use path.type: PathPrefix, or ReplaceFullPath"
    )
    lists = [
        ("filters", rule.filters),
        *((f"backendRefs[{n}].filters", b.filters) for n, b in enumerate(rule.backend_refs)),
    ]
    for path, filters in lists:
        for index, one in enumerate(filters):
            for field in ("request_redirect", "url_rewrite"):
                changed = getattr(one, field)
                if changed is not None and changed.path is not None and changed.path.type == "ReplacePrefixMatch":
                    yield warning("prefix-match-needed", f"{path}[{index}].{json_name(field)}.path.type", text)


def _check_grpc_rule(rule: GRPCRouteRule) -> Problems:
    for index, match in enumerate(rule.matches):
        for field in ("service", "method") if match.method is not None and match.method.type == "Exact" else ():
            value = getattr(match.method, field) or ""
            service, slash, method = value.strip("/").partition("/")
            if slash or value != value.strip("/"):
                text = f"{value!r} is not a {field} name, so it matches no request"
                fix = f"; write service: {service}, method: {method}" if slash else f"; write {service}"
                yield warning("never-matches", f"matches[{index}].method.{field}", text + fix)
        yield from below(f"matches[{index}]", _check_names("headers", match.headers, "a header"))
    yield from each("backendRefs", rule.backend_refs, _check_filtered_backend)
    yield from each("filters", rule.filters, _check_grpc_filter)


def _check_grpc_filter(route_filter: HTTPRouteFilter) -> Problems:
    if route_filter.type in _HTTP_ONLY:
        yield warning("no-effect", "type", f"a GRPCRoute has no filter {route_filter.type}; use an HTTPRoute")
    else:
        yield from _check_filter(route_filter)


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
    for path, headers in (
        ("requestHeaderModifier", route_filter.request_header_modifier),
        ("responseHeaderModifier", route_filter.response_header_modifier),
    ):
        if headers is not None:
            yield from _check_names(f"{path}.set", headers.set, "a header")
            yield from _check_names(f"{path}.add", headers.add, "a header")
    if route_filter.request_mirror is not None:
        yield from below("requestMirror.backendRef", _check_reference(route_filter.request_mirror.backend_ref))


def _check_reference(backend: BackendObjectReference) -> Problems:
    yield from _check_name(backend)
    if backend.port is None and (backend.group, backend.kind) == ("", "Service"):
        yield error("missing-field", "port", "required for a Service: set it to the number of a port of the Service")


def _check_name(reference: ParentReference | BackendObjectReference) -> Problems:
    if not reference.name:
        yield error("missing-field", "name", f"required: set it to the name of a {reference.kind or 'backend'}")


def _check_parent(parent: ParentReference) -> Problems:
    yield from _check_name(parent)
    group = _PARENT_GROUPS.get(parent.kind)
    if parent.group == GATEWAY_API and group is not None:
        text = f"kind {parent.kind} needs group: {group or _EMPTY}; without it, the route has no effect"
        yield warning("no-effect", "kind", text)


def validate_gateway(o: Object[Gateway]) -> Problems:
    if not o.spec.gateway_class_name:
        yield error("missing-field", "spec.gatewayClassName", "required: name a GatewayClass, such as istio")
    yield from _check_listeners(o.spec.listeners)
    for index, listener in enumerate(o.spec.listeners):
        if not 1 <= listener.port <= _LAST_PORT:
            text = f"required, from 1 to {_LAST_PORT}" if not listener.port else f"{listener.port} is not a port"
            yield error("bad-port", f"spec.listeners[{index}].port", text)


def validate_listener_set(o: Object[ListenerSet]) -> Problems:
    yield from below("spec.parentRef", _check_name(o.spec.parent_ref))
    yield from _check_listeners(o.spec.listeners)


def _check_listeners(listeners: Sequence[Listener]) -> Problems:
    if not listeners:
        yield warning("missing-field", "spec.listeners", "API servers require a listener with name, port and protocol")
    yield from _check_number("spec.listeners", listeners, _MOST_LISTENERS)
    yield from each("spec.listeners", listeners, _check_listener)
    names = Counter(listener.name for listener in listeners)
    for index, listener in enumerate(listeners):
        if listener.name and names[listener.name] > 1:
            text = f"{cut(listener.name, LONGEST_FIELD)!r} occurs {names[listener.name]} times; names must be unique"
            yield error("repeated-name", f"spec.listeners[{index}].name", text)


def _check_listener(listener: Listener) -> Problems:
    if not listener.name:
        yield error("missing-field", "name", "required: routes refer to it in sectionName")
    if not listener.protocol:
        yield error("missing-field", "protocol", f"required: use one of {', '.join(_PROTOCOLS)}")
    elif listener.protocol not in _PROTOCOLS:
        suggestion = did_you_mean(listener.protocol, _PROTOCOLS)
        text = f"{cut(listener.protocol, LONGEST_FIELD)!r} is not supported, so the listener has no effect{suggestion}"
        yield warning("no-effect", "protocol", text)
    if listener.hostname:
        yield from rules.check_host("hostname", listener.hostname)
    if listener.protocol == "HTTPS" and listener.tls is None:
        text = "HTTPS requires TLS settings; name the Secret with the certificate in certificateRefs"
        yield warning("tls-needed", "tls", text)
    if listener.protocol == "HTTPS" and listener.tls is not None and listener.tls.mode == "Passthrough":
        text = "API servers require Terminate for the protocol HTTPS; use the protocol TLS to pass connections through"
        yield warning("bad-mode", "tls.mode", text)
