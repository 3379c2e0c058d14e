"""Operation names, which appear in the spans of requests on a route."""

from __future__ import annotations

from envoy.config.route.v3 import route_components_pb2

from pilot.envoy.names import parse_cluster
from pilot.lib.hosts import with_port


def operation_name(route: route_components_pb2.Route, virtual_service: str, port: int) -> str:
    """Return the operation name of a route.

    It contains the host and port of the cluster. If there is no single cluster, it contains the VirtualService and the
    listener port.
    """
    cluster = parse_cluster(route.route.cluster) if route.route.cluster else None
    path = _path(route.match)
    return f"{cluster.host}:{cluster.port}{path}" if cluster is not None else f"{virtual_service}:{port}{path}"


def service_operation_name(hostname: str, port: int) -> str:
    """Return the operation name of the default route to a service."""
    return with_port(hostname, port) + "/*"


def _path(match: route_components_pb2.RouteMatch) -> str:
    kind = match.WhichOneof("path_specifier")
    if kind == "prefix":
        return f"{match.prefix}*"
    if kind == "path":
        return str(match.path)
    return str(match.safe_regex.regex) if kind == "safe_regex" else "/*"
