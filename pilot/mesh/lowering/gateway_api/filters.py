"""Filters of HTTPRoutes and GRPCRoutes as parts of Istio's HTTPRoute."""

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
    """Returns what filters do to headers; of two of one type the last counts."""
    found: dict[str, HeaderOperations] = {}
    for one in filters:
        said = {
            "RequestHeaderModifier": one.request_header_modifier,
            "ResponseHeaderModifier": one.response_header_modifier,
        }.get(one.type)
        if said is None:
            continue
        if fault := _header_fault(said):
            return fault
        found[one.type] = HeaderOperations(set=_first(said.set), add=_first(said.add), remove=said.remove)
    return Headers(request=found.get(HEADERS[0]), response=found.get(HEADERS[1])) if found else None


def _header_fault(said: HTTPHeaderFilter) -> Fault | None:
    for header in (*said.set, *said.add):
        if not _HEADER_TEXT.fullmatch(header.value):
            return Fault("InvalidFilter", f'header "{header.name}" value contains invalid characters')
    return None


def _first(headers: Iterable[HTTPHeader]) -> dict[str, str]:
    """Returns headers by name; of several of one name, whatever its case, the first counts."""
    found: dict[str, str] = {}
    for header in headers:
        found.setdefault(header.name.lower(), header.value)
    return found


def build_redirect(said: HTTPRequestRedirectFilter) -> HTTPRedirect:
    """Returns the redirect. Without a port it keeps the request's, unless there is a scheme, whose own it then is."""
    derive: Any = "FROM_PROTOCOL_DEFAULT" if said.scheme is not None else "FROM_REQUEST_PORT"
    path = said.path
    return HTTPRedirect(
        uri=path.replace_full_path if path is not None and path.type == "ReplaceFullPath" else "",
        prefix_rewrite=path.replace_prefix_match if path is not None and path.type == "ReplacePrefixMatch" else "",
        authority=said.hostname or "",
        scheme=said.scheme or "",
        port=said.port,
        derive_port=derive if said.port is None else None,
        redirect_code=said.status_code,
    )


def build_rewrite(said: HTTPURLRewriteFilter) -> HTTPRewrite | None:
    """Returns the rewrite, None where it changes nothing. A prefix that becomes `/` is taken away."""
    uri, regex = "", None
    if said.path is not None and said.path.type == "ReplacePrefixMatch":
        uri = said.path.replace_prefix_match.removesuffix("/") or "/"
    elif said.path is not None:
        regex = RegexRewrite(match="/.*", rewrite=said.path.replace_full_path)
    if not uri and regex is None and not said.hostname:
        return None
    return HTTPRewrite(uri=uri, authority=said.hostname or "", uri_regex_rewrite=regex)


def build_mirror(said: HTTPRequestMirrorFilter, destination: Destination) -> HTTPMirrorPolicy:
    """Returns the mirror of a share of the requests."""
    share: float | None = said.percent
    if said.fraction is not None:
        share = 100 * said.fraction.numerator / (said.fraction.denominator or 100)
    return HTTPMirrorPolicy(
        destination=destination, percentage=Percent(value=float(share)) if share is not None else None
    )


def build_cors(said: HTTPCORSFilter) -> CorsPolicy:
    """Returns the policy; preflight requests that do not match it go on to the backend's answer unchanged."""
    return CorsPolicy(
        allow_origins=tuple(_origin(origin) for origin in said.allow_origins if origin),
        allow_methods=said.allow_methods,
        allow_headers=said.allow_headers,
        expose_headers=said.expose_headers,
        max_age=Duration.of(said.max_age) if said.max_age > 0 else None,
        allow_credentials=True if said.allow_credentials else None,
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
    """Returns a text as a regular expression of RE2 that only it matches."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)
