"""Chooses what a proxy and its companion get whatever kind of proxy it is."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.derive import derived
from pilot.envoy.agent_resources import trusted_roots
from pilot.envoy.plans.addresses import address_groups
from pilot.envoy.plans.plan import Group
from pilot.lib.xds_types import PROXY_CONFIG
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.trust import has_trust_bundle


@derived
def companion_groups(db: Mesh) -> Mapping[str, tuple[Group, ...]]:
    """Returns the roots to trust where the mesh has several, and in an ambient mesh what an Envoy knows its peers by that no longer say who they
    are."""
    return {**({PROXY_CONFIG: (Group(trusted_roots, ()),)} if has_trust_bundle(db) else {}), **address_groups(db)}
