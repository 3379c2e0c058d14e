"""Decides how spans name a route: `host:port/path`."""

from __future__ import annotations

from envoy.config.route.v3 import route_components_pb2

from pilot.envoy.names import parse_cluster
from pilot.lib.hosts import with_port


def operation_name(route: route_components_pb2.Route, virtual_service: str, port: int) -> str:
    """Returns how spans name a route: by the cluster where there is one, else by the VirtualService and the listener's port."""
    cluster = parse_cluster(route.route.cluster) if route.route.cluster else None
    path = _path(route.match)
    return f"{cluster.host}:{cluster.port}{path}" if cluster is not None else f"{virtual_service}:{port}{path}"


def service_operation_name(hostname: str, port: int) -> str:
    """Returns how spans name the route to all of a service."""
    return with_port(hostname, port) + "/*"


def _path(match: route_components_pb2.RouteMatch) -> str:
    kind = match.WhichOneof("path_specifier")
    if kind == "prefix":
        return f"{match.prefix}*"
    if kind == "path":
        return str(match.path)
    return str(match.safe_regex.regex) if kind == "safe_regex" else "/*"
