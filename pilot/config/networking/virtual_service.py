"""networking.istio.io VirtualService. https://istio.io/latest/docs/reference/config/networking/virtual-service/"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from pilot.config.base import Int32, OneOf, Strict, UInt32
from pilot.lib.duration import Duration

RedirectPortSelection = Literal["FROM_PROTOCOL_DEFAULT", "FROM_REQUEST_PORT"]
UnmatchedPreflights = Literal["UNSPECIFIED", "FORWARD", "IGNORE"]


class VirtualService(Strict, frozen=True):
    """Routes the requests that are sent to its hosts. An empty `gateways` means ("mesh",). Earlier routes take
    precedence."""

    hosts: tuple[str, ...] = ()
    gateways: tuple[str, ...] = ()
    http: tuple[HTTPRoute, ...] = ()
    tls: tuple[TLSRoute, ...] = ()
    tcp: tuple[TCPRoute, ...] = ()
    export_to: tuple[str, ...] = ()


class Destination(Strict, frozen=True):
    """A destination of traffic. `host` is as the user wrote it. A short name refers to the object's namespace."""

    host: str = ""
    subset: str = ""
    port: PortSelector | None = None


class HTTPRoute(Strict, frozen=True):
    """A route. Its action applies to requests that meet at least one of the match conditions."""

    name: str = ""
    match: tuple[HTTPMatchRequest, ...] = ()
    route: tuple[HTTPRouteDestination, ...] = ()
    redirect: HTTPRedirect | None = None
    direct_response: HTTPDirectResponse | None = None
    delegate: Delegate | None = None
    rewrite: HTTPRewrite | None = None
    timeout: Duration | None = None
    retries: HTTPRetry | None = None
    fault: HTTPFaultInjection | None = None
    mirror: Destination | None = None
    mirrors: tuple[HTTPMirrorPolicy, ...] = ()
    mirror_percent: UInt32 | None = None  # deprecated
    mirror_percentage: Percent | None = None
    cors_policy: CorsPolicy | None = None
    headers: Headers | None = None


class Delegate(Strict, frozen=True):
    """A reference to a VirtualService that has no hosts. The routes of that VirtualService replace this route.

    `namespace` defaults to that of the root VirtualService.
    """

    name: str = ""
    namespace: str = ""


class HeaderOperations(Strict, frozen=True):
    set: dict[str, str] = {}
    add: dict[str, str] = {}
    remove: tuple[str, ...] = ()


class Headers(Strict, frozen=True):
    request: HeaderOperations | None = None
    response: HeaderOperations | None = None


class TLSRoute(Strict, frozen=True):
    match: tuple[TLSMatchAttributes, ...] = ()
    route: tuple[RouteDestination, ...] = ()


class TCPRoute(Strict, frozen=True):
    match: tuple[L4MatchAttributes, ...] = ()
    route: tuple[RouteDestination, ...] = ()


class HTTPMatchRequest(Strict, frozen=True):
    """A match condition.

    All of its fields must match. An empty StringMatch in `headers` matches if the header is present.
    """

    name: str = ""
    uri: StringMatch | None = None
    scheme: StringMatch | None = None
    method: StringMatch | None = None
    authority: StringMatch | None = None
    headers: dict[str, StringMatch] = {}
    port: UInt32 = 0
    source_labels: dict[str, str] = {}
    gateways: tuple[str, ...] = ()
    query_params: dict[str, StringMatch] = {}
    ignore_uri_case: bool = False
    without_headers: dict[str, StringMatch] = {}
    source_namespace: str = ""
    stat_prefix: str = ""


class RouteDestination(Strict, frozen=True):
    """A destination and its share of the requests or connections. `set_weight` is None if the user set none."""

    destination: Destination | None = None
    set_weight: Int32 | None = msgspec.field(default=None, name="weight")

    @property
    def weight(self) -> int:
        """The weight, which is 0 by default. A single destination needs none."""
        return self.set_weight or 0


class HTTPRouteDestination(RouteDestination, frozen=True):
    headers: Headers | None = None


class L4MatchAttributes(Strict, frozen=True):
    destination_subnets: tuple[str, ...] = ()
    port: UInt32 = 0
    source_subnet: str = ""
    source_labels: dict[str, str] = {}
    gateways: tuple[str, ...] = ()
    source_namespace: str = ""


class TLSMatchAttributes(Strict, frozen=True):
    sni_hosts: tuple[str, ...] = ()
    destination_subnets: tuple[str, ...] = ()
    port: UInt32 = 0
    source_labels: dict[str, str] = {}
    gateways: tuple[str, ...] = ()
    source_namespace: str = ""


class HTTPRedirect(OneOf, frozen=True):
    """A redirect. `uri` replaces the whole path, and `prefix_rewrite` replaces the matched prefix.

    `port` and `derive_port` are mutually exclusive. A `redirect_code` of 0 means 301.
    """

    groups: ClassVar = (("port", "derive_port"),)

    uri: str = ""
    authority: str = ""
    port: UInt32 | None = None
    derive_port: RedirectPortSelection | None = None
    scheme: str = ""
    redirect_code: UInt32 = 0
    prefix_rewrite: str = ""


class HTTPDirectResponse(Strict, frozen=True):
    status: UInt32 = 0
    body: HTTPBody | None = None


class HTTPBody(OneOf, frozen=True):
    groups: ClassVar = (("string", "bytes_"),)

    string: str | None = None
    bytes_: bytes | None = msgspec.field(default=None, name="bytes")


class HTTPRewrite(Strict, frozen=True):
    uri: str = ""
    authority: str = ""
    uri_regex_rewrite: RegexRewrite | None = None


class RegexRewrite(Strict, frozen=True):
    match: str = ""
    rewrite: str = ""


class StringMatch(OneOf, frozen=True):
    """Matches a string exactly, by prefix or by regular expression."""

    groups: ClassVar = (("exact", "prefix", "regex"),)

    exact: str | None = None
    prefix: str | None = None
    regex: str | None = None


class HTTPRetry(Strict, frozen=True):
    """A retry policy. If `attempts` is 0, there are no retries."""

    attempts: Int32 = 0
    per_try_timeout: Duration | None = None
    retry_on: str = ""
    retry_remote_localities: bool | None = None
    retry_ignore_previous_hosts: bool | None = None
    backoff: Duration | None = None


class CorsPolicy(Strict, frozen=True):
    allow_origin: tuple[str, ...] = ()  # deprecated
    allow_origins: tuple[StringMatch, ...] = ()
    allow_methods: tuple[str, ...] = ()
    allow_headers: tuple[str, ...] = ()
    expose_headers: tuple[str, ...] = ()
    max_age: Duration | None = None
    allow_credentials: bool | None = None
    unmatched_preflights: UnmatchedPreflights = "UNSPECIFIED"


class Delay(OneOf, frozen=True):
    """A delay.

    It applies to `percentage` of the requests if set, otherwise to `percent` if set, otherwise to all requests.
    """

    groups: ClassVar = (("fixed_delay", "exponential_delay"),)

    percent: Int32 = 0  # deprecated
    fixed_delay: Duration | None = None
    exponential_delay: Duration | None = None
    percentage: Percent | None = None


class Abort(OneOf, frozen=True):
    groups: ClassVar = (("http_status", "grpc_status", "http2_error"),)

    http_status: Int32 | None = None
    grpc_status: str | None = None
    http2_error: str | None = None
    percentage: Percent | None = None


class HTTPFaultInjection(Strict, frozen=True):
    """A delay, an abort, or both."""

    delay: Delay | None = None
    abort: Abort | None = None


class HTTPMirrorPolicy(Strict, frozen=True):
    destination: Destination | None = None
    percentage: Percent | None = None


class PortSelector(Strict, frozen=True):
    """A port number."""

    number: UInt32 = 0


class Percent(Strict, frozen=True):
    """A percentage from 0 to 100."""

    value: float = 0.0
