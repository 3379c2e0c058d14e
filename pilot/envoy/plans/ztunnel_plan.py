"""The plan of a ztunnel."""

from __future__ import annotations

from pilot.envoy.plans.resource_group import NamedGroup, ProxyPlan
from pilot.envoy.plans.shared_groups import agent_groups, policy_groups, secret_groups
from pilot.envoy.ztunnel.address_resources import requested_addresses, requested_workloads
from pilot.lib.xds_types import ADDRESS, AUTHORIZATION, WORKLOAD
from pilot.mesh.tables.clusters import cluster_of
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy


def ztunnel_plan(db: Mesh, node_id: str) -> ProxyPlan:
    """Return the plan of a ztunnel: workloads, services and the policies that it enforces. Not memoised."""
    proxy = find_proxy(db, node_id)
    location = (cluster_of(db, proxy), proxy.text("NODE_NAME"))
    return ProxyPlan(
        {AUTHORIZATION: policy_groups(db), **agent_groups(db)},
        by_name=secret_groups(db, node_id),
        explicit={
            ADDRESS: (NamedGroup(requested_addresses, location),),
            WORKLOAD: (NamedGroup(requested_workloads, location),),
        },
    )
