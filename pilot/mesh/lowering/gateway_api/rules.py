"""Rules of HTTPRoutes and GRPCRoutes as rules of a VirtualService, one for each of their matches."""

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


class Converted(NamedTuple):
    """The rules of a route, in its order, and what is wrong with it. Without rules the route as a whole cannot be. `pickers`: by the name of a
    rule, who chooses the endpoints of its requests."""

    rules: tuple[HTTPRoute, ...] = ()
    fault: Fault | None = None
    pickers: tuple[tuple[str, EndpointPicker], ...] = ()


def target_of(ref: BackendObjectReference) -> BackendObjectReference:
    """Returns what a reference names, without what a route says besides."""
    return BackendObjectReference(group=ref.group, kind=ref.kind, name=ref.name, namespace=ref.namespace, port=ref.port)


def http_targets(rules: Iterable[HTTPRouteRule | GRPCRouteRule]) -> list[BackendObjectReference]:
    """Returns all that rules refer to: backends, and what requests are mirrored to."""
    found: dict[BackendObjectReference, None] = {}
    for rule in rules:
        mirrors = (one.request_mirror.backend_ref for one in rule.filters if one.request_mirror is not None)
        found.update((target_of(ref), None) for ref in (*rule.backend_refs, *mirrors))
    return list(found)


def convert_http(name: str, rules: Sequence[HTTPRouteRule], backends: Backends) -> Converted:
    """Returns the rules of an HTTPRoute; `name`: namespace and name with a dot between, which rules without a name go by with their position."""
    made = (_http_rule(rule, rule.name or f"{name}.{n}", backends) for n, rule in enumerate(rules))
    return _convert(made, ([_http_match(m) for m in rule.matches] for rule in rules))


def convert_grpc(name: str, rules: Sequence[GRPCRouteRule], backends: Backends) -> Converted:
    """Returns the rules of a GRPCRoute; names are as in `convert_http`."""
    matches: list[list[HTTPMatchRequest]] = []
    for rule in rules:
        found = [_grpc_match(m) for m in rule.matches]
        if any(isinstance(one, Fault) for one in found):
            return Converted((), next(one for one in found if isinstance(one, Fault)))
        matches.append([one for one in found if isinstance(one, HTTPMatchRequest)])
    made = (_grpc_rule(rule, rule.name or f"{name}.{n}", backends) for n, rule in enumerate(rules))
    return _convert(made, matches)


class _Rule(NamedTuple):
    rule: HTTPRoute | None
    fault: Fault | None = None
    picker: EndpointPicker | None = None


def _convert(rules: Iterable[_Rule], matches: Iterable[list[HTTPMatchRequest]]) -> Converted:
    """Returns each rule once for each of its matches."""
    out: list[HTTPRoute] = []
    pickers: dict[str, EndpointPicker] = {}
    fault: Fault | None = None
    for made, conditions in zip(rules, matches, strict=True):
        if made.rule is None:
            return Converted((), made.fault)
        fault = made.fault or fault
        if made.picker is not None:
            pickers[made.rule.name] = made.picker
        out += (replace(made.rule, match=(one,)) for one in conditions) if conditions else (made.rule,)
    return Converted(tuple(out), fault, tuple(pickers.items()))


def _http_rule(said: HTTPRouteRule, name: str, backends: Backends) -> _Rule:
    made = _filtered(HTTPRoute(name=name), said.filters, _HTTP_FILTERS, backends)
    if made.rule is None:
        return made
    rule = _timed(made.rule, said)
    return _routed(rule, said.backend_refs, backends, made.fault)


def _grpc_rule(said: GRPCRouteRule, name: str, backends: Backends) -> _Rule:
    made = _filtered(HTTPRoute(name=name), said.filters, _GRPC_FILTERS, backends)
    if made.rule is None:
        return made
    return _routed(made.rule, said.backend_refs, backends, made.fault)


def _filtered(rule: HTTPRoute, filters: Sequence[HTTPRouteFilter], known: tuple[str, ...], backends: Backends) -> _Rule:
    """Returns a rule with what its filters do; a mirror to an invalid backend is left out, and told."""
    fault: Fault | None = None
    headers = build_headers(filters)
    if isinstance(headers, Fault):
        return _Rule(None, headers)
    rule = replace(rule, headers=headers)
    for one in filters:
        if one.type not in known:
            return _Rule(None, Fault("InvalidFilter", f'unsupported filter type "{one.type}"'))
        if one.type == "RequestRedirect" and one.request_redirect is not None:
            rule = replace(rule, redirect=build_redirect(one.request_redirect))
        elif one.type == "URLRewrite" and one.url_rewrite is not None:
            rule = replace(rule, rewrite=build_rewrite(one.url_rewrite))
        elif one.type == "CORS" and one.cors is not None:
            rule = replace(rule, cors_policy=build_cors(one.cors))
        elif one.type == "RequestMirror" and one.request_mirror is not None:
            backend = backends[target_of(one.request_mirror.backend_ref)]
            fault = backend.fault or fault
            if backend.fault is None and backend.destination is not None:
                rule = replace(rule, mirrors=(*rule.mirrors, build_mirror(one.request_mirror, backend.destination)))
    return _Rule(rule, fault)


def _timed(rule: HTTPRoute, said: HTTPRouteRule) -> HTTPRoute:
    """Returns a rule with its retries and timeouts. The time of one try is that of the request where nothing is tried again."""
    if said.retry is not None:
        attempts = said.retry.attempts if said.retry.attempts is not None else _ATTEMPTS
        on = ",".join((*_CONNECTION_ERRORS, *map(str, said.retry.codes))) if attempts else ""
        rule = replace(rule, retries=HTTPRetry(attempts=attempts, retry_on=on, backoff=said.retry.backoff))
    if said.timeouts is None:
        return rule
    if said.timeouts.request:
        rule = replace(rule, timeout=said.timeouts.request)
    if said.timeouts.backend_request:
        if rule.retries is not None:
            rule = replace(rule, retries=replace(rule.retries, per_try_timeout=said.timeouts.backend_request))
        else:
            rule = replace(rule, timeout=said.timeouts.backend_request)
    return rule


def _routed(rule: HTTPRoute, refs: Sequence[HTTPBackendRef], backends: Backends, fault: Fault | None) -> _Rule:
    """Returns a rule with its destinations; without any that gets requests it answers them with an error. The last of them says who picks."""
    weighed = [ref for ref in refs if ref.weight]
    if sum(ref.weight for ref in refs) == 0 and rule.redirect is None:
        return _Rule(replace(rule, direct_response=HTTPDirectResponse(status=500)), fault)
    out: list[HTTPRouteDestination] = []
    wrong: Fault | None = None
    picker: EndpointPicker | None = None
    for ref in weighed:
        backend = backends[target_of(ref)]
        if backend.fault is not None and backend.fault.reason not in _INVALID_BACKEND:
            return _Rule(None, backend.fault)
        wrong, picker = backend.fault or wrong, backend.picker
        unknown = next((one.type for one in ref.filters if one.type not in HEADERS), None)
        if unknown is not None:
            return _Rule(None, Fault("InvalidFilter", f'unsupported filter type "{unknown}"'))
        headers = build_headers(ref.filters)
        if isinstance(headers, Fault):
            return _Rule(None, headers)
        out.append(
            HTTPRouteDestination(
                destination=backend.destination, weight=ref.weight if len(weighed) > 1 else 0, headers=headers
            )
        )
    return _Rule(replace(rule, route=tuple(out)), joined(wrong, fault), picker)


def joined(first: Fault | None, second: Fault | None) -> Fault | None:
    """Returns two faults as one, which has the reason of the first."""
    if first is None or second is None:
        return first or second
    return Fault(first.reason, f"{first.message}; {second.message}")


# -- matches ---------------------------------------------------------------------------------------------------------------


def _http_match(said: HTTPRouteMatch) -> HTTPMatchRequest:
    value = said.path.value or "/"
    match said.path.type:
        case "Exact":
            uri = StringMatch(exact=value)
        case "RegularExpression":
            uri = StringMatch(regex=value)
        case _:
            uri = StringMatch(prefix=value if value == "/" else value.removesuffix("/"))
    return HTTPMatchRequest(
        uri=uri,
        headers=_named(said.headers),
        query_params=_named(said.query_params),
        method=StringMatch(exact=said.method) if said.method is not None else None,
    )


def _named(said: Iterable[NameMatch]) -> dict[str, StringMatch]:
    found: dict[str, StringMatch] = {}
    for one in said:
        found.setdefault(
            one.name, StringMatch(regex=one.value) if one.type == "RegularExpression" else StringMatch(exact=one.value)
        )
    return found


def _grpc_match(said: GRPCRouteMatch) -> HTTPMatchRequest | Fault:
    uri = _call(said.method) if said.method is not None else None
    return uri if isinstance(uri, Fault) else HTTPMatchRequest(uri=uri, headers=_named(said.headers))


def _call(said: GRPCMethodMatch) -> StringMatch | Fault:
    """Returns the condition on the path of calls, which is /service/method."""
    if said.service is None and said.method is None:
        return Fault("InvalidConfiguration", "gRPC match must have method or service defined")
    if said.service is None:
        return StringMatch(regex=f"/[^/]+/{said.method}")
    if said.type == "RegularExpression":
        return StringMatch(regex=f"/{said.service}/{said.method or '.+'}")
    return (
        StringMatch(prefix=f"/{said.service}/")
        if said.method is None
        else StringMatch(exact=f"/{said.service}/{said.method}")
    )


# -- order -----------------------------------------------------------------------------------------------------------------


def by_specificity(rule: HTTPRoute) -> tuple[int, ...]:
    """Returns the sort key of rules: paths exact, by prefix, by expression; long ones first; then method, headers and query parameters."""
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
