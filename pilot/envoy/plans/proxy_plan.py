"""Selects the plan for a proxy, which depends on its kind."""

from __future__ import annotations

from pilot.derive import derived
from pilot.envoy.plans.gateway_plan import gateway_plan
from pilot.envoy.plans.proxyless_plan import proxyless_plan
from pilot.envoy.plans.resource_group import ProxyPlan
from pilot.envoy.plans.sidecar_plan import sidecar_plan
from pilot.envoy.plans.waypoint_plan import waypoint_plan
from pilot.envoy.plans.ztunnel_plan import ztunnel_plan
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.proxies.proxyless import is_proxyless
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import connected_proxy

EMPTY_PLAN = ProxyPlan({})


@derived
def proxy_plan(db: Mesh, node_id: str) -> ProxyPlan:
    """Return the plan of a proxy.

    The plan is empty if the proxy is not connected, or if its kind receives no resources.
    """
    proxy = connected_proxy(db, node_id)
    if proxy is None:
        return EMPTY_PLAN
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
    return EMPTY_PLAN
