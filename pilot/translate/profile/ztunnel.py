"""Chooses what ztunnels get: workloads, services, and the policies that they enforce."""
from __future__ import annotations

from collections.abc import Mapping

from pilot.derive import derived
from pilot.lib.xds_types import ADDRESS, AUTHORIZATION, WORKLOAD
from pilot.model.inputs import Mesh
from pilot.model.views.clusters import cluster_of
from pilot.model.views.proxies import find_proxy
from pilot.translate.profile.companion import companion_groups
from pilot.translate.profile.plan import Group, NamedGroup, Plan
from pilot.translate.profile.secrets import secret_groups
from pilot.translate.workload.addresses import ADDRESSES, WORKLOADS, asked_addresses, asked_workloads
from pilot.translate.workload.policies import authorizations, port_policies, strict_policy, waypoint_policies


def ztunnel_plan(db: Mesh, node_id: str) -> Plan:
    """Returns the groups of one ztunnel. No node of its own."""
    proxy = find_proxy(db, node_id)
    place = (cluster_of(db, proxy), proxy.text("NODE_NAME"))
    return Plan(
        {**address_groups(db), AUTHORIZATION: policy_groups(db), **companion_groups(db)},
        named=secret_groups(db, node_id),
        asked={ADDRESS: (NamedGroup(asked_addresses, place),), WORKLOAD: (NamedGroup(asked_workloads, place),)},
    )


@derived
def address_groups(db: Mesh) -> Mapping[str, tuple[Group, ...]]:
    """Returns every workload and service, which any proxy of an ambient mesh may ask for; nothing in a mesh that is not ambient."""
    if not db.settings.ambient.enabled:
        return {}
    return {ADDRESS: tuple(Group(one, ()) for one in ADDRESSES), WORKLOAD: tuple(Group(one, ()) for one in WORKLOADS)}


@derived
def policy_groups(db: Mesh) -> tuple[Group, ...]:
    """Returns every policy that ztunnels enforce; nothing in a mesh that is not ambient."""
    found = (Group(authorizations, ()), Group(port_policies, ()), Group(strict_policy, ()), Group(waypoint_policies, ()))
    return found if db.settings.ambient.enabled else ()
