"""Lists the route configurations of a sidecar: those that its listeners name."""

from __future__ import annotations

from pilot.derive import Gather, derived
from pilot.envoy.listener.defaults import listener_defaults
from pilot.envoy.listener.outbound import route_names
from pilot.envoy.names import HTTP_PROXY
from pilot.envoy.resource import Resource
from pilot.envoy.route.sidecar.sidecar_route_configurations import sidecar_routes
from pilot.mesh.model.facets import OutboundListenersFacet
from pilot.mesh.proxies.sidecar_routing import SidecarRoutesFacet
from pilot.mesh.tables.database import Mesh


@derived
def _names(db: Mesh, listens: OutboundListenersFacet, _: SidecarRoutesFacet) -> tuple[str, ...]:
    """Returns what the proxy's listeners ask for; its HTTP proxy too, where it has one."""
    port = listens.listening.http_proxy_port
    proxy = listener_defaults(db).http_proxy_port if port is None else port
    return (*route_names(db, listens), *((HTTP_PROXY,) if proxy else ()))


@derived
def _named(db: Mesh, name: str, _: OutboundListenersFacet, routing: SidecarRoutesFacet) -> Resource | None:
    return sidecar_routes(db, name, routing)


route_configurations: Gather[str, [OutboundListenersFacet, SidecarRoutesFacet], Resource] = Gather(
    "route_configurations", _names, _named
)
