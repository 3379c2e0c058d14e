"""Chooses what of an ambient mesh is the same for all who ask for it: workloads, services, and policies of connections."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.derive import derived
from pilot.envoy.plans.plan import Group
from pilot.envoy.ztunnel.addresses import ADDRESSES, WORKLOADS
from pilot.envoy.ztunnel.policies import authorizations, port_policies, strict_policy, waypoint_policies
from pilot.lib.xds_types import ADDRESS, WORKLOAD
from pilot.mesh.tables.database import Mesh


@derived
def address_groups(db: Mesh) -> Mapping[str, tuple[Group, ...]]:
    """Returns every workload and service, which any proxy of an ambient mesh may ask for; nothing in a mesh that is not ambient."""
    if not db.settings.ambient.enabled:
        return {}
    return {ADDRESS: tuple(Group(one, ()) for one in ADDRESSES), WORKLOAD: tuple(Group(one, ()) for one in WORKLOADS)}


@derived
def policy_groups(db: Mesh) -> tuple[Group, ...]:
    """Returns every policy that ztunnels enforce; nothing in a mesh that is not ambient."""
    found = (
        Group(authorizations, ()),
        Group(port_policies, ()),
        Group(strict_policy, ()),
        Group(waypoint_policies, ()),
    )
    return found if db.settings.ambient.enabled else ()
