"""Actions that need no upstream: redirects and direct responses.

https://istio.io/latest/docs/reference/config/networking/virtual-service/#HTTPRedirect
"""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2

from pilot.config.networking.virtual_service import HTTPDirectResponse, HTTPRedirect

_Action = route_components_pb2.RedirectAction
_CODES = {
    0: _Action.MOVED_PERMANENTLY,
    301: _Action.MOVED_PERMANENTLY,
    302: _Action.FOUND,
    303: _Action.SEE_OTHER,
    307: _Action.TEMPORARY_REDIRECT,
    308: _Action.PERMANENT_REDIRECT,
}
_IMPLIED_PORTS = {"http": 80, "https": 443}


def build_redirect(redirect: HTTPRedirect, port: int, tls: bool) -> route_components_pb2.RedirectAction | None:
    """Return the redirect for requests to a listener port, or None if Envoy does not support the status code."""
    code = _CODES.get(redirect.redirect_code)
    if code is None:
        return None
    out = _Action(host_redirect=redirect.authority, response_code=code, port_redirect=_port(redirect, port, tls))
    if redirect.prefix_rewrite:
        out.prefix_rewrite = redirect.prefix_rewrite
    else:
        out.path_redirect = redirect.uri
    if redirect.scheme:
        out.scheme_redirect = redirect.scheme
    return out


def _port(redirect: HTTPRedirect, listener_port: int, tls: bool) -> int:
    """Return the port of the redirect, or 0 if it is the scheme's default port.

    Envoy cannot copy the port from the request. The listener's port is used instead, because it is the same.
    """
    port = listener_port if redirect.derive_port == "FROM_REQUEST_PORT" else redirect.port or 0
    scheme = redirect.scheme or ("https" if tls else "http")
    return 0 if port == _IMPLIED_PORTS.get(scheme) else port


def build_direct_response(response: HTTPDirectResponse) -> route_components_pb2.DirectResponseAction:
    """Return the direct response with its status and, if there is one, its body."""
    out = route_components_pb2.DirectResponseAction(status=response.status)
    if response.body is not None:
        if response.body.string is not None:
            out.body.CopyFrom(base_pb2.DataSource(inline_string=response.body.string))
        elif response.body.bytes_ is not None:
            out.body.CopyFrom(base_pb2.DataSource(inline_bytes=response.body.bytes_))
    return out
