"""gateway.networking.k8s.io HTTPRoute. https://gateway-api.sigs.k8s.io/api-types/httproute/"""

from __future__ import annotations

from typing import Literal

from pilot.config.base import Int32, Lenient
from pilot.config.gateway_api.reference import BackendObjectReference, BackendRef, ParentReference
from pilot.lib.duration import Duration

MatchType = Literal["Exact", "RegularExpression"]


class HTTPPathMatch(Lenient, frozen=True):
    type: Literal["Exact", "PathPrefix", "RegularExpression"] = "PathPrefix"
    value: str = "/"


class NameMatch(Lenient, frozen=True):
    """A condition on a header or query parameter."""

    type: MatchType = "Exact"
    name: str = ""
    value: str = ""


class HTTPRouteMatch(Lenient, frozen=True):
    """A match condition. All of its fields must match."""

    path: HTTPPathMatch = HTTPPathMatch()
    headers: tuple[NameMatch, ...] = ()
    query_params: tuple[NameMatch, ...] = ()
    method: str | None = None


class HTTPHeader(Lenient, frozen=True):
    name: str = ""
    value: str = ""


class HTTPHeaderFilter(Lenient, frozen=True):
    set: tuple[HTTPHeader, ...] = ()
    add: tuple[HTTPHeader, ...] = ()
    remove: tuple[str, ...] = ()


class HTTPPathModifier(Lenient, frozen=True):
    type: Literal["ReplaceFullPath", "ReplacePrefixMatch"] = "ReplaceFullPath"
    replace_full_path: str = ""
    replace_prefix_match: str = ""


class HTTPRequestRedirectFilter(Lenient, frozen=True):
    scheme: str | None = None
    hostname: str | None = None
    path: HTTPPathModifier | None = None
    port: Int32 | None = None
    status_code: Int32 = 302


class HTTPURLRewriteFilter(Lenient, frozen=True):
    hostname: str | None = None
    path: HTTPPathModifier | None = None


class Fraction(Lenient, frozen=True):
    numerator: Int32 = 0
    denominator: Int32 = 100


class HTTPRequestMirrorFilter(Lenient, frozen=True):
    backend_ref: BackendObjectReference = BackendObjectReference()
    percent: Int32 | None = None
    fraction: Fraction | None = None


class HTTPCORSFilter(Lenient, frozen=True):
    """A CORS policy. `max_age` is in seconds."""

    allow_origins: tuple[str, ...] = ()
    allow_credentials: bool = False
    allow_methods: tuple[str, ...] = ()
    allow_headers: tuple[str, ...] = ()
    expose_headers: tuple[str, ...] = ()
    max_age: Int32 = 5


class HTTPRouteFilter(Lenient, frozen=True):
    """A filter. `type` determines which other field is set."""

    type: str = ""
    request_header_modifier: HTTPHeaderFilter | None = None
    response_header_modifier: HTTPHeaderFilter | None = None
    request_mirror: HTTPRequestMirrorFilter | None = None
    request_redirect: HTTPRequestRedirectFilter | None = None
    url_rewrite: HTTPURLRewriteFilter | None = None
    cors: HTTPCORSFilter | None = None


class HTTPBackendRef(BackendRef, frozen=True):
    filters: tuple[HTTPRouteFilter, ...] = ()


class HTTPRouteTimeouts(Lenient, frozen=True):
    request: Duration | None = None
    backend_request: Duration | None = None


class HTTPRouteRetry(Lenient, frozen=True):
    codes: tuple[Int32, ...] = ()
    attempts: Int32 | None = None
    backoff: Duration | None = None


class HTTPRouteRule(Lenient, frozen=True):
    name: str | None = None
    matches: tuple[HTTPRouteMatch, ...] = (HTTPRouteMatch(),)
    filters: tuple[HTTPRouteFilter, ...] = ()
    backend_refs: tuple[HTTPBackendRef, ...] = ()
    timeouts: HTTPRouteTimeouts | None = None
    retry: HTTPRouteRetry | None = None


class HTTPRoute(Lenient, frozen=True):
    """Routes HTTP requests from its parents to its backends, if the host is one of its hostnames.

    If several matches for a hostname apply to a request, the most specific match wins.
    """

    parent_refs: tuple[ParentReference, ...] = ()
    hostnames: tuple[str, ...] = ()
    rules: tuple[HTTPRouteRule, ...] = (HTTPRouteRule(),)
