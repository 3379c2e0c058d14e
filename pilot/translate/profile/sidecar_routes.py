"""The route configurations of a sidecar: those that its listeners name."""
from __future__ import annotations

from pilot.derive import Gather, derived
from pilot.model.facets import OutboundListening
from pilot.model.inputs import Mesh
from pilot.model.views.sidecar_routing import SidecarRouting
from pilot.translate.listener.defaults import listener_defaults
from pilot.translate.listener.outbound import route_names
from pilot.translate.names import HTTP_PROXY
from pilot.translate.resource import Resource
from pilot.translate.route.sidecar import sidecar_routes


@derived
def _names(db: Mesh, listens: OutboundListening, _: SidecarRouting) -> tuple[str, ...]:
    """What the proxy's listeners ask for; its HTTP proxy too, where it has one."""
    port = listens.listening.http_proxy_port
    proxy = listener_defaults(db).http_proxy_port if port is None else port
    return (*route_names(db, listens), *((HTTP_PROXY,) if proxy else ()))


@derived
def _named(db: Mesh, name: str, _: OutboundListening, routing: SidecarRouting) -> Resource | None:
    return sidecar_routes(db, name, routing)


route_configurations: Gather[str, [OutboundListening, SidecarRouting], Resource] = Gather("route_configurations", _names, _named)
