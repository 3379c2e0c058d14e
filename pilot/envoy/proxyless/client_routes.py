"""The routes of a service port for gRPC clients: a sidecar's virtual host, adapted to the fields that gRPC reads."""

from __future__ import annotations

from envoy.config.route.v3 import route_components_pb2, route_pb2

from pilot.derive import Lookup, derived
from pilot.envoy.names import OUTBOUND, parse_cluster
from pilot.envoy.resource import Resource
from pilot.envoy.route.sidecar.sidecar_route_configurations import find_egress_listener, layout_key, single_service_host
from pilot.lib.xds_types import ROUTE
from pilot.mesh.proxies.sidecar_routing import SidecarRoutesFacet
from pilot.mesh.scope.sidecar_scope import egress_listeners
from pilot.mesh.tables.database import Mesh


@derived
def _routes(db: Mesh, name: str, routing: SidecarRoutesFacet) -> Resource | None:
    """Return the route configuration of a service port. It is named after the port's default cluster.

    Return None if there is no such service port, or if the name does not belong to a default cluster.
    """
    parsed = parse_cluster(name)
    if parsed is None or parsed.direction != OUTBOUND or parsed.subset:
        return None
    index = find_egress_listener(egress_listeners(db, routing.scope), "", parsed.port)
    if index is None:
        return None
    fields = b"".join(single_service_host(db, layout_key(db, routing, index, parsed.port), parsed.host, routing))
    configuration = route_pb2.RouteConfiguration.FromString(fields)
    if not configuration.virtual_hosts:
        return None
    configuration.name = name
    for route in configuration.virtual_hosts[0].routes:
        _set_stream_duration(route)
    return Resource.of(ROUTE, configuration)


routes: Lookup[str, [SidecarRoutesFacet], Resource] = Lookup("proxyless routes", _routes)


def _set_stream_duration(route: route_components_pb2.Route) -> None:
    """Copy a route's timeout to its maximum stream duration, which is the field that gRPC reads."""
    if route.WhichOneof("action") == "route" and (route.route.timeout.seconds or route.route.timeout.nanos):
        route.route.max_stream_duration.max_stream_duration.CopyFrom(route.route.timeout)
