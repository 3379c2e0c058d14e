"""Chooses what ztunnels get: workloads, services, and the policies that they enforce."""

from __future__ import annotations

from pilot.envoy.plans.addresses import policy_groups
from pilot.envoy.plans.agent import companion_groups
from pilot.envoy.plans.plan import NamedGroup, Plan
from pilot.envoy.plans.secrets import secret_groups
from pilot.envoy.ztunnel.addresses import asked_addresses, asked_workloads
from pilot.lib.xds_types import ADDRESS, AUTHORIZATION, WORKLOAD
from pilot.mesh.tables.clusters import cluster_of
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy


def ztunnel_plan(db: Mesh, node_id: str) -> Plan:
    """Returns the groups of one ztunnel. No node of its own."""
    proxy = find_proxy(db, node_id)
    place = (cluster_of(db, proxy), proxy.text("NODE_NAME"))
    return Plan(
        {AUTHORIZATION: policy_groups(db), **companion_groups(db)},
        named=secret_groups(db, node_id),
        asked={ADDRESS: (NamedGroup(asked_addresses, place),), WORKLOAD: (NamedGroup(asked_workloads, place),)},
    )
