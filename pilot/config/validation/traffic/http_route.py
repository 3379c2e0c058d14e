"""Validation of the HTTP routes of VirtualServices."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pilot.config.networking.virtual_service import (
    CorsPolicy,
    Destination,
    HTTPDirectResponse,
    HTTPMatchRequest,
    HTTPMirrorPolicy,
    HTTPRedirect,
    HTTPRewrite,
    HTTPRoute,
    HTTPRouteDestination,
    RouteDestination,
    StringMatch,
)
from pilot.config.problem import Problems, below, each, error, info, warning
from pilot.config.validation import rules
from pilot.config.validation.traffic.fault import validate_fault
from pilot.config.validation.traffic.gateway_names import check_gateway_names
from pilot.config.validation.traffic.headers import (
    authorities,
    check_cors_name,
    check_line,
    check_matched_name,
    is_claim,
    validate_headers,
)
from pilot.config.validation.traffic.retry import validate_retry
from pilot.lib.text import cut

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "*"})
_SECOND = 1_000_000_000
_PERCENT = 100
_DOLLAR = re.compile(r"\$\{?([0-9])\}?", re.ASCII)
"""A reference to a group in the syntax of other languages than RE2."""
_LONGEST_QUOTED = 200
"""Maximum length of a value that a message repeats."""


def validate_http_route(route: HTTPRoute, delegated: bool, gateway: bool) -> Problems:
    """Yield the problems of a route.

    `delegated` is true if the VirtualService has no hosts. `gateway` is true if it applies to gateways only.
    """
    yield from _validate_action(route, delegated)
    for index, match in enumerate(route.match):
        yield from below(f"match[{index}]", _validate_match(match, gateway))
    for index, weighted in enumerate(route.route):
        yield from below(f"route[{index}]", _validate_destination(weighted))
    yield from check_weights("route", route.route)
    if route.headers is not None:
        yield from below("headers", validate_headers(route.headers))
    if (
        route.mirror is not None
        or route.mirrors
        or route.mirror_percent is not None
        or route.mirror_percentage is not None
    ):
        yield from _validate_mirrors(route)
    yield from rules.check_duration("timeout", route.timeout)
    if route.cors_policy is not None:
        yield from below("corsPolicy", _validate_cors(route.cors_policy))
    if route.fault is not None:
        yield from below("fault", validate_fault(route.fault))
    if route.redirect is not None:
        yield from below("redirect", _validate_redirect(route.redirect, route.match))
    if route.direct_response is not None:
        yield from below("directResponse", _validate_direct_response(route.direct_response))
    if route.retries is not None:
        yield from below("retries", validate_retry(route.retries))
    if route.rewrite is not None:
        yield from below("rewrite", _validate_rewrite(route.rewrite))
        yield from _check_slashes(route.match, route.rewrite)
    set_by = authorities(route.headers)
    if len(set_by) + (1 if route.rewrite is not None and route.rewrite.authority else 0) > 1:
        yield error("authority-twice", "headers.request", "the host of the request is set more than once")


def _validate_action(route: HTTPRoute, delegated: bool) -> Problems:
    """Yield errors unless a route has exactly one action: route, redirect, direct response or delegate."""
    if route.delegate is not None:
        if delegated:
            yield error("exclusive-fields", "delegate", "a delegate cannot delegate")
        for field, is_set in (("redirect", route.redirect is not None), ("route", bool(route.route))):
            if is_set:
                yield error("exclusive-fields", field, f"a route that delegates cannot have {field}")
        return
    instead = (
        "redirect" if route.redirect is not None else "directResponse" if route.direct_response is not None else ""
    )
    if instead:
        others = {
            "route": bool(route.route),
            "fault": route.fault is not None,
            "rewrite": route.rewrite is not None,
            "directResponse": instead == "redirect" and route.direct_response is not None,
        }
        for field, is_set in others.items():
            if is_set:
                yield error("exclusive-fields", field, f"a route with {instead} cannot have {field}")
    elif not route.route:
        yield error("missing-field", "route", "one of route, redirect, directResponse and delegate is required")


def _validate_match(match: HTTPMatchRequest, gateway: bool) -> Problems:
    for field, value in (
        ("uri", match.uri),
        ("scheme", match.scheme),
        ("method", match.method),
        ("authority", match.authority),
    ):
        if value is not None:
            yield from check_string_match(field, value, empty_prefix=field == "uri")
            yield from _check_literal(field, value)
    for field, matches in (("headers", match.headers), ("withoutHeaders", match.without_headers)):
        for name, value in matches.items():
            place = f"{field}[{name}]"
            yield from check_matched_name(place, name)
            if not gateway and is_claim(name):
                yield error("claim-outside-gateway", place, "JWT claims can be matched only at gateways")
            if field == "headers" or value.regex != "*":
                yield from check_string_match(place, value)
    for name, value in match.query_params.items():
        if not name:
            yield error("missing-field", "queryParams", "a parameter name is required")
        yield from check_string_match(f"queryParams[{name}]", value)
    if match.port:
        yield from rules.check_port("port", match.port)
    yield from rules.check_labels("sourceLabels", match.source_labels)
    yield from check_gateway_names("gateways", match.gateways)
    if match.source_namespace and not rules.is_dns_label(match.source_namespace):
        yield error("bad-namespace", "sourceNamespace", f"{match.source_namespace!r} is not a valid namespace")


def _check_literal(field: str, match: StringMatch) -> Problems:
    """Yield warnings about an exact value or a prefix that is written like a wildcard, or like no path."""
    for form, text in (("prefix", match.prefix), ("exact", match.exact)):
        if text is None:
            continue
        if text.endswith("*"):
            shorter = text.rstrip("*") or "/"
            message = f"* is literal in {form}, so only values with * match; write {{prefix: {shorter}}}"
            yield warning("literal-wildcard", f"{field}.{form}", message)
        elif field == "uri" and text and not text.startswith("/"):
            message = f"paths begin with /, so no request matches; write {{{form}: /{text}}}"
            yield warning("never-matches", f"{field}.{form}", message)


def check_string_match(path: str, match: StringMatch, empty_prefix: bool = False) -> rules.Findings:
    if match.prefix == "" and not empty_prefix:
        return (error("empty-prefix", f"{path}.prefix", "must not be empty"),)
    return () if match.regex is None else rules.check_regex(f"{path}.regex", match.regex)


def _validate_destination(weighted: HTTPRouteDestination) -> Problems:
    yield from check_weighted(weighted.destination, weighted.weight)
    if weighted.headers is not None:
        yield from below("headers", validate_headers(weighted.headers))


def check_weighted(destination: Destination | None, weight: int) -> Problems:
    """Yield the problems of a destination and its weight. A missing destination is an error."""
    if destination is None:
        yield error("missing-field", "destination", "a destination is required")
    else:
        yield from below("destination", validate_destination(destination))
    yield from rules.check_not_negative("weight", weight)


def check_weights(path: str, destinations: Sequence[RouteDestination]) -> Problems:
    """Yield an error if the weights of several destinations add up to 0, or if the total exceeds the 32 bits that Envoy
    supports, and a warning for each destination that has no weight although the others have less than 100 percent.

    Clients that omit zeros write no weight if it is 0.
    """
    total = sum(d.weight for d in destinations)
    if len(destinations) > 1 and total == 0:
        yield error("bad-weights", path, "the weights add up to 0")
    elif total >= 2**32:
        yield error("bad-weights", path, "the weights add up to more than 4294967295")
    unset = [index for index, d in enumerate(destinations) if d.set_weight is None]
    if 0 < total < _PERCENT:
        weight = f"weight: {_PERCENT - total}" if len(unset) == 1 else "a weight"
        for index in unset:
            text = f"no weight, so it gets no requests; set {weight}"
            yield warning("no-effect", f"{path}[{index}].weight", text)


def validate_destination(destination: Destination) -> Problems:
    if destination.host == "*":
        yield error("bad-host", "host", "'*' is not a destination")
    else:
        yield from rules.check_host("host", destination.host)
    if destination.subset and not rules.is_dns_label(destination.subset):
        yield error("bad-subset-name", "subset", f"{destination.subset!r}: must be 1 to 63 letters, digits and hyphens")
    if destination.port is not None:
        yield from rules.check_port("port.number", destination.port.number)


def _validate_mirrors(route: HTTPRoute) -> Problems:
    if route.mirror is not None:
        yield from below("mirror", validate_destination(route.mirror))
        if route.mirrors:
            yield error("exclusive-fields", "mirrors", "only one of mirror and mirrors may be set")
    if route.mirror_percent is not None:
        yield warning("deprecated-field", "mirrorPercent", "use mirrorPercentage")
        yield from rules.check_percent("mirrorPercent", route.mirror_percent)
    if route.mirror_percentage is not None:
        yield from rules.check_percent("mirrorPercentage.value", route.mirror_percentage.value)
    yield from each("mirrors", route.mirrors, _validate_mirror)


def _validate_mirror(mirror: HTTPMirrorPolicy) -> Problems:
    if mirror.destination is None:
        yield error("missing-field", "destination", "a destination is required")
    else:
        yield from below("destination", validate_destination(mirror.destination))
    if mirror.percentage is not None:
        yield from rules.check_percent("percentage.value", mirror.percentage.value)


def _validate_cors(policy: CorsPolicy) -> Problems:
    for index, origin in enumerate(policy.allow_origins):
        if not (origin.exact or origin.prefix or origin.regex):
            yield error("missing-field", f"allowOrigins[{index}]", "one of exact, prefix and regex is required")
        elif origin.regex:
            yield from rules.check_regex(f"allowOrigins[{index}].regex", origin.regex)
        for form, text in (("exact", origin.exact), ("prefix", origin.prefix)):
            yield from _check_origin(f"allowOrigins[{index}].{form}", text)
    for index, text in enumerate(policy.allow_origin):
        yield from _check_origin(f"allowOrigin[{index}]", text)
    for index, method in enumerate(policy.allow_methods):
        if method not in _METHODS:
            yield error("bad-method", f"allowMethods[{index}]", f"{method!r} is not an HTTP method")
    for field, names in (("allowHeaders", policy.allow_headers), ("exposeHeaders", policy.expose_headers)):
        for index, name in enumerate(names):
            yield from check_cors_name(f"{field}[{index}]", name)
    yield from rules.check_duration("maxAge", policy.max_age)
    if policy.max_age is not None and policy.max_age >= rules.MILLISECOND and policy.max_age % _SECOND:
        yield error("bad-duration", "maxAge", f"{policy.max_age}: must be whole seconds")


def _check_origin(path: str, text: str | None) -> Problems:
    """Yield a warning about an origin with a wildcard. Only * alone matches every origin."""
    if text and "*" in text and text != "*":
        expression = cut(text, _LONGEST_QUOTED).replace(".", r"\.").replace("*", ".*")
        message = f"* is literal in an origin, so this matches none; write allowOrigins: [{{regex: '{expression}'}}]"
        yield warning("literal-wildcard", path, message)


def _check_slashes(matches: Sequence[HTTPMatchRequest], rewrite: HTTPRewrite) -> Problems:
    """Yield a note about each prefix without a slash at its end whose replacement has one."""
    if not rewrite.uri.endswith("/") or rewrite.uri_regex_rewrite is not None:
        return
    previous: set[str] = set()
    for index, match in enumerate(matches):
        prefix = match.uri.prefix if match.uri is not None else None
        if prefix and not prefix.endswith("/") and f"{prefix}/" not in previous:
            old, new = cut(prefix, _LONGEST_QUOTED), cut(rewrite.uri, _LONGEST_QUOTED)
            text = (
                f"a request for {old}/x is sent as {new}/x, with two slashes; write match: "
                f"[{{uri: {{prefix: {old}/}}}}, {{uri: {{exact: {old}}}}}]"
            )
            yield info("double-slash", f"match[{index}].uri.prefix", text)
        previous.add(prefix or "")


def _validate_redirect(redirect: HTTPRedirect, matches: tuple[HTTPMatchRequest, ...]) -> Problems:
    if redirect.uri and redirect.prefix_rewrite:
        yield error("exclusive-fields", "", "only one of uri and prefixRewrite may be set")
    if redirect.prefix_rewrite and any(m.uri is not None and m.uri.prefix is None for m in matches):
        yield error("bad-redirect", "prefixRewrite", "all URI matches must be prefix matches")
    changes = (redirect.uri, redirect.prefix_rewrite, redirect.authority, redirect.scheme)
    if not any(changes) and redirect.port is None and redirect.derive_port is None:
        yield error("missing-field", "", "one of uri, prefixRewrite, authority, scheme and port is required")
    for field, text in (
        ("uri", redirect.uri),
        ("authority", redirect.authority),
        ("prefixRewrite", redirect.prefix_rewrite),
    ):
        yield from check_line(field, text)
    if redirect.redirect_code and not 300 <= redirect.redirect_code <= 399:
        yield error("bad-redirect", "redirectCode", f"{redirect.redirect_code}: must be between 300 and 399")
    if redirect.scheme not in ("", "http", "https"):
        yield error("bad-redirect", "scheme", f"{redirect.scheme!r}: expected http or https")
    if redirect.port:
        yield from rules.check_port("port", redirect.port)


def _validate_direct_response(response: HTTPDirectResponse) -> Problems:
    if not 200 <= response.status <= 599:
        yield error("bad-status", "status", f"{response.status}: must be between 200 and 599")
    if response.body is not None:
        size = len(response.body.bytes_ or (response.body.string or "").encode())
        if size > 1 << 20:
            yield error("large-body", "body", "must be at most 1 MiB")
        elif size > 100 << 10:
            yield warning("large-body", "body", "a large body is sent to all proxies whenever a route changes")


def _validate_rewrite(rewrite: HTTPRewrite) -> Problems:
    regex = rewrite.uri_regex_rewrite
    if rewrite.uri and regex is not None:
        yield error("exclusive-fields", "", "only one of uri and uriRegexRewrite may be set")
    if not rewrite.uri and regex is None and not rewrite.authority:
        yield error("missing-field", "", "one of uri, uriRegexRewrite and authority is required")
    for field, text in (("uri", rewrite.uri), ("authority", rewrite.authority)):
        yield from check_line(field, text)
    if regex is not None:
        yield from check_line("uriRegexRewrite.rewrite", regex.rewrite)
        if (reference := _DOLLAR.search(regex.rewrite)) is not None:
            text = f"{reference[0]} is literal; a group of the match is \\{reference[1]}"
            yield warning("bad-substitution", "uriRegexRewrite.rewrite", text)
        if not regex.match or not regex.rewrite:
            yield error("missing-field", "uriRegexRewrite", "match and rewrite are required")
        else:
            yield from rules.check_regex("uriRegexRewrite.match", regex.match)
