"""Sticky sessions, which a service's labels request and the stateful session filter implements.

https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/stateful_session_filter
"""

from __future__ import annotations

from typing import NamedTuple

from envoy.config.core.v3 import extension_pb2
from envoy.extensions.filters.http.stateful_session.v3 import stateful_session_pb2
from envoy.extensions.http.stateful_session.cookie.v3 import cookie_pb2
from envoy.extensions.http.stateful_session.header.v3 import header_pb2
from envoy.type.http.v3 import cookie_pb2 as http_cookie_pb2
from google.protobuf import any_pb2

from pilot.envoy.well_known_types import pack
from pilot.mesh.model.service import Service


class StickySession(NamedTuple):
    """A sticky session that is identified by a cookie ("name" or "name:path") or by a header."""

    cookie: str = ""
    header: str = ""


def find_sticky_session(service: Service) -> StickySession | None:
    """Return the session that a service's labels request, or None if they request none.

    A cookie takes precedence over a header.
    """
    return (
        StickySession(service.session_label, service.session_header_label)
        if service.session_label or service.session_header_label
        else None
    )


def build_sticky_session(session: StickySession) -> any_pb2.Any:
    """Return the filter's configuration for a route or virtual host."""
    if session.cookie:
        name, colon, path = session.cookie.partition(":")
        cookie = http_cookie_pb2.Cookie(
            name=name, path=path if colon else "/"
        )  # no time to live: it ends with the browser's session
        state = _state("envoy.http.stateful_session.cookie", pack(cookie_pb2.CookieBasedSessionState(cookie=cookie)))
    else:
        state = _state(
            "envoy.http.stateful_session.header", pack(header_pb2.HeaderBasedSessionState(name=session.header))
        )
    return pack(
        stateful_session_pb2.StatefulSessionPerRoute(
            stateful_session=stateful_session_pb2.StatefulSession(session_state=state)
        )
    )


def _state(name: str, config: any_pb2.Any) -> extension_pb2.TypedExtensionConfig:
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=config)
