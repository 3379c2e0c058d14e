"""Lists the route configurations of a sidecar: those that its listeners name."""

from __future__ import annotations

from pilot.derive import Gather, derived
from pilot.model.facets import OutboundListenersFacet
from pilot.model.inputs import Mesh
from pilot.model.views.sidecar_routing import SidecarRoutesFacet
from pilot.translate.listener.defaults import listener_defaults
from pilot.translate.listener.outbound import route_names
from pilot.translate.names import HTTP_PROXY
from pilot.translate.resource import Resource
from pilot.translate.route.sidecar import sidecar_routes


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
