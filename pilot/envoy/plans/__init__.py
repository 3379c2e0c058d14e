"""Chooses which resources a proxy gets: a function a kind of proxy, over shared builders."""

from __future__ import annotations

from pilot.derive import derived
from pilot.envoy.plans.gateway import gateway_plan
from pilot.envoy.plans.plan import Plan
from pilot.envoy.plans.proxyless import proxyless_plan
from pilot.envoy.plans.sidecar import sidecar_plan
from pilot.envoy.plans.waypoint import waypoint_plan
from pilot.envoy.plans.ztunnel import ztunnel_plan
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.proxies.proxyless import is_proxyless
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import connected_proxy

NOTHING = Plan({})


@derived
def plan(db: Mesh, node_id: str) -> Plan:
    """Returns what the proxy of a node id is to be sent; nothing for one that is not connected, or of a kind without xDS of its own."""
    proxy = connected_proxy(db, node_id)
    if proxy is None:
        return NOTHING
    if is_proxyless(proxy):
        return proxyless_plan(db, node_id)
    if proxy.type is NodeType.SIDECAR:
        return sidecar_plan(db, node_id)
    if proxy.type is NodeType.ROUTER:
        return gateway_plan(db, node_id)
    if proxy.type is NodeType.ZTUNNEL and db.settings.ambient.enabled:
        return ztunnel_plan(db, node_id)
    if proxy.type is NodeType.WAYPOINT:
        return waypoint_plan(db, node_id)
    return NOTHING
