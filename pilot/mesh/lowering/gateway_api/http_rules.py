"""Rules of HTTPRoutes and GRPCRoutes, converted to HTTP routes of a VirtualService. There is one for each match."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from pilot.config.gateway_api.grpc_route import GRPCMethodMatch, GRPCRouteMatch, GRPCRouteRule
from pilot.config.gateway_api.http_route import (
    HTTPBackendRef,
    HTTPRouteFilter,
    HTTPRouteMatch,
    HTTPRouteRule,
    NameMatch,
)
from pilot.config.gateway_api.reference import BackendObjectReference
from pilot.config.networking.virtual_service import (
    HTTPDirectResponse,
    HTTPMatchRequest,
    HTTPRetry,
    HTTPRoute,
    HTTPRouteDestination,
    StringMatch,
)
from pilot.config.object import EndpointPicker
from pilot.mesh.lowering.gateway_api.backends import Backends
from pilot.mesh.lowering.gateway_api.filters import (
    HEADERS,
    build_cors,
    build_headers,
    build_mirror,
    build_redirect,
    build_rewrite,
)
from pilot.mesh.model.condition import Fault

_CONNECTION_ERRORS = ("connect-failure", "refused-stream", "unavailable", "cancelled")
_ATTEMPTS = 2
_GRPC_FILTERS = (*HEADERS, "RequestMirror")
_HTTP_FILTERS = (*_GRPC_FILTERS, "RequestRedirect", "URLRewrite", "CORS")
_INVALID_BACKEND = ("RefNotPermitted", "BackendNotFound", "InvalidKind")


class ConvertedRules(NamedTuple):
    """The converted rules of a route, in the route's order, and a fault. If there are no rules, the whole route is
    invalid.

    `pickers` pairs the names of rules with their endpoint pickers.
    """

    rules: tuple[HTTPRoute, ...] = ()
    fault: Fault | None = None
    pickers: tuple[tuple[str, EndpointPicker], ...] = ()


def referenced_backend(ref: BackendObjectReference) -> BackendObjectReference:
    """Return only the backend of a reference, without its weight and filters."""
    return BackendObjectReference(group=ref.group, kind=ref.kind, name=ref.name, namespace=ref.namespace, port=ref.port)


def http_targets(rules: Iterable[HTTPRouteRule | GRPCRouteRule]) -> list[BackendObjectReference]:
    """Return all backends that rules reference, including the backends of mirrors."""
    targets: dict[BackendObjectReference, None] = {}
    for rule in rules:
        mirrors = (
            route_filter.request_mirror.backend_ref
            for route_filter in rule.filters
            if route_filter.request_mirror is not None
        )
        targets.update((referenced_backend(ref), None) for ref in (*rule.backend_refs, *mirrors))
    return list(targets)


def convert_http(name: str, rules: Sequence[HTTPRouteRule], backends: Backends) -> ConvertedRules:
    """Return the converted rules of an HTTPRoute.

    `name` is the `<namespace>.<name>` of the route. Unnamed rules are named `<namespace>.<name>.<position>`.
    """
    converted = (_http_rule(rule, rule.name or f"{name}.{position}", backends) for position, rule in enumerate(rules))
    return _convert(converted, ([_http_match(match_) for match_ in rule.matches] for rule in rules))


def convert_grpc(name: str, rules: Sequence[GRPCRouteRule], backends: Backends) -> ConvertedRules:
    """Return the converted rules of a GRPCRoute. They are named as in `convert_http`."""
    matches: list[list[HTTPMatchRequest]] = []
    for rule in rules:
        conditions = [_grpc_match(match_) for match_ in rule.matches]
        if any(isinstance(condition, Fault) for condition in conditions):
            return ConvertedRules((), next(condition for condition in conditions if isinstance(condition, Fault)))
        matches.append([condition for condition in conditions if isinstance(condition, HTTPMatchRequest)])
    converted = (_grpc_rule(rule, rule.name or f"{name}.{position}", backends) for position, rule in enumerate(rules))
    return _convert(converted, matches)


class _Rule(NamedTuple):
    rule: HTTPRoute | None
    fault: Fault | None = None
    picker: EndpointPicker | None = None


def _convert(rules: Iterable[_Rule], matches: Iterable[list[HTTPMatchRequest]]) -> ConvertedRules:
    """Return the converted rules, with one copy of a rule for each of its matches."""
    routes: list[HTTPRoute] = []
    pickers: dict[str, EndpointPicker] = {}
    fault: Fault | None = None
    for converted, conditions in zip(rules, matches, strict=True):
        if converted.rule is None:
            return ConvertedRules((), converted.fault)
        fault = converted.fault or fault
        if converted.picker is not None:
            pickers[converted.rule.name] = converted.picker
        routes += (
            (replace(converted.rule, match=(condition,)) for condition in conditions)
            if conditions
            else (converted.rule,)
        )
    return ConvertedRules(tuple(routes), fault, tuple(pickers.items()))


def _http_rule(rule: HTTPRouteRule, name: str, backends: Backends) -> _Rule:
    filtered = _with_filters(HTTPRoute(name=name), rule.filters, _HTTP_FILTERS, backends)
    if filtered.rule is None:
        return filtered
    route = _with_timeouts(filtered.rule, rule)
    return _with_destinations(route, rule.backend_refs, backends, filtered.fault)


def _grpc_rule(rule: GRPCRouteRule, name: str, backends: Backends) -> _Rule:
    filtered = _with_filters(HTTPRoute(name=name), rule.filters, _GRPC_FILTERS, backends)
    if filtered.rule is None:
        return filtered
    return _with_destinations(filtered.rule, rule.backend_refs, backends, filtered.fault)


def _with_filters(
    rule: HTTPRoute, filters: Sequence[HTTPRouteFilter], supported: tuple[str, ...], backends: Backends
) -> _Rule:
    """Return a rule with its filters applied. Mirrors to invalid backends are omitted and reported as a fault."""
    fault: Fault | None = None
    headers = build_headers(filters)
    if isinstance(headers, Fault):
        return _Rule(None, headers)
    rule = replace(rule, headers=headers)
    for route_filter in filters:
        if route_filter.type not in supported:
            return _Rule(None, Fault("InvalidFilter", f'unsupported filter type "{route_filter.type}"'))
        if route_filter.type == "RequestRedirect" and route_filter.request_redirect is not None:
            rule = replace(rule, redirect=build_redirect(route_filter.request_redirect))
        elif route_filter.type == "URLRewrite" and route_filter.url_rewrite is not None:
            rule = replace(rule, rewrite=build_rewrite(route_filter.url_rewrite))
        elif route_filter.type == "CORS" and route_filter.cors is not None:
            rule = replace(rule, cors_policy=build_cors(route_filter.cors))
        elif route_filter.type == "RequestMirror" and route_filter.request_mirror is not None:
            backend = backends[referenced_backend(route_filter.request_mirror.backend_ref)]
            fault = backend.fault or fault
            if backend.fault is None and backend.destination is not None:
                rule = replace(
                    rule, mirrors=(*rule.mirrors, build_mirror(route_filter.request_mirror, backend.destination))
                )
    return _Rule(rule, fault)


def _with_timeouts(rule: HTTPRoute, source: HTTPRouteRule) -> HTTPRoute:
    """Return a rule with its retries and timeouts. Without retries, the timeout per try applies to the request."""
    if source.retry is not None:
        attempts = source.retry.attempts if source.retry.attempts is not None else _ATTEMPTS
        on = ",".join((*_CONNECTION_ERRORS, *map(str, source.retry.codes))) if attempts else ""
        rule = replace(rule, retries=HTTPRetry(attempts=attempts, retry_on=on, backoff=source.retry.backoff))
    if source.timeouts is None:
        return rule
    if source.timeouts.request:
        rule = replace(rule, timeout=source.timeouts.request)
    if source.timeouts.backend_request:
        if rule.retries is not None:
            rule = replace(rule, retries=replace(rule.retries, per_try_timeout=source.timeouts.backend_request))
        else:
            rule = replace(rule, timeout=source.timeouts.backend_request)
    return rule


def _with_destinations(
    rule: HTTPRoute, refs: Sequence[HTTPBackendRef], backends: Backends, fault: Fault | None
) -> _Rule:
    """Return a rule with its destinations or, if no backend has a weight, with an error response.

    The endpoint picker is that of the last destination.
    """
    weighted = [ref for ref in refs if ref.weight]
    if sum(ref.weight for ref in refs) == 0 and rule.redirect is None:
        return _Rule(replace(rule, direct_response=HTTPDirectResponse(status=500)), fault)
    destinations: list[HTTPRouteDestination] = []
    backend_fault: Fault | None = None
    picker: EndpointPicker | None = None
    for ref in weighted:
        backend = backends[referenced_backend(ref)]
        if backend.fault is not None and backend.fault.reason not in _INVALID_BACKEND:
            return _Rule(None, backend.fault)
        backend_fault, picker = backend.fault or backend_fault, backend.picker
        unknown = next((route_filter.type for route_filter in ref.filters if route_filter.type not in HEADERS), None)
        if unknown is not None:
            return _Rule(None, Fault("InvalidFilter", f'unsupported filter type "{unknown}"'))
        headers = build_headers(ref.filters)
        if isinstance(headers, Fault):
            return _Rule(None, headers)
        destinations.append(
            HTTPRouteDestination(
                destination=backend.destination, set_weight=ref.weight if len(weighted) > 1 else 0, headers=headers
            )
        )
    return _Rule(replace(rule, route=tuple(destinations)), join_faults(backend_fault, fault), picker)


def join_faults(first: Fault | None, second: Fault | None) -> Fault | None:
    """Return two faults as one. It has the reason of the first fault."""
    if first is None or second is None:
        return first or second
    return Fault(first.reason, f"{first.message}; {second.message}")


# -- matches -----------------------------------------------------------------------------------------------------------


def _http_match(source: HTTPRouteMatch) -> HTTPMatchRequest:
    value = source.path.value or "/"
    match source.path.type:
        case "Exact":
            uri = StringMatch(exact=value)
        case "RegularExpression":
            uri = StringMatch(regex=value)
        case _:
            uri = StringMatch(prefix=value if value == "/" else value.removesuffix("/"))
    return HTTPMatchRequest(
        uri=uri,
        headers=_named(source.headers),
        query_params=_named(source.query_params),
        method=StringMatch(exact=source.method) if source.method is not None else None,
    )


def _named(matches: Iterable[NameMatch]) -> dict[str, StringMatch]:
    conditions: dict[str, StringMatch] = {}
    for name_match in matches:
        conditions.setdefault(
            name_match.name,
            StringMatch(regex=name_match.value)
            if name_match.type == "RegularExpression"
            else StringMatch(exact=name_match.value),
        )
    return conditions


def _grpc_match(source: GRPCRouteMatch) -> HTTPMatchRequest | Fault:
    uri = _grpc_path_match(source.method) if source.method is not None else None
    return uri if isinstance(uri, Fault) else HTTPMatchRequest(uri=uri, headers=_named(source.headers))


def _grpc_path_match(call: GRPCMethodMatch) -> StringMatch | Fault:
    """Return the match on the path of a gRPC call, which is /service/method."""
    if call.service is None and call.method is None:
        return Fault("InvalidConfiguration", "gRPC match must have method or service defined")
    if call.service is None:
        return StringMatch(regex=f"/[^/]+/{call.method}")
    if call.type == "RegularExpression":
        return StringMatch(regex=f"/{call.service}/{call.method or '.+'}")
    return (
        StringMatch(prefix=f"/{call.service}/")
        if call.method is None
        else StringMatch(exact=f"/{call.service}/{call.method}")
    )


# -- order -------------------------------------------------------------------------------------------------------------


def by_specificity(rule: HTTPRoute) -> tuple[int, ...]:
    """Return the key by which rules are sorted.

    Exact paths are first, followed by prefixes and then regular expressions. Longer paths precede shorter ones. Rules
    with equal paths are ordered by method, number of headers and number of query parameters.
    """
    if not rule.match:
        return (1,)
    match = rule.match[0]
    kind, length = _path(match.uri)
    return 0, -kind, -length, 0 if match.method is not None else 1, -len(match.headers), -len(match.query_params)


def _path(uri: StringMatch | None) -> tuple[int, int]:
    if uri is None:
        return -1, 0
    for kind, text in ((3, uri.exact), (2, uri.prefix), (1, uri.regex)):
        if text is not None:
            return kind, len(text)
    return -1, -1
