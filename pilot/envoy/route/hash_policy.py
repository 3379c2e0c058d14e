"""Decides what requests are hashed by, where a DestinationRule asks for consistent hashing.

The load balancer stands on the cluster, the key on the routes to it.
"""

from __future__ import annotations

from envoy.config.route.v3 import route_components_pb2

from pilot.config.networking.destination_rule import ConsistentHashLB, HTTPCookie
from pilot.envoy.well_known_types import build_duration

_HashPolicy = route_components_pb2.RouteAction.HashPolicy


def build_hash_policy(settings: ConsistentHashLB | None) -> route_components_pb2.RouteAction.HashPolicy | None:
    """Returns None where no key is named."""
    if settings is None:
        return None
    if settings.http_header_name:
        return _HashPolicy(header=_HashPolicy.Header(header_name=settings.http_header_name))
    if settings.http_cookie is not None:
        return _HashPolicy(cookie=_cookie(settings.http_cookie))
    if settings.use_source_ip is not None:
        return _HashPolicy(connection_properties=_HashPolicy.ConnectionProperties(source_ip=settings.use_source_ip))
    if settings.http_query_parameter_name:
        return _HashPolicy(query_parameter=_HashPolicy.QueryParameter(name=settings.http_query_parameter_name))
    return None


def _cookie(cookie: HTTPCookie) -> route_components_pb2.RouteAction.HashPolicy.Cookie:
    return _HashPolicy.Cookie(
        name=cookie.name,
        path=cookie.path,
        ttl=build_duration(cookie.ttl) if cookie.ttl is not None else None,
        attributes=[_HashPolicy.CookieAttribute(name=a.name, value=a.value) for a in cookie.attributes],
    )
