"""Filters of HTTPRoutes and GRPCRoutes, converted to fields of Istio's HTTPRoute."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pilot.config.gateway_api.http_route import (
    HTTPCORSFilter,
    HTTPHeader,
    HTTPHeaderFilter,
    HTTPRequestMirrorFilter,
    HTTPRequestRedirectFilter,
    HTTPRouteFilter,
    HTTPURLRewriteFilter,
)
from pilot.config.networking.virtual_service import (
    CorsPolicy,
    Destination,
    HeaderOperations,
    Headers,
    HTTPMirrorPolicy,
    HTTPRedirect,
    HTTPRewrite,
    Percent,
    RegexRewrite,
    StringMatch,
)
from pilot.lib.duration import Duration
from pilot.mesh.model.condition import Fault

ANY_ORIGIN = r"^[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s?#]+$"
_HEADER_TEXT = re.compile(r"[\t\x20-\x7e\x80-\U0010ffff]*")
HEADERS = ("RequestHeaderModifier", "ResponseHeaderModifier")


def build_headers(filters: Iterable[HTTPRouteFilter]) -> Headers | Fault | None:
    """Return the header operations of filters, a fault if one is invalid, or None if no filter modifies headers.

    If several filters have the same type, the last takes precedence.
    """
    operations: dict[str, HeaderOperations] = {}
    for route_filter in filters:
        modifier = {
            "RequestHeaderModifier": route_filter.request_header_modifier,
            "ResponseHeaderModifier": route_filter.response_header_modifier,
        }.get(route_filter.type)
        if modifier is None:
            continue
        if fault := _header_fault(modifier):
            return fault
        operations[route_filter.type] = HeaderOperations(
            set=_first(modifier.set), add=_first(modifier.add), remove=modifier.remove
        )
    return Headers(request=operations.get(HEADERS[0]), response=operations.get(HEADERS[1])) if operations else None


def _header_fault(modifier: HTTPHeaderFilter) -> Fault | None:
    for header in (*modifier.set, *modifier.add):
        if not _HEADER_TEXT.fullmatch(header.value):
            return Fault("InvalidFilter", f'header "{header.name}" value contains invalid characters')
    return None


def _first(headers: Iterable[HTTPHeader]) -> dict[str, str]:
    """Return the header values, keyed by lower-case name. If several headers have the same name, the first takes
    precedence."""
    values: dict[str, str] = {}
    for header in headers:
        values.setdefault(header.name.lower(), header.value)
    return values


def build_redirect(redirect: HTTPRequestRedirectFilter) -> HTTPRedirect:
    """Return the redirect. The default port is that of the scheme if the filter sets a scheme, or else that of the
    request."""
    derive: Any = "FROM_PROTOCOL_DEFAULT" if redirect.scheme is not None else "FROM_REQUEST_PORT"
    path = redirect.path
    return HTTPRedirect(
        uri=path.replace_full_path if path is not None and path.type == "ReplaceFullPath" else "",
        prefix_rewrite=path.replace_prefix_match if path is not None and path.type == "ReplacePrefixMatch" else "",
        authority=redirect.hostname or "",
        scheme=redirect.scheme or "",
        port=redirect.port,
        derive_port=derive if redirect.port is None else None,
        redirect_code=redirect.status_code,
    )


def build_rewrite(rewrite: HTTPURLRewriteFilter) -> HTTPRewrite | None:
    """Return the rewrite, or None if it changes nothing. If a prefix is replaced with `/`, the prefix is removed."""
    uri, regex = "", None
    if rewrite.path is not None and rewrite.path.type == "ReplacePrefixMatch":
        uri = rewrite.path.replace_prefix_match.removesuffix("/") or "/"
    elif rewrite.path is not None:
        regex = RegexRewrite(match="/.*", rewrite=rewrite.path.replace_full_path)
    if not uri and regex is None and not rewrite.hostname:
        return None
    return HTTPRewrite(uri=uri, authority=rewrite.hostname or "", uri_regex_rewrite=regex)


def build_mirror(mirror: HTTPRequestMirrorFilter, destination: Destination) -> HTTPMirrorPolicy:
    """Return the mirror policy, which mirrors a percentage of the requests or, if none is set, all of them."""
    share: float | None = mirror.percent
    if mirror.fraction is not None:
        share = 100 * mirror.fraction.numerator / (mirror.fraction.denominator or 100)
    return HTTPMirrorPolicy(
        destination=destination, percentage=Percent(value=float(share)) if share is not None else None
    )


def build_cors(cors: HTTPCORSFilter) -> CorsPolicy:
    """Return the CORS policy. Preflight requests from other origins are forwarded to the backend."""
    return CorsPolicy(
        allow_origins=tuple(_origin(origin) for origin in cors.allow_origins if origin),
        allow_methods=cors.allow_methods,
        allow_headers=cors.allow_headers,
        expose_headers=cors.expose_headers,
        max_age=Duration.of(cors.max_age) if cors.max_age > 0 else None,
        allow_credentials=True if cors.allow_credentials else None,
        unmatched_preflights="IGNORE",
    )


def _origin(origin: str) -> StringMatch:
    if origin == "*":
        return StringMatch(regex=ANY_ORIGIN)
    if "*" not in origin:
        return StringMatch(exact=origin)
    if origin.index("*") == len(origin) - 1:
        return StringMatch(prefix=origin[:-1])
    return StringMatch(regex="^" + _quoted(origin).replace(r"\*", ".*") + "$")


def _quoted(text: str) -> str:
    """Return an RE2 expression that matches only the given string."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)
