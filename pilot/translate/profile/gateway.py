"""Which resources a router gets."""
from __future__ import annotations

from pilot.derive import derived
from pilot.model.inputs import Mesh
from pilot.model.views.gateways import selection
from pilot.model.views.router import front, routing
from pilot.translate.listener.gateway import gateway_listeners
from pilot.translate.profile.plan import Group, Plan
from pilot.translate.resource import LISTENER, ROUTE
from pilot.translate.route.gateway import gateway_route_configurations


@derived
def gateway_plan(db: Mesh, node_id: str) -> Plan:
    """The groups of one router."""
    return Plan({
        LISTENER: (Group(gateway_listeners, (selection(db, node_id), front(db, node_id))),),
        ROUTE: (Group(gateway_route_configurations, (routing(db, node_id),)),),
    })
